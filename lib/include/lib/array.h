/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Arrays that grow by doubling. The first n of n_allocated items are used. All three variables start as 0. */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define ARRAY_FIRST 64 /* items */

/*
 * Grows the array if one more item does not fit. 0, or -ENOMEM, which leaves the array as it was.
 *
 *	if (array_reserve(list->items, list->n, list->n_allocated) < 0)
 *		return -ENOMEM;
 *	list->items[list->n++] = item;
 */
#define array_reserve(items, n, n_allocated)                                                                 \
	({                                                                                                   \
		int space_ = 0;                                                                              \
                                                                                                             \
		if ((n) == (n_allocated)) {                                                                  \
			size_t wanted_ = (n_allocated) ? 2 * (size_t)(n_allocated) : ARRAY_FIRST;            \
			__typeof__(items) grown_ = reallocarray((items), wanted_, sizeof(*(items)));         \
                                                                                                             \
			if (grown_) {                                                                        \
				(items) = grown_;                                                            \
				(n_allocated) = (__typeof__(n_allocated))wanted_;                            \
			} else {                                                                             \
				space_ = -ENOMEM;                                                            \
			}                                                                                    \
		}                                                                                            \
		space_;                                                                                      \
	})
