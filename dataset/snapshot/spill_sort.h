/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sorts more than fits in memory: what exceeds the budget is written, in sorted runs, to a file without a
 * name, which is gone when the sort is freed or its process dies. Add all entries, then take them out in
 * order. Of equal entries the one that was added first comes first. Not thread-safe.
 */

#include <stddef.h>
#include <stdint.h>

struct spill_sort;

struct spill_entry {
	uint64_t key;
	const void *data; /* borrowed: until the next call */
	uint32_t bytes;
};

/* Compares the data of two entries with equal keys. */
typedef int spill_compare(const void *a, const void *b);

enum {
	SPILL_SORT_END = 0,
	SPILL_SORT_ENTRY = 1,
};

/* compare NULL: by key alone. dir_fd: where the file is; borrowed. -ENOMEM. */
int spill_sort_new(int dir_fd, size_t budget, spill_compare *compare, struct spill_sort **ret);
void spill_sort_free(struct spill_sort *s);

/* Copies the data. -ENOMEM, and what writing a file can return. */
int spill_sort_add(struct spill_sort *s, uint64_t key, const void *data, uint32_t bytes);
/* The first call ends the adding. SPILL_SORT_ENTRY, SPILL_SORT_END; -ENOMEM, -errno of the file. */
int spill_sort_next(struct spill_sort *s, struct spill_entry *ret);
