/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The cores that the operator has given to jobs, as their control groups say, so that what the
 * daemon does for one user takes none of another's. It is a number of cores and not a place: the kernel
 * chooses those that idle.
 *
 * A file has to be root's, or the daemon's user's. One that the group's own user can write counts for
 * nothing: anybody could keep all others from the cores by it.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job_cores {
	bool has_cpus; /* some of the machine's (cpuset.cpus.effective; version 1: cpuset.effective_cpus) */
	cpu_set_t cpus;
	double quota;   /* so many of any (cpu.max), where it has none of its own; 0: no limit */
	uint64_t group; /* the one that says so: its jobs have them together */
};

/* Reads them of a process; root is put in front of /proc and /sys. A limit that is not known is none. */
void job_cores_read(const char *root, pid_t pid, struct job_cores *ret);

struct user_cores {
	uint32_t uid;
	const struct job_cores *cores;
};

/* How many of the daemon's cores are left to a user beside the cores of other users' jobs: no fewer than his
 * own jobs have, and at least one. n_machine: all cores of the machine. */
uint32_t job_cores_left(const struct user_cores *jobs, size_t n, uint32_t uid, const cpu_set_t *daemon,
			uint32_t n_machine);
