/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the accessors, the tree and the verifier of one mapped snapshot share. */

#include <stdatomic.h>

#include "path_order.h"
#include "snapshot_format.h"

struct snapshot {
	const unsigned char *map;
	uint64_t map_bytes;
	char *origin;
	struct snapshot_info info;
	const struct snapshot_header *header;
	const struct snapshot_chunk_entry *chunks;
	const struct snapshot_record *records;
	const struct snapshot_slot *slots;
	uint64_t n_slots; /* a power of two */
	const uint32_t *tree;
	const char *paths;
	uint64_t paths_bytes;
	const struct snapshot_class *classes;
	const struct digest *digests; /* NULL: none */
	atomic_bool is_checked;       /* snapshot_check_lookups() has passed */
};

/* The path of a sample; its text is NULL when the number or the record is out of bounds. */
static inline struct path_text snapshot_path(const struct snapshot *s, uint64_t sample)
{
	if (sample >= s->info.n_samples)
		return (struct path_text){0};
	const struct snapshot_record *r = &s->records[sample];

	if (r->path_offset > s->paths_bytes || r->path_length > s->paths_bytes - r->path_offset)
		return (struct path_text){0};
	return (struct path_text){s->paths + r->path_offset, r->path_length};
}

/* Returns true if the record of a sample < n_samples agrees with its chunk's entry and with the header. */
bool snapshot_record_fits(const struct snapshot *s, uint64_t sample);

#define SNAPSHOT_DAMAGED "run `dieselctl snapshot` to rebuild it"
