/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Searching what is sorted, and comparing numbers for qsort() and bsearch(). */

#include <stddef.h>
#include <stdint.h>

/*
 * How many of n things in order are before some point: of each thing, `is_before`, an expression of its index
 *i, says so, which has to be true of the first ones and false of all others. So it is also the index of the
 *first one that is not before it; n: there is none.
 *
 *	sorted_count(n_steps, i, steps[i].end_ns <= at_ns)	steps that ended by then
 */
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

/* Less than, equal to, greater than 0, as a is to b. */
#define compare_numbers(a, b) (((a) > (b)) - ((a) < (b)))

/* Ascending; of numbers, or of structs that begin with one. */
static inline int compare_u64(const void *left, const void *right)
{
	return compare_numbers(*(const uint64_t *)left, *(const uint64_t *)right);
}

static inline int compare_u32(const void *left, const void *right)
{
	return compare_numbers(*(const uint32_t *)left, *(const uint32_t *)right);
}

static inline int compare_int(const void *left, const void *right) /* a pid_t, too */
{
	return compare_numbers(*(const int *)left, *(const int *)right);
}

static inline int compare_double(const void *left, const void *right) /* without NAN */
{
	return compare_numbers(*(const double *)left, *(const double *)right);
}
