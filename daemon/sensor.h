/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sensing: one struct stall_sample (tuner/stall_sample.h) a job and second, for whoever tunes.
 *
 *   main():  sensor_fork() -> threads, loop -> sensor_new() -> sensor_job_add() ... -> sensor_free()
 *
 * Where the trainer's time goes is found out by a child process, the only one that keeps the privilege to
 * load BPF programs (sensor_keeper.h). It loads them when there is a job and lets go of them when there is
 * none: an idle daemon has no timer and no programs. Where BPF is not to be had, or while the child is being
 * started again, a sample holds the clients' own wait times instead and says so. All the rest of a sample is
 * the daemon's own: what it delivered, read and computed, what the machine and its cgroup have left.
 *
 * Loop thread only, but for sensor_fork(). A sample is valid during the callback. The callback may add and
 * remove jobs and apply knobs; it may not free the sensor.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct error;
struct sensor;
struct server;
struct stall_sample;

/* Descriptor to the child, and who it is. */
struct sensor_child {
	int fd; /* -EBADF: there is none */
	pid_t pid;
};

/*
 * Forks the child that waits for jobs. Call it before the first thread, event loop or open file that the
 * child should not have. `wanted` false: no child, samples are of the clients' wait times. Afterwards the
 * caller holds no capability but those that serving takes (privileges.h).
 */
int sensor_fork(bool wanted, struct sensor_child *ret_child, struct error *err);

struct sensor_handler {
	/* Once a second for each job. */
	void (*sample)(void *user, uint64_t job, const struct stall_sample *sample);
	void *user;
};

/* Takes the child over. Sessions of `server` whose job is `job` (session.h) are what a sample sums up. */
int sensor_new(uv_loop_t *loop, struct server *server, struct sensor_child *child,
	       const struct sensor_handler *handler, struct sensor **ret_sensor);

/* Ends the child. The loop must run once more to close the handles. NULL is fine. */
void sensor_free(struct sensor *sensor);

/*
 * A job is a process with its descendants: root is the trainer, or an ancestor of it that starts nothing
 * else, as this process sees it (SO_PEERCRED does). job: the caller's number for it, never used twice.
 * -EEXIST; -ESRCH: no such process (any more); -ENOMEM.
 */
int sensor_job_add(struct sensor *sensor, uint64_t job, pid_t root);
/* No sample of it comes any more. An unknown job is fine. */
void sensor_job_remove(struct sensor *sensor, uint64_t job);

enum sensor_source {
	SENSOR_SOURCE_CLIENT, /* the clients' own wait times */
	SENSOR_SOURCE_BPF,
};

struct sensor_status {
	enum sensor_source source; /* of the samples to come; idle: what the next job is going to have */
	bool active;               /* BPF programs are loaded */
	char why[240];             /* one line: why not BPF, and what to do; "" with BPF */
	uint32_t n_jobs;
	uint32_t n_restarts;     /* of the child */
	uint64_t n_lost;         /* records of the BPF programs, since they were loaded */
	uint64_t bpf_run_ns;     /* what sensing cost: CPU time of the programs, and of the child; since */
	uint64_t cpu_ns;         /* they were loaded */
	uint64_t resident_bytes; /* of the child */
	uint64_t active_ns;      /* time since the programs were loaded */
};

void sensor_status_get(const struct sensor *sensor, struct sensor_status *ret_status);
const char *sensor_source_name(enum sensor_source source); /* "client", "bpf" */
