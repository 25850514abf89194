/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Data waits of a scene. */

#include "tests/unit/analyzer/scene.h"

#include "analyzer/waits/waits.h"

static const struct interval_list none;

/* Finds the data waits, and checks the invariants of all waits. */
static inline struct data_waits waits_of(const struct scene *scene)
{
	struct data_waits waits;

	assert_int_equal(data_waits_find(scene->timeline, &scene->roles, &none, &waits), 0);
	for (size_t i = 0; i < waits.n; i++) {
		assert_true(waits.items[i].begin_ns < waits.items[i].end_ns);
		assert_true(waits.items[i].ready_ns <= waits.items[i].end_ns);
		assert_true(!i || waits.items[i].begin_ns >= waits.items[i - 1].end_ns);
	}
	return waits;
}

static inline void check_wait(const struct data_waits *waits, size_t i, uint64_t begin_tick,
			      uint64_t end_tick)
{
	assert_true(i < waits->n);
	assert_int_equal(waits->items[i].begin_ns, at(begin_tick));
	assert_int_equal(waits->items[i].end_ns, at(end_tick));
}
