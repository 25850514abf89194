/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Arrays that grow by doubling. Of n_allocated items n are used; all three variables start as 0. */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define ARRAY_FIRST 64 /* items */

/*
 * Makes room for one more item. 0, or -ENOMEM, which leaves the array as it was.
 *
 *	if (array_room(list->items, list->n, list->n_allocated) < 0)
 *		return -ENOMEM;
 *	list->items[list->n++] = item;
 */
#define array_room(items, n, n_allocated)                                                                    \
	({                                                                                                   \
		int room_ = 0;                                                                               \
                                                                                                             \
		if ((n) == (n_allocated)) {                                                                  \
			size_t wanted_ = (n_allocated) ? 2 * (size_t)(n_allocated) : ARRAY_FIRST;            \
			__typeof__(items) grown_ = reallocarray((items), wanted_, sizeof(*(items)));         \
                                                                                                             \
			if (grown_) {                                                                        \
				(items) = grown_;                                                            \
				(n_allocated) = (__typeof__(n_allocated))wanted_;                            \
			} else {                                                                             \
				room_ = -ENOMEM;                                                             \
			}                                                                                    \
		}                                                                                            \
		room_;                                                                                       \
	})
