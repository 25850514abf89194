/* SPDX-License-Identifier: Apache-2.0 */
#include "phases.h"

#include <stdlib.h>
#include <string.h>

#include "bpf/collector.h"
#include "bpf/shared/phase_shared.h"
#include "lib/hash.h"

#define NAMES_MAX 2048
#define SLOTS     4096 /* slots of the hash table: at most half full */

struct phase_name {
	uint64_t key; /* 0: free */
	char text[PHASE_NAME_MAX];
};

struct phase_names {
	size_t n, n_noted;
	uint16_t order[NAMES_MAX]; /* slots, in order of arrival */
	struct phase_name slots[SLOTS];
};

struct phase_names *phase_names_new(void)
{
	return calloc(1, sizeof(struct phase_names));
}

void phase_names_free(struct phase_names *names)
{
	free(names);
}

uint64_t phase_key(const char *name, size_t length)
{
	uint64_t key = hash_bytes(HASH_START, name, length) & ~PHASE_COOKIE_END;

	return key ? key : 1;
}

void phase_names_add(struct phase_names *names, const char *name, size_t length)
{
	uint64_t key = phase_key(name, length);
	size_t at = key % SLOTS;

	while (names->slots[at].key && names->slots[at].key != key)
		at = (at + 1) % SLOTS;
	if (names->slots[at].key || names->n == NAMES_MAX || length >= PHASE_NAME_MAX)
		return;
	names->slots[at].key = key;
	memcpy(names->slots[at].text, name, length);
	names->order[names->n++] = (uint16_t)at;
}

struct event phase_names_resolve(struct phase_names *names, const struct phase_record *record)
{
	size_t length = strnlen(record->name, sizeof(record->name) - 1);
	struct event event = record->event;

	if (length) {
		event.phase.value = phase_key(record->name, length);
		phase_names_add(names, record->name, length);
	}
	return event;
}

void phase_names_note(struct phase_names *names, const struct collector_sink *sink)
{
	for (; names->n_noted < names->n; names->n_noted++) {
		const struct phase_name *name = &names->slots[names->order[names->n_noted]];

		sink->metadata(sink->user, PHASE_METADATA, name->key, name->text, strlen(name->text));
	}
}
