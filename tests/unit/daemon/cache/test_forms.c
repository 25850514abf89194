/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded forms in memory: the index against a plain table, extents, and what the cache leaves to them. */
#include "tests/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/forms.h"
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
	forms_drop_all(&f->cache, &f->dataset);
	assert_int_equal(f->cache.forms.bytes, 0);
	assert_int_equal(f->cache.forms.n_extents, 0);
	while (f->cache.releasing_bytes > 0)
		uv_run(&f->loop, UV_RUN_ONCE);
	f->cache.datasets = NULL;
	pool_free(f->cache.pool);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static struct forms *open_forms(struct fixture *f, uint32_t uid, uint64_t asked_bytes)
{
	const struct recipe key = {.kind = RECIPE_IMAGE};
	struct forms *forms = forms_open(&f->dataset, uid, &key);

	assert_non_null(forms);
	forms->asked_bytes = asked_bytes;
	cache_fit(&f->cache);
	return forms;
}

/* Fills memory with forms of this size, for samples from `first` on. Returns how many there were room for. */
static uint32_t fill(struct fixture *f, struct forms *forms, uint64_t first, uint32_t n, uint32_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		struct form_extent *e = forms_grant(&f->cache, forms);

		if (!e)
			return i;
		if (e->memory.bytes - e->used_bytes < bytes) {
			forms_take_back(&f->cache, e, true);
			i--;
			continue;
		}
		memset(e->memory.data + e->used_bytes, (int)(first + i), bytes);
		forms_add(&f->cache, e, first + i, bytes);
		forms_take_back(&f->cache, e, false);
	}
	return n;
}

/* Each sample that is found has its own bytes. Returns how many are. */
static uint32_t count(const struct forms *forms, uint32_t n)
{
	uint32_t found = 0;

	for (uint64_t sample = 0; sample < n; sample++) {
		uint32_t offset = UINT32_MAX;
		const struct form_extent *e = forms_find(forms, sample, &offset);

		if (!e)
			continue;
		assert_int_equal(e->memory.data[offset], (uint8_t)sample);
		found++;
	}
	return found;
}

static void test_what_is_entered_is_found(void **state)
{
	struct fixture f;
	uint32_t n, before;

	setup(&f, 64 * MIB);
	struct forms *forms = open_forms(&f, 1, 16 * MIB);
	assert_int_equal(count(forms, N_SAMPLES), 0);
	n = fill(&f, forms, 0, N_SAMPLES, 10000);
	assert_true(n > 1500 && n < 1700); /* 16 MiB, less the index */
	assert_int_equal(count(forms, N_SAMPLES), n);
	assert_int_equal(forms->n_entries, n);
	assert_true(forms->bytes <= 16 * MIB && f.cache.forms.bytes == forms->bytes);
	/* One by one: whatever goes, what is left is found. */
	while (before = count(forms, N_SAMPLES), forms_drop_one(&f.cache, forms)) {
		assert_true(count(forms, N_SAMPLES) < before);
		assert_int_equal(count(forms, N_SAMPLES), forms->n_entries);
	}
	assert_int_equal(forms->bytes, 0);
	assert_int_equal(forms->used_bytes, 0);
	forms_close(forms);
	teardown(&f);
}

static void test_a_sample_has_one_form(void **state)
{
	struct fixture f;
	uint32_t offset;

	setup(&f, 64 * MIB);
	struct forms *forms = open_forms(&f, 1, 16 * MIB);
	struct form_extent *e = forms_grant(&f.cache, forms);
	forms_add(&f.cache, e, 7, 100);
	forms_add(&f.cache, e, 7, 100);
	forms_add(&f.cache, e, 8, 1);
	assert_ptr_equal(forms_find(forms, 7, &offset), e);
	assert_int_equal(offset, 0);
	assert_ptr_equal(forms_find(forms, 8, &offset), e);
	assert_int_equal(offset, 256); /* behind both */
	assert_int_equal(forms->n_entries, 2);
	forms_take_back(&f.cache, e, false);
	forms_close(forms);
	teardown(&f);
}

static void test_two_decoders_do_not_share_an_extent(void **state)
{
	struct form_extent *a, *b;
	struct fixture f;

	setup(&f, 64 * MIB);
	struct forms *forms = open_forms(&f, 1, 16 * MIB);
	a = forms_grant(&f.cache, forms);
	b = forms_grant(&f.cache, forms);
	assert_non_null(a);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	forms_take_back(&f.cache, a, false);
	assert_ptr_equal(forms_grant(&f.cache, forms), a);
	forms_take_back(&f.cache, a, false);
	forms_take_back(&f.cache, b, false);
	forms_close(forms);
	teardown(&f);
}

/* Given up while a decoder is at it: what it writes is forgotten, and the memory goes when it is done. */
static void test_an_extent_in_use_is_given_up(void **state)
{
	struct fixture f;
	uint32_t offset;

	setup(&f, 64 * MIB);
	struct forms *forms = open_forms(&f, 1, 16 * MIB);
	struct form_extent *e = forms_grant(&f.cache, forms);
	forms_add(&f.cache, e, 1, 100);
	forms_pin(e);
	forms->asked_bytes = 0;
	cache_fit(&f.cache);
	assert_int_equal(f.cache.forms.bytes, 0);
	assert_int_equal(f.cache.releasing_bytes, e->memory.bytes);
	assert_null(forms_find(forms, 1, &offset));
	memset(e->memory.data, 1, 100); /* still there */
	forms_add(&f.cache, e, 2, 100);
	assert_null(forms_find(forms, 2, &offset));
	forms_take_back(&f.cache, e, false);
	forms_unpin(&f.cache, e);
	assert_null(forms_grant(&f.cache, forms));
	forms_close(forms);
	teardown(&f);
}

static void test_users_and_recipes_have_their_own(void **state)
{
	const struct recipe other = {.kind = RECIPE_IMAGE, .width = 5};
	struct forms *mine, *theirs, *again, *another;
	struct fixture f;

	setup(&f, 64 * MIB);
	mine = open_forms(&f, 1, 8 * MIB);
	theirs = open_forms(&f, 2, 8 * MIB);
	assert_ptr_not_equal(mine, theirs);
	again = open_forms(&f, 1, 8 * MIB);
	assert_ptr_equal(mine, again);
	another = forms_open(&f.dataset, 1, &other);
	assert_ptr_not_equal(mine, another);
	assert_int_equal(fill(&f, mine, 0, 10, 1000), 10);
	assert_int_equal(count(mine, 10), 10);
	assert_int_equal(count(theirs, 10) + count(another, 10), 0);
	/* What is empty goes with its last session; what holds something stays. */
	forms_close(another);
	forms_close(theirs);
	forms_close(again);
	forms_close(mine);
	assert_ptr_equal(f.dataset.forms, mine);
	assert_null(mine->next);
	teardown(&f);
}

/* All sessions' needs and read-ahead go first; what is asked beyond the rest is shared out. */
static void test_what_is_left_to_them(void **state)
{
	struct forms *one, *two;
	struct fixture f;

	setup(&f, 64 * MIB);
	f.dataset.all_bytes = 40 * MIB;
	f.dataset.need_bytes = 24 * MIB;
	one = open_forms(&f, 1, 30 * MIB);
	assert_int_equal(one->limit_bytes, 30 * MIB);
	two = open_forms(&f, 2, 90 * MIB);
	assert_int_equal(f.cache.forms.limit_bytes, 40 * MIB);
	assert_int_equal(one->limit_bytes, 10 * MIB);
	assert_int_equal(two->limit_bytes, 30 * MIB);
	assert_int_equal(fill(&f, two, 0, 1000, MIB - 64), 29); /* less the index */
	/* Sessions that need more take it back. */
	assert_true(cache_make_room(&f.cache, 60 * MIB));
	assert_true(f.cache.forms.bytes <= 4 * MIB);
	/* So does memory that is short. */
	assert_true(fill(&f, one, 0, 3, MIB - 64) > 0);
	cache_lend(&f.cache, 0);
	assert_int_equal(f.cache.forms.bytes, 0);
	assert_null(forms_grant(&f.cache, one));
	forms_close(one);
	forms_close(two);
	teardown(&f);
}

UNIT_TESTS(cmocka_unit_test(test_what_is_entered_is_found), cmocka_unit_test(test_a_sample_has_one_form),
	   cmocka_unit_test(test_two_decoders_do_not_share_an_extent),
	   cmocka_unit_test(test_an_extent_in_use_is_given_up),
	   cmocka_unit_test(test_users_and_recipes_have_their_own),
	   cmocka_unit_test(test_what_is_left_to_them))
