/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <string.h>

#include "checksum.h"
#include "snapshot_map.h"

int snapshot_find(const struct snapshot *s, const char *path, size_t path_length, uint64_t *ret_sample)
{
	uint64_t hash = checksum_xxh3(path, path_length);
	uint32_t tag = (uint32_t)(hash >> 32);

	/* Bounded, because an index may have been made to be slow. */
	for (uint64_t i = 0; i < s->n_slots && i < SNAPSHOT_PROBE_MAX; i++) {
		const struct snapshot_slot *slot = &s->slots[(hash + i) & (s->n_slots - 1)];

		if (slot->sample_plus_1 == 0)
			return -ENOENT;
		if (slot->tag != tag)
			continue;
		struct path_text found = snapshot_path(s, slot->sample_plus_1 - 1);

		if (found.text && found.length == path_length && memcmp(found.text, path, path_length) == 0) {
			*ret_sample = slot->sample_plus_1 - 1;
			return 0;
		}
	}
	return -ENOENT;
}
