/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The node in one second, as struct stall_node: pressure, memory and cores, of the machine and of the cgroups
 * this process is in, whichever is tighter. */

#include <stdint.h>

#include "lib/limits.h"
#include "lib/proc.h"
#include "tuner/stall_sample.h"

struct node_watch {
	const char *root; /* stands in front of /proc and /sys */
	/* "": there is none. Found once: a process hardly ever moves. */
	char memory_pressure[512], cpu_pressure[512], io_pressure[512];
	uint64_t at_ns;
	uint64_t memory_some_ns; /* in which some task waited for memory, ever; 0: not known */
	struct proc_cpu_ticks ticks;
	struct limits limits;
};

void node_watch_init(struct node_watch *watch, const char *root);

/* Since the last call; what takes two looks is not known at the first one, or after more than a minute. */
struct stall_node node_watch_look(struct node_watch *watch, uint64_t now_ns);

/*
 * Threads of a process and of its children that are runnable without a core: their summed delay so far, ns.
 * Of at most QUEUE_THREADS_MAX threads. Threads that end take theirs along. -ESRCH: it is gone.
 */
#define QUEUE_THREADS_MAX 128
int node_queue_ns(const char *root, int64_t pid, uint64_t *ret_queue_ns);
