/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/array.h"
#include "lib/cleanup.h"

struct list {
	uint64_t *items;
	size_t n, n_allocated;
};

TEST(an_array_grows_and_keeps_its_items)
{
	struct list list = {0};

	for (uint64_t i = 0; i < 1000; i++) {
		assert_int_equal(array_reserve(list.items, list.n, list.n_allocated), 0);
		assert_true(list.n < list.n_allocated);
		list.items[list.n++] = i;
	}
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(list.items[i], i);
	assert_int_equal(list.n_allocated, 1024); /* doubled each time, so there are few allocations */
	free(list.items);
}

TEST(an_array_too_large_is_refused)
{
#ifdef DIESEL_SANITIZED
	skip(); /* a sanitizer ends a program that requests this much */
#endif
	volatile size_t huge = SIZE_MAX / 4; /* otherwise the compiler would notice */
	struct list list = {malloc(1), huge, huge};
	_cleanup_(freep) uint64_t *items = list.items;

	assert_int_equal(array_reserve(list.items, list.n, list.n_allocated), -ENOMEM);
	assert_ptr_equal(list.items, items);
	assert_int_equal(list.n_allocated, huge);
}
