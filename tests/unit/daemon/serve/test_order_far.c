/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead of its head an order lists chunks, if the dataset evicts them. */
#include "tests/support.h"

#include <stdlib.h>

#include "daemon/serve/order.h"

#define N_CHUNKS 40
#define OWN      4 /* chunks of a window */

struct fixture {
	struct order o;
	struct cached_dataset d;
	struct cached_chunk chunks[N_CHUNKS];
	struct order_now now;
	uint64_t base; /* head's first chunk */
};

/* Makes an order of chunks of 100 bytes and one sample, in windows of 4, with space for 20. All are in
 * memory. Storage takes 100 ns per chunk. */
static void begin(struct fixture *f, uint32_t batch)
{
	*f = (struct fixture){
	    .d = {.segment_bytes = 100, .held_bytes = 2000, .chunks = f->chunks, .evicts = true},
	    .o = {.dataset = &f->d,
		  .request = {.world = 1, .batch = batch, .stride = 1, .window_chunks = OWN},
		  .n_samples = N_CHUNKS,
		  .n_chunks = N_CHUNKS,
		  .n_batches = N_CHUNKS / batch,
		  .batch = batch,
		  .prefetch_chunks = 4,
		  .has_head = true}};
	f->d.info.n_chunks = N_CHUNKS;
	stage_mean_add(&f->d.pace.reading, 100, 100);
	f->o.chunk_samples = calloc(N_CHUNKS, sizeof(*f->o.chunk_samples));
	f->o.windows_of_head = calloc(batch, sizeof(uint64_t));
	f->o.windows_of_next = calloc(batch, sizeof(uint64_t));
	f->o.lanes = calloc(1, sizeof(*f->o.lanes));
	assert_true(f->o.chunk_samples && f->o.windows_of_head && f->o.windows_of_next && f->o.lanes);
	for (uint32_t i = 0; i < N_CHUNKS; i++) {
		f->o.chunk_samples[i] = 1;
		f->chunks[i].state = CHUNK_READY;
	}
}

/* Returns the number of listed chunks with this batch as head. */
static uint32_t look(struct fixture *f, uint64_t index)
{
	f->base = index * f->o.batch;
	f->o.head.index = index;
	f->o.ahead.n = 0;
	order_look_ahead(&f->o, &f->now);
	for (uint32_t i = 0; i < f->o.ahead.n; i++)
		assert_int_equal(f->o.ahead.chunks[i], (f->base + i) % N_CHUNKS);
	return f->o.ahead.n;
}

/* Uses each chunk for this many ns, of which it waits for storage for waits_ns. Then the fourth window is
 * head's. */
static void use(struct fixture *f, uint64_t ns, uint64_t waits_ns)
{
	for (uint64_t i = 1; i <= 4; i++) {
		f->now = (struct order_now){.at_ns = 1000 + i * OWN * ns, .waited_ns = i * OWN * waits_ns};
		(void)look(f, i - 1);
	}
}

/* The chunks first <= i < end after head's first one are not in memory. */
static void lose(struct fixture *f, uint64_t first, uint64_t end)
{
	for (uint64_t i = f->base + first; i < f->base + end; i++)
		f->chunks[i].state = CHUNK_ABSENT;
}

TEST(no_further_than_needed)
{
	static struct fixture f;

	begin(&f, OWN);
	lose(&f, OWN + 8, OWN + 16);
	/* The pace of use is not known yet. */
	assert_int_equal(look(&f, 0), OWN + 4);
	order_end(&f.o);
	/* Eight chunks must come within 12 visits, and a read takes as long as a visit. */
	begin(&f, OWN);
	use(&f, 100, 0);
	lose(&f, OWN + 8, OWN + 16);
	assert_int_equal(look(&f, 3), OWN + 4);
	order_end(&f.o);
	/* At twice the pace the reads are late. Two are read in this window, and one in addition. */
	begin(&f, OWN);
	use(&f, 50, 0);
	lose(&f, OWN + 8, OWN + 16);
	for (uint64_t i = f.base + OWN + 8; i < f.base + OWN + 16; i += 3)
		f.chunks[i].state = CHUNK_READING;
	assert_int_equal(look(&f, 3), OWN + 8 + 3);
	/* No chunk is missing. */
	for (uint32_t i = 0; i < N_CHUNKS; i++)
		f.chunks[i].state = CHUNK_READY;
	assert_int_equal(look(&f, 3), OWN + 4);
	order_end(&f.o);
}

TEST(most_of_memory_is_in_reach)
{
	static struct fixture f;

	begin(&f, OWN);
	use(&f, 5, 0);
	lose(&f, OWN + 16, OWN + 17);
	assert_int_equal(look(&f, 3), OWN + 4);
	lose(&f, OWN + 15, OWN + 16);
	assert_int_equal(look(&f, 3), OWN + 16);
	order_end(&f.o);
}

TEST(waits_are_no_use)
{
	static struct fixture f;

	begin(&f, OWN);
	use(&f, 100, 50);
	lose(&f, OWN + 8, OWN + 16);
	assert_int_equal(look(&f, 3), OWN + 8 + 3);
	order_end(&f.o);
}

TEST(what_is_said_may_be_anything)
{
	static struct fixture f;

	begin(&f, OWN);
	srand(1);
	for (int i = 0; i < 10000; i++) {
		f.now = (struct order_now){.at_ns = (uint64_t)i * 1000,
					   .waited_ns = (uint64_t)rand() << (rand() % 32)};
		f.o.head.epoch = (uint64_t)rand() % 3;
		f.chunks[rand() % N_CHUNKS].state = rand() % 2 ? CHUNK_ABSENT : CHUNK_READY;
		assert_in_range(look(&f, (uint64_t)rand() % f.o.n_batches), OWN + 4, OWN + 16);
	}
	order_end(&f.o);
}

TEST(few_staged_chunks_are_asked_for_at_once)
{
	static struct fixture f;

	begin(&f, OWN);
	use(&f, 50, 0);
	lose(&f, OWN + 8, OWN + 16);
	assert_true(look(&f, 3) > OWN + 4);
	f.d.pace.from_staging = true;
	assert_int_equal(look(&f, 3), OWN + 4);
	f.d.pace.staging.is_off = true;
	assert_true(look(&f, 3) > OWN + 4);
	order_end(&f.o);
}

TEST(the_knob_alone_reaches_half_of_memory)
{
	static struct fixture f;

	begin(&f, OWN);
	f.o.prefetch_chunks = 64;
	assert_int_equal(look(&f, 0), 10);
	f.o.prefetch_chunks = 0;
	assert_int_equal(look(&f, 0), OWN);
	order_end(&f.o);
	begin(&f, 3 * OWN);
	f.o.prefetch_chunks = 64;
	assert_int_equal(look(&f, 0), 3 * OWN);
	order_end(&f.o);
}
