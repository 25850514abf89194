/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The stored events of one job: lives of its threads, and their recent activity. */

#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct live_list {
	struct event *items;
	size_t n, n_allocated;
};

struct live_events {
	struct live_list lives, recent;
	size_t n_lives_tidied; /* lives left after they were last tidied */
	uint64_t begin_ns;     /* events that ended before this time are gone */
	uint64_t n_dropped;    /* events lost for lack of memory since the last analysis */
};

void live_events_free(struct live_events *events);

/* Adds an event. n_max: limit of recent events; beyond it the older half is dropped. -ENOMEM. */
int live_events_add(struct live_events *events, const struct event *event, size_t n_max);

/* Removes events and threads that ended before begin_ns. */
void live_events_forget(struct live_events *events, uint64_t begin_ns);

/* Copies all events into one array, which the caller frees. -ENOMEM. */
int live_events_copy(const struct live_events *events, struct event **ret_events, size_t *ret_n);
