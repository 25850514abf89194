/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small arithmetic on times in ns. */

#include <stdint.h>

static inline uint64_t min_ns(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* For qsort() of uint64_t, ascending. */
static inline int time_compare(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}
