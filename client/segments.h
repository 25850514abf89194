/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Read-only mappings of chunk segments, found by the number that the daemon gives them.
 *
 * A segment's number is index | generation << 20: indices are dense and reused, and the generation
 * distinguishes the uses of one index. Mapping a segment unmaps the previous one with its index. The daemon
 * has released that one, so no held batch points into it. One thread at a time. An all-zero table is empty.
 */

#include <stdint.h>

struct segment_map {
	uint32_t id;
	uint32_t stamp; /* number of the last pass over a batch's segments that included this one; 0 in a new
			   one */
	uint8_t *data;  /* NULL: unused entry */
	uint64_t bytes;
};

struct segment_table {
	struct segment_map *maps;
	uint32_t n_maps;
	uint32_t stamp;
};

/* Returns the mapping of a segment; NULL: not mapped. Valid until the next segment_table_map(). */
struct segment_map *segment_table_find(const struct segment_table *table, uint32_t segment);

/* Maps `bytes` of fd, which stays the caller's. Negative errno. */
int segment_table_map(struct segment_table *table, uint32_t segment, int fd, uint64_t bytes,
		      const struct segment_map **ret);

void segment_table_free(struct segment_table *table);
