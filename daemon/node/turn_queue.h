/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Those that wait for a turn (turns.h), the one that used least first: a pairing heap, so that choosing among
 * thousands costs about as much as choosing among a few. Pure; the entries are the caller's memory.
 */

#include <stdbool.h>
#include <stdint.h>

struct turn_entry {
	uint64_t used; /* the order; not to be changed while it is in a queue */
	struct turn_entry *child, *next, *prev;
	struct turn_queue *in; /* NULL: in none */
};

struct turn_queue {
	struct turn_entry *first;
};

void turn_queue_add(struct turn_queue *q, struct turn_entry *entry, uint64_t used);
/* Nothing happens if it is in no queue. */
void turn_queue_remove(struct turn_entry *entry);
