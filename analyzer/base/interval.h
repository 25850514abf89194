/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Growing lists of half-open time intervals. A `tidy` list is sorted, without overlaps or gaps of zero
 * length.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
	uint64_t begin_ns, end_ns;
};

struct interval_list {
	struct interval *items;
	size_t n, n_allocated;
};

void interval_list_free(struct interval_list *list);

/* Appends the interval, unless it is empty. -ENOMEM. */
int interval_list_add(struct interval_list *list, uint64_t begin_ns, uint64_t end_ns);

/* Appends all of `more`. -ENOMEM. */
int interval_list_append(struct interval_list *list, const struct interval_list *more);

/* Sorts the intervals, and merges those that overlap or touch. */
void interval_list_tidy(struct interval_list *list);

/* Removes the intervals in `holes` from `list`. Both must be tidy, and the result is tidy. -ENOMEM. */
int interval_list_subtract(struct interval_list *list, const struct interval_list *holes);

/* Returns the ns of [begin_ns, end_ns) that a tidy list covers. */
uint64_t interval_list_cover(const struct interval_list *list, uint64_t begin_ns, uint64_t end_ns);

/* Returns the index of the first interval of a tidy list that ends after at_ns; list->n: none. */
size_t interval_list_from(const struct interval_list *list, uint64_t at_ns);
