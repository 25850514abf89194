/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sensing: once a second, one struct stall_node, and one struct stall_sample per job (tuner/stall_sample.h).
 *
 *   main():  sensor_fork() -> threads, loop, server -> sensor_new()
 *   whenever a job begins (struct job_handler): sensor_wake()
 *   at the end: sensor_stop() -> loop runs out -> sensor_free()
 *
 * A child process (sensor_watch.c) finds out where a trainer's time goes; it alone keeps the privilege to
 * load BPF programs. It loads them when there is a job and lets go of them when there has been none for a
 * while: an idle daemon has no timer and no programs. Where BPF cannot be used, or while the child is being
 * started again, a sample holds the clients' own wait times and says so. The rest of a sample is the daemon's
 * own: what it delivered, read and computed, and what the machine and its cgroup have left.
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
 * fails, go on without the child. */
int sensor_fork(struct fork_server *ret_keeper, struct error *err);

/* Gives up all privileges that only the child needs: call it after sensor_fork(), before the first thread.
 * What stays is what reading datasets of any owner and making the socket take. */
int sensor_drop_privileges(struct error *err);

struct sensor_handler {
	/* Once a second while there are jobs, with samples of all of them. May apply knobs; may not stop the
	 * sensor. */
	void (*second)(void *user, const struct stall_node *node, const struct stall_sample *samples,
		       size_t n, uint64_t now_ns);
	void *user;
};

struct sensor_options {
	const char *root;     /* is put in front of /proc and /sys; "" on a real machine */
	const char *no_child; /* why there is no child, in words for the status; NULL: there is one */
	struct sensor_handler handler;
};

/* Takes the keeper over: it is FORK_SERVER_NONE afterwards, if there was one. -ENOMEM. */
int sensor_new(uv_loop_t *loop, struct serving *serving, struct fork_server *keeper,
	       const struct sensor_options *options, struct sensor **ret_sensor);

/* Looks for jobs (serving.jobs) now. The sensor sleeps while there are none, so call it when a job begins. */
void sensor_wake(struct sensor *sensor);

/* Ends the child. The loop must run once more to close the handles; then call sensor_free(). Accepts NULL. */
void sensor_stop(struct sensor *sensor);
void sensor_free(struct sensor *sensor);

struct sensor_status {
	enum stall_source source; /* of the samples to come; when idle, of the next job's, as far as known */
	bool active;              /* BPF programs are loaded */
	char why[240];            /* one line: why BPF is not used, and what to do; "" if it is */
	uint32_t n_jobs;          /* jobs watched by BPF */
	uint32_t n_restarts;      /* how often a child that died was started again */
	/* Since the programs were loaded: */
	uint64_t active_ns;
	uint64_t n_lost;         /* records of the programs that found no space */
	uint64_t cpu_ns;         /* of the child */
	uint64_t bpf_run_ns;     /* of the programs; 0: not known (kernel.bpf_stats_enabled is 0, and
				  * switching it on takes CAP_SYS_ADMIN, which the child lacks) */
	uint64_t resident_bytes; /* of the child, now */
};

void sensor_status_get(const struct sensor *sensor, struct sensor_status *ret_status);
