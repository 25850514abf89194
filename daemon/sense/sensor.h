/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sensing: makes, once a second, one struct stall_node, and one struct stall_sample per job
 * (tuner/stall_sample.h).
 *
 *   main():  sensor_fork() -> threads, loop, server -> sensor_new()
 *   whenever a job begins (struct job_handler): sensor_wake()
 *   at the end: sensor_stop() -> loop runs out -> sensor_free()
 *
 * A child process (sensor_watch.c) finds out where a trainer's time goes; only the child keeps the privilege
 * to load BPF programs. It loads them when there is a job, and unloads them when there has been none for a
 * while: an idle daemon has no timer and no programs. Where BPF cannot be used, or while the child is being
 * restarted, a sample has the clients' own wait times, and is marked so. The rest of a sample comes from the
 * daemon itself: the samples that it delivered, its reads and computing, and the free resources of the
 * machine and its cgroup.
 *
 * Loop thread only, except sensor_fork() and sensor_drop_privileges(). Samples are valid during the callback.
 */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/helpers/spawn.h"
#include "tuner/stall_sample.h"

struct error;
struct sensor;
struct serving;

/* Forks the child's keeper, which waits for jobs. Call it before the first thread and event loop. If it
 * fails, continue without the child. */
int sensor_fork(struct fork_server *ret_keeper, struct error *err);

/* Drops all privileges that only the child needs: call it after sensor_fork(), before the first thread. The
 * privileges that stay are for reading datasets of any owner and making the socket. */
int sensor_drop_privileges(struct error *err);

struct sensor_handler {
	/* Called once per second while there are jobs, with samples of all of them. May apply knobs; must
	 * not stop the sensor. */
	void (*second)(void *user, const struct stall_node *node, const struct stall_sample *samples,
		       size_t n, uint64_t now_ns);
	void *user;
};

struct sensor_options {
	const char *root;     /* prefix of /proc and /sys; "" on a real machine */
	const char *no_child; /* why there is no child, for the status; NULL: there is one */
	struct sensor_handler handler;
};

/* Takes over the keeper: it is FORK_SERVER_NONE afterwards if there was one. -ENOMEM. */
int sensor_new(uv_loop_t *loop, struct serving *serving, struct fork_server *keeper,
	       const struct sensor_options *options, struct sensor **ret_sensor);

/* Looks for jobs (serving.jobs) now. The sensor sleeps while there are none, so call it when a job begins. */
void sensor_wake(struct sensor *sensor);

/* Ends the child. The loop must run once more to close the handles; then call sensor_free(). Accepts NULL. */
void sensor_stop(struct sensor *sensor);
void sensor_free(struct sensor *sensor);

struct sensor_status {
	enum stall_source source; /* source of the next samples; when idle, the likely one */
	bool active;              /* BPF programs are loaded */
	char why[240];            /* one line: why BPF is not in use, and the remedy; "" if it is in use */
	uint32_t n_jobs;          /* jobs watched by BPF */
	uint32_t n_restarts;      /* number of restarts of a child that died */
	/* The figures below count since the programs were loaded. */
	uint64_t active_ns;
	uint64_t n_lost;         /* records of the programs that were lost for want of space */
	uint64_t cpu_ns;         /* CPU time of the child */
	uint64_t bpf_run_ns;     /* run time of the programs; 0: not known (kernel.bpf_stats_enabled is 0, and
				  * setting it takes CAP_SYS_ADMIN, which the child lacks) */
	uint64_t resident_bytes; /* memory of the child now */
};

void sensor_status_get(const struct sensor *sensor, struct sensor_status *ret_status);
