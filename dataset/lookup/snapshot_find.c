/* SPDX-License-Identifier: Apache-2.0 */
/* Samples by their paths: the hash index. */
#include "dataset/snapshot.h"

#include <errno.h>
#include <string.h>

#include "checksum.h"
#include "snapshot_map.h"

static bool is_path_of(const struct snapshot *s, uint64_t sample, const char *path, size_t path_length)
{
	struct path_text found = snapshot_path(s, sample);

	return found.text && found.length == path_length && memcmp(found.text, path, path_length) == 0;
}

static int find_in_slots(const struct snapshot *s, const char *path, size_t path_length, uint64_t hash,
			 uint64_t *ret_sample)
{
	uint32_t tag = (uint32_t)(hash >> 32);

	/* Bounded, because an index may have been made to be slow. */
	for (uint64_t i = 0; i < s->n_old_slots && i < SNAPSHOT_OLD_PROBE_MAX; i++) {
		const struct snapshot_old_slot *slot = &s->old_slots[(hash + i) & (s->n_old_slots - 1)];

		if (slot->sample_plus_1 == 0)
			return -ENOENT;
		if (slot->tag == tag && is_path_of(s, slot->sample_plus_1 - 1, path, path_length)) {
			*ret_sample = slot->sample_plus_1 - 1;
			return 0;
		}
	}
	return -ENOENT;
}

/* Which of the first n tags are this one: a bit each. */
static uint32_t equal_tags(const struct snapshot_bucket *b, uint32_t n, uint8_t tag)
{
	uint32_t equal = 0;

	for (uint32_t i = 0; i < SNAPSHOT_BUCKET_SLOTS; i++)
		equal |= (uint32_t)(b->tags[i] == tag) << i;
	return equal & ((1u << n) - 1);
}

int snapshot_find(const struct snapshot *s, const char *path, size_t path_length, uint64_t *ret_sample)
{
	uint64_t hash = checksum_xxh3(path, path_length), first, last;

	if (s->is_old)
		return find_in_slots(s, path, path_length, hash, ret_sample);
	first = snapshot_bucket_of(hash, s->header.n_buckets);
	last = first + SNAPSHOT_PROBE_MAX < s->n_all_buckets ? first + SNAPSHOT_PROBE_MAX : s->n_all_buckets;
	for (uint64_t i = first; i < last; i++) {
		const struct snapshot_bucket *b = &s->buckets[i];
		uint32_t n = b->n_taken < SNAPSHOT_BUCKET_SLOTS ? b->n_taken : SNAPSHOT_BUCKET_SLOTS;

		for (uint32_t equal = equal_tags(b, n, (uint8_t)hash); equal; equal &= equal - 1) {
			uint32_t sample = b->samples[__builtin_ctz(equal)];

			if (is_path_of(s, sample, path, path_length)) {
				*ret_sample = sample;
				return 0;
			}
		}
		if (n < SNAPSHOT_BUCKET_SLOTS)
			break;
	}
	return -ENOENT;
}
