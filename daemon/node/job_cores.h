/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads the cores that the operator has given to jobs by control groups, so that the daemon's work for one
 * user takes no cores from another. Only the number of cores is limited, not which ones: the kernel chooses
 * idle ones.
 *
 * A control file must belong to root or the daemon's user. A file of any other user is ignored: with it, any
 * user could claim all cores.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job_cores {
	bool has_cpus; /* the job has a subset of the machine's CPUs (cpuset.cpus.effective; version 1:
			  cpuset.effective_cpus) */
	cpu_set_t cpus;
	double quota;   /* limit on the number of cores (cpu.max); 0: no limit */
	uint64_t group; /* control group that sets this limit, which its jobs share */
};

/* Reads the cores of a process; root is prepended to /proc and /sys. An unknown limit counts as none. */
void job_cores_read(const char *root, pid_t pid, struct job_cores *ret);

struct user_cores {
	uint32_t uid;
	const struct job_cores *cores;
};

/* Returns how many of the daemon's cores are left to a user after the cores of other users' jobs: no fewer
 * than that user's own jobs have, and at least one. n_machine: all cores of the machine. */
uint32_t job_cores_left(const struct user_cores *jobs, size_t n, uint32_t uid, const cpu_set_t *daemon,
			uint32_t n_machine);
