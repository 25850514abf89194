/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The events of one job that are kept: lives of its threads, and what they did lately. */

#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct live_list {
	struct event *items;
	size_t n, n_allocated;
};

struct live_events {
	struct live_list lives, recent;
	size_t n_lives_tidied; /* how many lives were left when they were tidied last */
	uint64_t begin_ns;     /* events that ended before are gone */
	uint64_t n_dropped;    /* for lack of memory, since the last analysis */
};

void live_events_free(struct live_events *events);

/* -ENOMEM. n_max: how many recent ones are kept; the older half goes when there are more. */
int live_events_add(struct live_events *events, const struct event *event, size_t n_max);

/* Forgets what ended before begin_ns, and threads that did. */
void live_events_forget(struct live_events *events, uint64_t begin_ns);

/* All of them in one array, which the caller frees. -ENOMEM. */
int live_events_copy(const struct live_events *events, struct event **ret_events, size_t *ret_n);
