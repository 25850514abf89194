/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Resource limits of this process, and the resources left: the tightest limit of the machine, the process's
 * control groups, and their parents. Handles control groups of version 1 and 2, also inside a container.
 *
 * root is a prefix of /proc and /sys; it is "" on a real machine. A limit that a kernel or container does not
 * show counts as no limit.
 */

#include <stddef.h>
#include <stdint.h>

struct limits {
	uint64_t machine_bytes;      /* all memory of the machine; 0: nothing could be read */
	uint64_t memory_limit_bytes; /* memory that this process may use; 0: not readable */
	/* Memory that can still be used before the limit is hit. Page cache that can be dropped counts as
	 * usable. */
	uint64_t memory_headroom_bytes;
	uint64_t memory_free_bytes; /* the part of the headroom that is entirely unused, even by page cache */
	/* Quota of CPU time, in cores; INFINITY: none. Ignores the affinity mask. */
	double cpu_quota_cores;
	uint64_t cpu_used_ns; /* CPU time so far of the group that has the quota */
	uint64_t oom_kills;   /* OOM kills in the process's own group so far */
};

void limits_read(const char *root, struct limits *ret_limits);

/* Returns a headroom that is read within a few microseconds, because page cache of control groups counts as
 * used. So a single figure means little, but a fall between two does. UINT64_MAX: nothing could be read. */
uint64_t limits_unused_bytes(const char *root);

/* Finds the file that shows the pressure on a resource ("memory", "cpu", "io") in this process's own group,
 * or else on the machine. -ENOENT: neither exists. */
int limits_pressure_path(const char *root, const char *resource, char *buffer, size_t size);
