/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The newest decisions, kept in memory for WHY: the disk is not read while serving. */

#include <stddef.h>

#include "client/protocol.h"
#include "history/history.h"

/* A decision, with the measurements at that time: figures, or the text in entry.sample for a decision made
 * before a restart. */
struct control_log_entry {
	struct history_entry entry;
	bool has_sample;
	struct stall_sample sample;
	struct stall_node node;
};

struct control_log {
	struct control_log_entry *entries; /* a ring of WIRE_WHY_MAX; NULL until the first one */
	uint64_t n_added;
};

void control_log_free(struct control_log *log);

/* Takes entry->entry.sample over, and frees it on -ENOMEM. */
int control_log_add(struct control_log *log, const struct control_log_entry *entry);

/* Returns the entry with this decision; NULL: no longer stored. */
struct control_log_entry *control_log_find(struct control_log *log, uint64_t decision);

/* Returns the i-th newest entry, from 0; NULL: there are no more. */
const struct control_log_entry *control_log_newest(const struct control_log *log, uint64_t i);
