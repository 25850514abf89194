/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Measures the node once per second as struct stall_node: pressure, memory and cores, of the machine or of
 * the cgroups this process is in, whichever is tighter. */

#include <stdint.h>

#include "lib/limits.h"
#include "lib/proc.h"
#include "tuner/stall_sample.h"

struct node_watch {
	const char *root; /* prepended to /proc and /sys */
	/* Paths of the pressure files; "": no such file. Determined only once, because processes rarely
	 * change their cgroup. */
	char memory_pressure[512], cpu_pressure[512], io_pressure[512];
	uint64_t at_ns;
	uint64_t memory_some_ns; /* total time in which some task waited for memory; 0: not known */
	struct proc_cpu_ticks ticks;
	struct limits limits;
};

void node_watch_init(struct node_watch *watch, const char *root);

/* Returns the measurements since the last call. Values that need two calls are unknown after the first one,
 * and after more than a minute without a call. */
struct stall_node node_watch_sample(struct node_watch *watch, uint64_t now_ns);

/*
 * Gets the time that the threads of a process and of its children have spent runnable without a core, summed
 * over at most QUEUE_THREADS_MAX threads. A thread that has ended no longer counts. -ESRCH: the process is
 * gone.
 */
#define QUEUE_THREADS_MAX 128
int node_queue_ns(const char *root, int64_t pid, uint64_t *ret_queue_ns);
