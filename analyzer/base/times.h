/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small arithmetic on times in ns. */

#include <stddef.h>
#include <stdint.h>

static inline uint64_t min_ns(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* How many of n items, sorted by the uint64_t that lies offset bytes into each, have it at or before at_ns.
 */
static inline size_t times_until_at(const void *items, size_t n, size_t item_bytes, size_t offset,
				    uint64_t at_ns)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const char *item = (const char *)items + middle * item_bytes;

		if (*(const uint64_t *)(const void *)(item + offset) <= at_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The same of an array of structs by one of their members: also the index of the first one after at_ns. */
#define times_until(items, n, member, at_ns)                                                                 \
	times_until_at(items, n, sizeof(*(items)),                                                           \
		       _Generic((items)->member, uint64_t                                                    \
				: offsetof(__typeof__(*(items)), member)),                                   \
		       at_ns)

/* For qsort() of uint64_t, ascending. */
static inline int time_compare(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}
