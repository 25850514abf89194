/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Queue of lanes that wait for a turn (turns.h), least used first. It is a pairing heap, so that choosing
 * among thousands costs about as much as choosing among a few. Pure; the caller allocates the entries.
 */

#include <stdbool.h>
#include <stdint.h>

struct turn_entry {
	uint64_t used; /* sort key; must not change while the entry is in a queue */
	struct turn_entry *child, *next, *prev;
	struct turn_queue *in; /* NULL: in no queue */
};

struct turn_queue {
	struct turn_entry *first;
};

void turn_queue_add(struct turn_queue *q, struct turn_entry *entry, uint64_t used);
/* Does nothing if the entry is in no queue. */
void turn_queue_remove(struct turn_entry *entry);
