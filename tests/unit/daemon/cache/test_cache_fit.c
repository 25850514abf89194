/* SPDX-License-Identifier: Apache-2.0 */
/* The cache after its sessions or limits changed: how the space is shared, and which chunks are evicted for
 * that. */
#include "filled_cache.h"

#include "daemon/cache/decoded.h"

static uint32_t count(const struct cached_dataset *d)
{
	return (uint32_t)__builtin_popcount(in_memory(d));
}

static void fit(struct fixture *f)
{
	cache_fit(f->cache);
	real_cache_check(f->cache);
	assert_false(f->cache->needs_changed);
}

static void fill_all(struct fixture *f, struct cached_dataset *d, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(fill(f, d, i, 1), 0);
}

/* A job is guaranteed its claim. Memory beyond it is released as soon as another job needs it. */
TEST_IN_FOLDER(claimed_and_borrowed)
{
	struct fixture f;

	start(&f, *state, &even, 10);
	f.d->asked_bytes = 3 * f.unit;
	fit(&f);
	assert_int_equal(f.d->claim_bytes, 3 * f.unit);
	assert_int_equal(f.cache->unclaimed_bytes, 7 * f.unit);
	assert_int_equal(f.d->space_bytes, 10 * f.unit);
	assert_int_equal(cache_borrowed_bytes(f.cache), 0);
	fill_all(&f, f.d, 10);
	assert_int_equal(f.d->keep_bytes, 9 * f.unit);
	assert_int_equal(f.d->kept_bytes, 9 * f.unit);
	f.cache->slot_bytes = 1000;
	assert_int_equal(cache_borrowed_bytes(f.cache), 7 * f.unit);
	assert_int_equal(cache_claimed_bytes(f.cache), 3 * f.unit + f.d->copy.bytes + 1000);
	f.cache->slot_bytes = 0;
	f.cache->round++;
	for (uint32_t i = 4; i < 10; i++)
		cache_mark(f.cache, f.d, i, i);
	cache_limit(f.cache, 3 * f.unit, UINT64_MAX);
	real_cache_check(f.cache);
	assert_int_equal(in_memory(f.d), 0x3f0); /* chunks that are not needed soon were evicted */
	assert_int_equal(f.cache->counters.evictions, 4);
	assert_int_equal(f.d->space_bytes, 6 * f.unit);
	cache_limit(f.cache, f.unit, UINT64_MAX);
	assert_int_equal(in_memory(f.d), 0x0f0); /* then the farthest one */
	/* The dataset gets no more than that, even for a waiting batch. */
	f.cache->round++;
	assert_int_equal(fill(&f, f.d, 11, 0), 0);
	assert_int_equal(f.d->held_bytes, 4 * f.unit);
	/* More space that no dataset can use changes nothing. More space that one can use does. */
	cache_limit(f.cache, 2 * f.unit, UINT64_MAX);
	assert_int_equal(f.d->space_bytes, 5 * f.unit);
	assert_int_equal(fill(&f, f.d, 12, 1), 0);
	assert_int_equal(f.d->held_bytes, 5 * f.unit);
	cache_limit(f.cache, UINT64_MAX, UINT64_MAX);
	assert_int_equal(f.d->space_bytes, 10 * f.unit);
	stop(&f);
}

/* The end of a job, or a smaller claim, makes no memory scarce. */
TEST_IN_FOLDER(what_was_claimed_stays)
{
	struct fixture f;

	start(&f, *state, &even, 10);
	fit(&f);
	fill_all(&f, f.d, 10);
	cache_limit(f.cache, f.unit, UINT64_MAX);
	f.d->asked_bytes = 4 * f.unit;
	fit(&f);
	assert_int_equal(count(f.d), 10);
	f.d->refs = f.d->n_sessions = 0;
	fit(&f);
	assert_int_equal(count(f.d), 10);
	assert_int_equal(cache_borrowed_bytes(f.cache), 10 * f.unit);
	/* The next check of the node sets the limit. */
	cache_limit(f.cache, 2 * f.unit, UINT64_MAX);
	assert_int_equal(count(f.d), 2);
	stop(&f);
}

TEST_IN_FOLDER(claims_give_way)
{
	struct fixture f;

	start(&f, *state, &even, 10);
	fit(&f);
	fill_all(&f, f.d, 10);
	cache_limit(f.cache, UINT64_MAX, f.d->copy.bytes + 4 * f.unit);
	assert_int_equal(count(f.d), 4);
	real_cache_check(f.cache);
	/* A newly read chunk replaces other chunks. */
	f.cache->round++;
	assert_int_equal(fill(&f, f.d, 11, 0), 0);
	assert_int_equal(count(f.d), 4);
	/* The cache does not shrink below the operator's minimum, nor below its sessions' need. */
	f.cache->node.least_bytes = f.d->copy.bytes + 3 * f.unit;
	cache_limit(f.cache, UINT64_MAX, 1);
	assert_int_equal(count(f.d), 3);
	f.cache->node.least_bytes = 0;
	cache_limit(f.cache, UINT64_MAX, 2);
	assert_int_equal(count(f.d), 1);
	cache_limit(f.cache, UINT64_MAX, UINT64_MAX);
	fill_all(&f, f.d, 9);
	assert_true(count(f.d) >= 9);
	stop(&f);
}

TEST_IN_FOLDER(what_is_in_use_goes_later)
{
	struct fixture f;

	start(&f, *state, &even, 6);
	f.d->asked_bytes = 2 * f.unit;
	fit(&f);
	fill_all(&f, f.d, 6);
	for (uint64_t i = 0; i < 4; i++)
		cache_pin(f.cache, f.d, i);
	cache_limit(f.cache, 0, UINT64_MAX);
	assert_int_equal(in_memory(f.d), 0xf);
	assert_true(f.cache->unfit);
	assert_int_equal(f.d->pinned_bytes, 4 * f.unit);
	cache_unpin(f.d, 0);
	cache_unpin(f.d, 1);
	fit(&f);
	assert_int_equal(in_memory(f.d), 0xc);
	assert_false(f.cache->unfit);
	cache_unpin(f.d, 2);
	cache_unpin(f.d, 3);
	f.cache->limit_bytes = 1;
	cache_pin(f.cache, f.d, 2);
	cache_pin(f.cache, f.d, 3);
	fit(&f); /* the session needs one chunk, and two are in use */
	assert_true(f.cache->unfit);
	cache_unpin(f.d, 3);
	fit(&f);
	assert_int_equal(in_memory(f.d), 0x4);
	assert_false(f.cache->unfit);
	cache_unpin(f.d, 2);
	stop(&f);
}

/* Whatever the limit, the open sessions get the memory that they need. */
TEST_IN_FOLDER(the_least_that_sessions_need)
{
	struct fixture f;

	start(&f, *state, &uneven, 1);
	f.cache->slot_bytes = 5000;
	f.d->need_bytes = 3 * f.unit;
	f.d->asked_bytes = 0;
	f.cache->limit_bytes = 100;
	fit(&f);
	assert_int_equal(cache_floor_bytes(f.cache), 5000 + f.d->copy.bytes + 3 * f.unit);
	assert_int_equal(f.cache->budget_bytes, cache_floor_bytes(f.cache));
	assert_int_equal(cache_segment_limit(f.cache, f.cache->budget_bytes), 3 * f.unit);
	assert_int_equal(cache_segment_limit(f.cache, 100), 0);
	assert_int_equal(f.d->claim_bytes, 3 * f.unit);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(fill(&f, f.d, i, 0), 0);
	assert_int_equal(count(f.d), 3);
	/* The claim is at most the whole dataset, by its real sizes. */
	f.d->need_bytes = UINT64_MAX / 4;
	f.cache->limit_bytes = 2 * f.d->all_bytes;
	fit(&f);
	assert_int_equal(f.d->all_bytes, f.d->giants.bytes[1] + (N_CHUNKS - 1) * f.unit);
	assert_int_equal(f.d->claim_bytes, f.d->all_bytes);
	assert_int_equal(cache_floor_bytes(f.cache), 5000 + f.d->copy.bytes + f.d->all_bytes);
	assert_int_equal(f.cache->budget_bytes, f.cache->limit_bytes);
	/* Without sessions the need is 0, and the snapshot's memory does not count, either. */
	f.d->n_sessions = f.d->refs = 0;
	assert_int_equal(cache_floor_bytes(f.cache), 5000);
	f.cache->slot_bytes = 0;
	stop(&f);
}

TEST_IN_FOLDER(what_is_taken)
{
	struct fixture f;

	start(&f, *state, &even, 10);
	f.d->need_bytes = 3 * f.unit;
	f.cache->slot_bytes = 5000;
	uint64_t before = cache_taken_bytes(f.cache);
	assert_int_equal(before, 5000 + f.d->copy.bytes + 3 * f.unit);
	/* Used chunks count only once, as a part of the need. */
	fill_all(&f, f.d, 2);
	cache_pin(f.cache, f.d, 0);
	cache_pin(f.cache, f.d, 0);
	f.d->loads.bytes = f.unit;
	assert_int_equal(cache_taken_bytes(f.cache), before);
	assert_int_equal(cache_take_more(f.d, f.unit), 0);
	assert_int_equal(cache_take_more(f.d, 2 * f.unit), f.unit);
	cache_pin(f.cache, f.d, 1);
	assert_int_equal(cache_take_more(f.d, f.unit), f.unit);
	f.d->loads.bytes = 2 * f.unit;
	assert_int_equal(cache_taken_bytes(f.cache), before + f.unit);
	f.d->loads.bytes = 0;
	cache_unpin(f.d, 0);
	cache_unpin(f.d, 0);
	cache_unpin(f.d, 1);
	f.cache->slot_bytes = 0;
	stop(&f);
}

/* Each dataset evicts its own chunks beyond its space. Unclaimed memory is shared between the datasets. */
TEST_IN_FOLDER(datasets_share_out_what_is_lent)
{
	struct fixture f;

	start(&f, *state, &even, 10);
	struct cached_dataset *e = open_dataset(&f.f, *state, "other", &uneven);
	e->refs = e->n_sessions = 1;
	e->need_bytes = e->segment_bytes;
	e->asked_bytes = 4 * e->segment_bytes;
	f.d->asked_bytes = 2 * f.unit;
	f.cache->limit_bytes = f.d->copy.bytes + e->copy.bytes + 4 * f.unit + 4 * e->segment_bytes;
	fit(&f);
	assert_int_equal(f.d->claim_bytes, 2 * f.unit);
	assert_int_equal(e->claim_bytes, 4 * e->segment_bytes);
	assert_int_equal(f.cache->unclaimed_bytes, 2 * f.unit);
	assert_int_equal(f.d->space_bytes, 3 * f.unit); /* each gets half of the unclaimed memory */
	assert_int_equal(e->space_bytes, 4 * e->segment_bytes + f.unit);
	fill_all(&f, e, 4); /* filled first, so that its chunks are older */
	fill_all(&f, f.d, 3);
	assert_int_equal(f.d->kept_bytes, 2 * f.unit); /* each keeps chunks in its own space */
	assert_true(f.cache->keep_limit_bytes > 3 * f.unit);
	f.cache->limit_bytes -= f.unit;
	fit(&f);
	f.cache->round++;
	assert_int_equal(f.d->space_bytes, 2 * f.unit + f.unit / 2);
	assert_int_equal(f.d->kept_bytes, f.unit);
	assert_int_equal(fill(&f, f.d, 3, 0), 0);
	assert_int_equal(count(f.d), 3);
	assert_int_equal(count(e), 4);
	stop(&f);
}

/* Chunks of unused datasets are evicted first, then chunks that pass through, then kept chunks that are not
 * needed soon. */
TEST_IN_FOLDER(who_goes_first)
{
	struct cached_dataset *idle;
	struct fixture f;

	start(&f, *state, &even, 10);
	idle = open_dataset(&f.f, *state, "idle", &even);
	f.cache->limit_bytes += idle->copy.bytes;
	fit(&f);
	fill_all(&f, f.d, 6);
	idle->space_bytes = UINT64_MAX;
	fill_all(&f, idle, 4);
	uint64_t least = f.cache->snapshot_bytes;
	f.cache->round++;
	for (uint32_t i = 0; i < 4; i++)
		cache_mark(f.cache, f.d, i, i + 1);
	cache_mark(f.cache, idle, 3, 1);
	f.cache->limit_bytes = least + 7 * f.unit;
	fit(&f);
	assert_int_equal(in_memory(f.d), 0x3f);
	assert_int_equal(in_memory(idle), 0x8);
	f.cache->limit_bytes = least + 5 * f.unit;
	fit(&f);
	assert_int_equal(in_memory(f.d), 0x2f);
	assert_int_equal(count(idle), 0);
	assert_int_equal(f.cache->snapshot_bytes, least);
	/* If no chunk may be evicted, the snapshot of an empty dataset is. */
	for (uint64_t i = 0; i < 4; i++)
		cache_pin(f.cache, f.d, i);
	cache_pin(f.cache, f.d, 5);
	f.cache->limit_bytes--;
	fit(&f);
	assert_ptr_equal(f.cache->datasets, f.d);
	assert_null(f.d->next);
	assert_int_equal(f.cache->snapshot_bytes, f.d->copy.bytes);
	assert_int_equal(in_memory(f.d), 0x2f);
	for (uint64_t i = 0; i < 4; i++)
		cache_unpin(f.d, i);
	cache_unpin(f.d, 5);
	f.cache->limit_bytes = f.cache->snapshot_bytes + 3 * f.unit;
	fit(&f);
	assert_int_equal(in_memory(f.d), 0x7);
	stop(&f);
}

/* As many chunks are kept as are certain to stay, the first ones to come. More are kept when there is more
 * space. */
TEST_IN_FOLDER(what_is_kept)
{
	struct fixture f;

	start(&f, *state, &even, 6);
	f.d->prefetch_chunks = 1;
	fit(&f);
	assert_int_equal(f.cache->keep_limit_bytes, 4 * f.unit); /* one is needed, one is read ahead */
	fill_all(&f, f.d, 6);
	assert_int_equal(f.d->kept_bytes, 4 * f.unit);
	f.d->prefetch_chunks = 3;
	fit(&f);
	assert_int_equal(f.d->kept_bytes, 2 * f.unit);
	f.d->prefetch_chunks = 0;
	f.cache->limit_bytes += f.unit;
	fit(&f);
	assert_int_equal(f.d->kept_bytes, 6 * f.unit);
	/* If the whole dataset fits, no space to pass through is needed. */
	f.cache->limit_bytes = f.d->copy.bytes + f.d->all_bytes;
	fit(&f);
	assert_int_equal(f.d->keep_bytes, f.d->all_bytes);
	/* The dataset is no longer used. Its chunks are kept until another dataset is used. */
	f.d->refs = f.d->n_sessions = 0;
	fit(&f);
	assert_int_equal(f.d->kept_bytes, 6 * f.unit);
	struct cached_dataset *idle = f.d;
	f.d = open_dataset(&f.f, *state, "other", &even);
	f.d->refs = f.d->n_sessions = 1;
	fit(&f);
	assert_int_equal(idle->kept_bytes, 0);
	assert_int_equal(count(idle), 6);
	assert_int_equal(cache_borrowed_bytes(f.cache), 6 * f.unit);
	cache_limit(f.cache, 2 * f.unit, UINT64_MAX);
	assert_int_equal(count(idle), 2);
	stop(&f);
}

/* Starts a cache of which Alice has one half, and all others have the rest. Sizes are such that each half has
 * five chunks. */
static struct cached_dataset *start_quotas(struct fixture *f, const char *root)
{
	struct cached_dataset *own;

	start(f, root, &even, 10);
	own = open_dataset(&f->f, root, "own", &even);
	own->refs = own->n_sessions = 1;
	own->need_bytes = own->payers.need_bytes[1] = f->unit;
	own->payers.serving = 1u << 1;
	f->d->payers.serving = 1u << CACHE_QUOTA_REST;
	f->d->payers.need_bytes[CACHE_QUOTA_REST] = f->unit;
	f->d->asked_bytes = own->asked_bytes = UINT64_MAX;
	f->cache->quotas = (struct cache_quotas){.rows = {{.name = "alice", .percent = 50}}, .n = 1};
	f->cache->limit_bytes = 2 * own->copy.bytes + 10 * f->unit;
	return own;
}

static void mark_all(struct fixture *f, struct cached_dataset *d)
{
	f->cache->round++;
	for (uint32_t i = 0; i < N_CHUNKS; i++)
		cache_mark(f->cache, d, i, i + 1);
}

static uint64_t paid_by(const struct cache *c, uint32_t payer)
{
	uint64_t paid[CACHE_QUOTA_PAYERS];

	cache_paid_bytes(c, paid);
	return paid[payer];
}

/* A user with a quota gets it, whatever others hold and need. The others get no more of it while it is
 * used. */
TEST_IN_FOLDER(a_quota_holds_against_what_others_want)
{
	struct fixture f;
	struct cached_dataset *own = start_quotas(&f, *state);

	own->n_sessions = 0;
	fit(&f);
	assert_int_equal(f.d->space_bytes, 10 * f.unit); /* no other dataset needs it */
	fill_all(&f, f.d, 10);
	own->n_sessions = 1;
	fit(&f);
	assert_int_equal(f.d->space_bytes, 5 * f.unit);
	assert_int_equal(own->space_bytes, 5 * f.unit);
	mark_all(&f, f.d); /* all chunks of the others are needed soon */
	fill_all(&f, own, 5);
	assert_int_equal(count(own), 5);
	assert_int_equal(count(f.d), 5);
	assert_int_equal(paid_by(f.cache, 1), own->copy.bytes + 5 * f.unit);
	assert_int_equal(paid_by(f.cache, CACHE_QUOTA_REST), f.d->copy.bytes + 5 * f.unit);
	/* Neither evicts the other's chunks below its quota, even for a waiting batch. */
	f.cache->round++;
	for (uint32_t i = 10; i < 20; i++)
		assert_int_equal(fill(&f, f.d, i, i % 2), 0);
	assert_int_equal(in_memory(own), 0x1f);
	mark_all(&f, f.d);
	for (uint32_t i = 5; i < 20; i++)
		assert_int_equal(fill(&f, own, i, 0), 0);
	assert_int_equal(count(own), 5);
	assert_int_equal(count(f.d), 5);
	/* Decoded copies do not, either. */
	assert_false(cache_make_decoded_space(f.cache, f.unit));
	assert_int_equal(count(own), 5);
	stop(&f);
}

/* Decoded copies count for the user who asked for them. They take no space from other users, and are evicted
 * before that user's own chunks. */
TEST_IN_FOLDER(quotas_of_decoded)
{
	const struct recipe key = {.kind = RECIPE_IMAGE};
	struct fixture f;
	struct cached_dataset *own = start_quotas(&f, *state);
	struct decoded_cache *decoded_cache = decoded_open(f.d, 1, "", &key);

	assert_non_null(decoded_cache);
	assert_int_equal(decoded_cache->payer, CACHE_QUOTA_REST);
	decoded_cache->asked_bytes = 100 * f.unit;
	fit(&f);
	assert_int_equal(own->space_bytes, 5 * f.unit);
	assert_int_equal(f.cache->decoded_cache.limit_bytes, decoded_cache->limit_bytes);
	assert_true(decoded_cache->limit_bytes + f.d->space_bytes <= 5 * f.unit);
	assert_true(decoded_cache->limit_bytes > 0 && f.d->space_bytes >= f.unit);
	/* Space that Alice does not need is lent to them, too. */
	own->n_sessions = 0;
	fit(&f);
	assert_true(decoded_cache->limit_bytes > 5 * f.unit);
	decoded_close(decoded_cache);
	stop(&f);
}

/* Another dataset, another session and another user without a row all share the same rest. */
TEST_IN_FOLDER(quotas_of_many)
{
	struct fixture f;
	struct cached_dataset *own = start_quotas(&f, *state), *more;

	more = open_dataset(&f.f, *state, "more", &even);
	more->refs = more->n_sessions = 1;
	more->need_bytes = f.unit;
	more->asked_bytes = UINT64_MAX;
	f.cache->limit_bytes =
	    4 * own->copy.bytes + 10 * f.unit; /* one half, and space for five chunks in the other half */
	fit(&f);
	assert_int_equal(own->space_bytes, own->copy.bytes + 5 * f.unit);
	assert_true(f.d->space_bytes + more->space_bytes <= 5 * f.unit);
	assert_true(f.d->space_bytes >= f.unit && more->space_bytes >= f.unit);
	/* A dataset that both have open counts for each in equal parts, but a large window counts for its own
	 * user. */
	more->n_sessions = more->refs = 0;
	f.d->payers.serving |= 1u << 1;
	own->payers.serving = 1u << 1;
	f.d->need_bytes = 4 * f.unit;
	f.d->payers.need_bytes[CACHE_QUOTA_REST] = 4 * f.unit;
	f.cache->limit_bytes = 3 * own->copy.bytes + 10 * f.unit;
	fit(&f);
	assert_true(own->space_bytes + f.d->space_bytes <= 10 * f.unit + own->copy.bytes);
	assert_true(own->space_bytes > 2 * f.unit);
	assert_true(f.d->space_bytes > 5 * f.unit);
	fill_all(&f, f.d, 4);
	assert_int_equal(paid_by(f.cache, 1), own->copy.bytes + (f.d->copy.bytes + 4 * f.unit) / 2);
	stop(&f);
}
