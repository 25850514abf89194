/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Searches sorted arrays, and compares numbers for qsort() and bsearch(). */

#include <stddef.h>
#include <stdint.h>

/*
 * Counts how many of n sorted items lie before some point. is_before is an expression of the index i, true
 * for the first items and false for all others. The result is also the index of the first item at or after
 * the point, or n if there is none.
 *
 *	sorted_count(n_steps, i, steps[i].end_ns <= at_ns)	steps that ended by then
 */
/* NOLINTBEGIN(bugprone-macro-parentheses): i is a name that the macro declares. */
#define sorted_count(n, i, is_before)                                                                        \
	({                                                                                                   \
		size_t low_ = 0, high_ = (n);                                                                \
                                                                                                             \
		while (low_ < high_) {                                                                       \
			const size_t i = low_ + (high_ - low_) / 2;                                          \
                                                                                                             \
			if (is_before)                                                                       \
				low_ = i + 1;                                                                \
			else                                                                                 \
				high_ = i;                                                                   \
		}                                                                                            \
		low_;                                                                                        \
	})
/* NOLINTEND(bugprone-macro-parentheses) */

/* Returns which of n sorted items, n > 0, is the 95th percentile, by nearest rank: the first one that 95 %
 * of them do not exceed. With fewer than 20 values it is the last one. */
static inline size_t sorted_p95(size_t n)
{
	return (n * 95 + 99) / 100 - 1;
}

/* Less than, equal to or greater than 0, as a is less than, equal to or greater than b. */
#define compare_numbers(a, b) (((a) > (b)) - ((a) < (b)))

/* Compares in ascending order: numbers, or structs that begin with one. */
static inline int compare_u64(const void *left, const void *right)
{
	return compare_numbers(*(const uint64_t *)left, *(const uint64_t *)right);
}

static inline int compare_u32(const void *left, const void *right)
{
	return compare_numbers(*(const uint32_t *)left, *(const uint32_t *)right);
}

static inline int compare_int(const void *left, const void *right) /* also for pid_t */
{
	return compare_numbers(*(const int *)left, *(const int *)right);
}

static inline int compare_double(const void *left, const void *right) /* no NAN allowed */
{
	return compare_numbers(*(const double *)left, *(const double *)right);
}
