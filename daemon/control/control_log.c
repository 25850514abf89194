/* SPDX-License-Identifier: Apache-2.0 */
#include "control_log.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t held(const struct control_log *log)
{
	return log->n_added < WIRE_WHY_MAX ? log->n_added : WIRE_WHY_MAX;
}

void control_log_free(struct control_log *log)
{
	for (uint64_t i = 0; i < held(log); i++)
		free(log->entries[i].entry.sample);
	free(log->entries);
	*log = (struct control_log){0};
}

int control_log_add(struct control_log *log, const struct control_log_entry *entry)
{
	struct control_log_entry *place;

	if (!log->entries)
		log->entries = calloc(WIRE_WHY_MAX, sizeof(*log->entries));
	if (!log->entries) {
		free(entry->entry.sample);
		return -ENOMEM;
	}
	place = &log->entries[log->n_added++ % WIRE_WHY_MAX];
	free(place->entry.sample);
	*place = *entry;
	return 0;
}

const struct control_log_entry *control_log_newest(const struct control_log *log, uint64_t i)
{
	return i < held(log) ? &log->entries[(log->n_added - 1 - i) % WIRE_WHY_MAX] : NULL;
}

struct control_log_entry *control_log_find(struct control_log *log, uint64_t decision)
{
	for (uint64_t i = 0; i < held(log); i++) {
		struct control_log_entry *entry = &log->entries[(log->n_added - 1 - i) % WIRE_WHY_MAX];

		if (entry->entry.decision.id == decision)
			return entry;
	}
	return NULL;
}
