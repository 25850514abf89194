/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What this process may use and what of it is left: the tightest of the machine's and of the limits of its
 * control groups and their parents, version 1 and 2 alike, also inside a container.
 *
 * root stands in front of /proc and /sys: "" on a real machine. What a kernel or a container does not show
 * counts as no limit.
 */

#include <stddef.h>
#include <stdint.h>

struct limits {
	uint64_t memory_limit_bytes; /* 0: nothing could be read */
	/* That can still be used before the limit is hit; page cache that can be dropped counts as usable. */
	uint64_t memory_headroom_bytes;
	uint64_t memory_free_bytes; /* of that, used by nothing, not even page cache */
	/* Quota of CPU time, in cores; INFINITY: none. The affinity mask is the caller's to look at. */
	double cpu_quota_cores;
	uint64_t cpu_used_ns; /* CPU time so far of the group with that quota */
	uint64_t oom_kills;   /* in the process's own group, so far */
};

void limits_read(const char *root, struct limits *ret_limits);

/* The file with the pressure ("memory", "cpu", "io") of this process's own group, else of the machine;
 * -ENOENT: neither is there. */
int limits_pressure_path(const char *root, const char *resource, char *buffer, size_t size);
