/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded copies in memory: the index compared with a plain table, extents, and the space that the cache
 * leaves for them. */
#include "tests/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/decoded.h"
#include "daemon/node/pool.h"

#define MIB       (UINT64_C(1) << 20)
#define N_SAMPLES 3000

struct fixture {
	uv_loop_t loop;
	struct cache cache;
	struct cached_dataset dataset;
	uint64_t giant_bytes[1];
};

static void on_change(void *user)
{
	(void)user;
}

static void setup(struct fixture *f, uint64_t cache_bytes)
{
	memset(f, 0, sizeof(*f));
	assert_int_equal(uv_loop_init(&f->loop), 0);
	cache_init(&f->cache, cache_bytes);
	assert_int_equal(pool_new(&f->loop, 1, &f->cache.pool), 0);
	f->cache.handler.changed = on_change;
	f->cache.datasets = &f->dataset;
	f->dataset.giants.bytes = f->giant_bytes;
	f->dataset.copy.original_fd = f->dataset.copy.fd = -1;
	f->dataset.n_sessions = f->dataset.refs = 1;
}

static void teardown(struct fixture *f)
{
	decoded_drop_all(&f->cache, &f->dataset);
	assert_int_equal(f->cache.decoded_cache.bytes, 0);
	assert_int_equal(f->cache.decoded_cache.n_extents, 0);
	while (f->cache.releasing_bytes > 0)
		uv_run(&f->loop, UV_RUN_ONCE);
	f->cache.datasets = NULL;
	pool_free(f->cache.pool);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static struct decoded_cache *open_decoded(struct fixture *f, uint32_t uid, uint64_t asked_bytes)
{
	const struct recipe key = {.kind = RECIPE_IMAGE};
	struct decoded_cache *decoded_cache = decoded_open(&f->dataset, uid, "", &key);

	assert_non_null(decoded_cache);
	decoded_cache->asked_bytes = asked_bytes;
	cache_fit(&f->cache);
	return decoded_cache;
}

/* Fills memory with decoded copies of this size, for samples from `first` on. Returns how many fit. */
static uint32_t fill(struct fixture *f, struct decoded_cache *decoded_cache, uint64_t first, uint32_t n,
		     uint32_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		struct decoded_extent *e = decoded_grant(&f->cache, decoded_cache);

		if (!e)
			return i;
		if (e->memory.bytes - e->used_bytes < bytes) {
			decoded_take_back(&f->cache, e, true);
			i--;
			continue;
		}
		memset(e->memory.data + e->used_bytes, (int)(first + i), bytes);
		decoded_add(&f->cache, e, first + i, bytes);
		decoded_take_back(&f->cache, e, false);
	}
	return n;
}

/* Asserts that each sample that is found has its own bytes. Returns how many are found. */
static uint32_t count(const struct decoded_cache *decoded_cache, uint32_t n)
{
	uint32_t found = 0;

	for (uint64_t sample = 0; sample < n; sample++) {
		uint32_t offset = UINT32_MAX;
		const struct decoded_extent *e = decoded_find(decoded_cache, sample, &offset);

		if (!e)
			continue;
		assert_int_equal(e->memory.data[offset], (uint8_t)sample);
		found++;
	}
	return found;
}

TEST(what_is_entered_is_found)
{
	struct fixture f;
	uint32_t n, before;

	setup(&f, 64 * MIB);
	struct decoded_cache *decoded_cache = open_decoded(&f, 1, 16 * MIB);
	assert_int_equal(count(decoded_cache, N_SAMPLES), 0);
	n = fill(&f, decoded_cache, 0, N_SAMPLES, 10000);
	assert_true(n > 1500 && n < 1700); /* 16 MiB, less the index */
	assert_int_equal(count(decoded_cache, N_SAMPLES), n);
	assert_int_equal(decoded_cache->n_entries, n);
	assert_true(decoded_cache->bytes <= 16 * MIB && f.cache.decoded_cache.bytes == decoded_cache->bytes);
	/* Entries are dropped one by one, and the rest are still found. */
	while (before = count(decoded_cache, N_SAMPLES), decoded_drop_one(&f.cache, decoded_cache)) {
		assert_true(count(decoded_cache, N_SAMPLES) < before);
		assert_int_equal(count(decoded_cache, N_SAMPLES), decoded_cache->n_entries);
	}
	assert_int_equal(decoded_cache->bytes, 0);
	assert_int_equal(decoded_cache->used_bytes, 0);
	decoded_close(decoded_cache);
	teardown(&f);
}

TEST(a_sample_has_one_decoded)
{
	struct fixture f;
	uint32_t offset;

	setup(&f, 64 * MIB);
	struct decoded_cache *decoded_cache = open_decoded(&f, 1, 16 * MIB);
	struct decoded_extent *e = decoded_grant(&f.cache, decoded_cache);
	decoded_add(&f.cache, e, 7, 100);
	decoded_add(&f.cache, e, 7, 100);
	decoded_add(&f.cache, e, 8, 1);
	assert_ptr_equal(decoded_find(decoded_cache, 7, &offset), e);
	assert_int_equal(offset, 0);
	assert_ptr_equal(decoded_find(decoded_cache, 8, &offset), e);
	assert_int_equal(offset, 256); /* after both */
	assert_int_equal(decoded_cache->n_entries, 2);
	decoded_take_back(&f.cache, e, false);
	decoded_close(decoded_cache);
	teardown(&f);
}

TEST(two_decoders_do_not_share_an_extent)
{
	struct decoded_extent *a, *b;
	struct fixture f;

	setup(&f, 64 * MIB);
	struct decoded_cache *decoded_cache = open_decoded(&f, 1, 16 * MIB);
	a = decoded_grant(&f.cache, decoded_cache);
	b = decoded_grant(&f.cache, decoded_cache);
	assert_non_null(a);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	decoded_take_back(&f.cache, a, false);
	assert_ptr_equal(decoded_grant(&f.cache, decoded_cache), a);
	decoded_take_back(&f.cache, a, false);
	decoded_take_back(&f.cache, b, false);
	decoded_close(decoded_cache);
	teardown(&f);
}

/* An extent is evicted while a decoder writes to it. The result is dropped, and the memory is released when
 * the decoder is done. */
TEST(an_extent_in_use_is_given_up)
{
	struct fixture f;
	uint32_t offset;

	setup(&f, 64 * MIB);
	struct decoded_cache *decoded_cache = open_decoded(&f, 1, 16 * MIB);
	struct decoded_extent *e = decoded_grant(&f.cache, decoded_cache);
	decoded_add(&f.cache, e, 1, 100);
	decoded_pin(e);
	decoded_cache->asked_bytes = 0;
	cache_fit(&f.cache);
	assert_int_equal(f.cache.decoded_cache.bytes, 0);
	assert_int_equal(f.cache.releasing_bytes, e->memory.bytes);
	assert_null(decoded_find(decoded_cache, 1, &offset));
	memset(e->memory.data, 1, 100); /* the memory still exists */
	decoded_add(&f.cache, e, 2, 100);
	assert_null(decoded_find(decoded_cache, 2, &offset));
	decoded_take_back(&f.cache, e, false);
	decoded_unpin(&f.cache, e);
	assert_null(decoded_grant(&f.cache, decoded_cache));
	decoded_close(decoded_cache);
	teardown(&f);
}

TEST(users_and_recipes_have_their_own)
{
	const struct recipe other = {.kind = RECIPE_IMAGE, .width = 5};
	struct decoded_cache *mine, *theirs, *again, *another;
	struct fixture f;

	setup(&f, 64 * MIB);
	mine = open_decoded(&f, 1, 8 * MIB);
	theirs = open_decoded(&f, 2, 8 * MIB);
	assert_ptr_not_equal(mine, theirs);
	again = open_decoded(&f, 1, 8 * MIB);
	assert_ptr_equal(mine, again);
	another = decoded_open(&f.dataset, 1, "", &other);
	assert_ptr_not_equal(mine, another);
	assert_int_equal(fill(&f, mine, 0, 10, 1000), 10);
	assert_int_equal(count(mine, 10), 10);
	assert_int_equal(count(theirs, 10) + count(another, 10), 0);
	/* An empty cache goes with its last session. A cache that holds something stays. */
	decoded_close(another);
	decoded_close(theirs);
	decoded_close(again);
	decoded_close(mine);
	assert_ptr_equal(f.dataset.decoded_cache, mine);
	assert_null(mine->next);
	teardown(&f);
}

/* All sessions' needs and read-ahead come first. If the requests exceed the rest, it is shared. */
TEST(what_is_left_to_them)
{
	struct decoded_cache *one, *two;
	struct fixture f;

	setup(&f, 64 * MIB);
	f.dataset.all_bytes = 40 * MIB;
	f.dataset.need_bytes = 24 * MIB;
	one = open_decoded(&f, 1, 30 * MIB);
	assert_int_equal(one->limit_bytes, 30 * MIB);
	two = open_decoded(&f, 2, 90 * MIB);
	assert_int_equal(f.cache.decoded_cache.limit_bytes, 40 * MIB);
	assert_int_equal(one->limit_bytes, 10 * MIB);
	assert_int_equal(two->limit_bytes, 30 * MIB);
	assert_int_equal(fill(&f, two, 0, 1000, MIB - 64), 29); /* less the index */
	/* Sessions that need more memory take it back. */
	assert_true(cache_make_space(&f.cache, 60 * MIB));
	assert_true(f.cache.decoded_cache.bytes <= 4 * MIB);
	/* So does a shortage of memory. */
	assert_true(fill(&f, one, 0, 3, MIB - 64) > 0);
	cache_limit(&f.cache, 0, UINT64_MAX);
	assert_int_equal(f.cache.decoded_cache.bytes, 0);
	assert_null(decoded_grant(&f.cache, one));
	decoded_close(one);
	decoded_close(two);
	teardown(&f);
}
