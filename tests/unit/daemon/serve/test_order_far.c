/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <stdlib.h>

#include "daemon/serve/order.h"
#include "lib/cleanup.h"

#define N_CHUNKS 40
#define OWN      4

struct fixture {
	struct order o;
	struct cached_dataset d;
	struct cached_chunk chunks[N_CHUNKS];
	uint32_t ahead[N_CHUNKS];
};

/* Makes an order of chunks of 100 bytes in windows of 4, with space for 20. All are in memory. Storage takes
 * 100 ns per chunk. */
static struct fixture *make(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->d = (struct cached_dataset){.segment_bytes = 100, .held_bytes = 2000, .chunks = f->chunks};
	stage_mean_add(&f->d.pace.reading, 100, 100);
	f->o = (struct order){.dataset = &f->d,
			      .ahead = {.chunks = f->ahead, .n = OWN + 16},
			      .n_chunks = N_CHUNKS,
			      .prefetch_chunks = 4};
	f->o.request.window_chunks = OWN;
	for (uint32_t i = 0; i < N_CHUNKS; i++) {
		f->ahead[i] = i;
		f->chunks[i].state = CHUNK_READY;
	}
	return f;
}

/* Uses each chunk for this many ns, of which it waits for storage for waits_ns. */
static void use(struct fixture *f, uint64_t ns, uint64_t waits_ns)
{
	for (uint64_t i = 1; i <= 4; i++) {
		order_note_pace(
		    &f->o, i * OWN,
		    &(struct order_now){.at_ns = 1000 + i * OWN * ns, .waited_ns = i * OWN * waits_ns});
	}
}

static void test_no_further_than_needed(void **state)
{
	struct fixture *f = make();

	assert_int_equal(order_far_most(&f->o), 16);
	for (uint32_t i = OWN + 8; i < OWN + 16; i++)
		f->chunks[i].state = CHUNK_ABSENT;
	/* The pace of use is not known yet. */
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN + 4);
	/* Eight chunks must come within 12 visits, and a read takes as long as a visit. */
	use(f, 100, 0);
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN + 4);
	/* At twice the pace the reads are late. Two are read in this window, and one in addition. */
	f = (free(f), make());
	for (uint32_t i = OWN + 8; i < OWN + 16; i++)
		f->chunks[i].state = i % 3 ? CHUNK_ABSENT : CHUNK_READING;
	use(f, 50, 0);
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN + 8 + 3);
	/* No chunk is missing. */
	for (uint32_t i = 0; i < N_CHUNKS; i++)
		f->chunks[i].state = CHUNK_READY;
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN + 4);
	free(f);
}

static void test_waits_are_no_use(void **state)
{
	_cleanup_(freep) struct fixture *f = make();

	for (uint32_t i = OWN + 8; i < OWN + 16; i++)
		f->chunks[i].state = CHUNK_ABSENT;
	use(f, 100, 50);
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN + 8 + 3);
}

static void test_what_is_said_may_be_anything(void **state)
{
	_cleanup_(freep) struct fixture *f = make();

	srand(1);
	for (int i = 0; i < 10000; i++) {
		const struct order_now now = {.at_ns = (uint64_t)i * 1000,
					      .waited_ns = (uint64_t)rand() << (rand() % 32)};
		uint32_t far;

		order_note_pace(&f->o, (uint64_t)rand() % 1000, &now);
		f->chunks[rand() % N_CHUNKS].state = rand() % 2 ? CHUNK_ABSENT : CHUNK_READY;
		far = order_far_ahead(&f->o, OWN);
		assert_in_range(far, OWN + 4, f->o.ahead.n);
	}
}

static void test_few_staged_chunks_are_asked_for_at_once(void **state)
{
	_cleanup_(freep) struct fixture *f = make();

	for (uint32_t i = OWN + 8; i < OWN + 16; i++)
		f->chunks[i].state = CHUNK_ABSENT;
	use(f, 50, 0);
	assert_true(order_far_ahead(&f->o, OWN) > OWN + 4);
	f->o.dataset->pace.from_staging = true;
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN + 4);
	f->o.dataset->pace.staging.is_off = true;
	assert_true(order_far_ahead(&f->o, OWN) > OWN + 4);
}

static void test_the_knob_alone_reaches_half_of_memory(void **state)
{
	_cleanup_(freep) struct fixture *f = make();

	f->o.prefetch_chunks = 64;
	assert_int_equal(order_far_most(&f->o), 64);
	assert_int_equal(order_far_ahead(&f->o, OWN), 10);
	assert_int_equal(order_far_ahead(&f->o, 12), 12);
	f->o.prefetch_chunks = 0;
	assert_int_equal(order_far_ahead(&f->o, OWN), OWN);
}

UNIT_TESTS(cmocka_unit_test(test_no_further_than_needed), cmocka_unit_test(test_waits_are_no_use),
	   cmocka_unit_test(test_what_is_said_may_be_anything),
	   cmocka_unit_test(test_few_staged_chunks_are_asked_for_at_once),
	   cmocka_unit_test(test_the_knob_alone_reaches_half_of_memory))
