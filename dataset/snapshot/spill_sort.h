/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sorts more entries than fit in memory. Entries beyond the budget are written, in sorted runs, to an unnamed
 * file, which disappears when the sort is freed or its process dies. Add all entries, then take them out in
 * order. Equal entries come in the order in which they were added. Not thread-safe.
 */

#include <stddef.h>
#include <stdint.h>

struct spill_sort;

struct spill_entry {
	uint64_t key;
	const void *data; /* borrowed until the next call */
	uint32_t bytes;
};

/* Compares the data of two entries with equal keys. */
typedef int spill_compare(const void *a, const void *b);

enum {
	SPILL_SORT_END = 0,
	SPILL_SORT_ENTRY = 1,
};

/* Creates a sort. compare NULL: entries are sorted only by key. dir_fd: the folder for the file; borrowed.
 * -ENOMEM. */
int spill_sort_new(int dir_fd, size_t budget, spill_compare *compare, struct spill_sort **ret);
void spill_sort_free(struct spill_sort *s);

/* Adds an entry, whose data is copied. -ENOMEM, and errors of writing the file. */
int spill_sort_add(struct spill_sort *s, uint64_t key, const void *data, uint32_t bytes);
/* Returns the next entry in order. After the first call, no more entries can be added. SPILL_SORT_ENTRY,
 * SPILL_SORT_END; -ENOMEM, -errno of the file. */
int spill_sort_next(struct spill_sort *s, struct spill_entry *ret);
