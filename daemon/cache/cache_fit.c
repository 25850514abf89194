/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the cache to changed sessions or limits: how much each dataset may take, and which memory is evicted
 * for that. */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decoded.h"
#include "lib/cleanup.h"
#include "lib/minmax.h"
#include "daemon/cache/peers/memberships.h"

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Returns the bytes that the dataset's sessions need, including prefetch. */
static uint64_t ahead_bytes(const struct cached_dataset *d)
{
	uint64_t bytes = d->need_bytes + cached_largest_bytes(d, d->prefetch_chunks);

	return bytes < d->all_bytes ? bytes : d->all_bytes;
}

uint64_t cache_floor_bytes(const struct cache *c)
{
	uint64_t bytes = c->slot_bytes;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (cached_is_used(d))
			bytes += d->copy.bytes;
		if (d->n_sessions > 0)
			bytes += cached_need_bytes(d);
	}
	return bytes;
}

static uint64_t taken_by(const struct cached_dataset *d, uint64_t more_bytes)
{
	return max_u64(d->n_sessions > 0 ? cached_need_bytes(d) : 0,
		       d->pinned_bytes + d->loads.bytes + more_bytes);
}

uint64_t cache_taken_bytes(const struct cache *c)
{
	uint64_t bytes = c->slot_bytes;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next)
		bytes += taken_by(d, 0) + (cached_is_used(d) ? d->copy.bytes : 0);
	return bytes;
}

uint64_t cache_take_more(const struct cached_dataset *d, uint64_t bytes)
{
	return taken_by(d, bytes) - taken_by(d, 0);
}

static void set_budget(struct cache *c)
{
	uint64_t floor = cache_floor_bytes(c);

	c->budget_bytes = min_u64(c->limit_bytes, max_u64(c->node.ceiling_bytes, c->node.least_bytes));
	if (c->budget_bytes < floor)
		c->budget_bytes = floor;
}

/* Shares the memory that is left after the needs and prefetch of all sessions among decoded copies, in
 * proportion to their asked_bytes. */
static void share_decoded(struct cache *c, uint64_t limit)
{
	uint64_t taken = 0, asked = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		taken += d->n_sessions > 0 ? ahead_bytes(d) : 0;
		for (const struct decoded_cache *f = d->decoded_cache; f; f = f->next)
			asked += f->refs > 0 ? f->asked_bytes : 0;
	}
	c->decoded_cache.limit_bytes = limit > taken ? limit - taken : 0;
	if (c->decoded_cache.limit_bytes > asked)
		c->decoded_cache.limit_bytes = asked;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct decoded_cache *f = d->decoded_cache; f; f = f->next)
			f->limit_bytes = f->refs > 0 && asked > 0
					     ? (uint64_t)((double)c->decoded_cache.limit_bytes *
							  ((double)f->asked_bytes / (double)asked))
					     : 0;
	}
}

/*
 * Finds the limit for kept batches: the rest after the needs and prefetch of all sessions, and after claims
 * that were set explicitly. Chunks and decoded copies leave free as much of that rest as lagging jobs would
 * use.
 */
static void share_kept_batches(struct cache *c, uint64_t limit)
{
	uint64_t taken = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		uint64_t claimed = d->asked_bytes == UINT64_MAX ? 0 : min_u64(d->asked_bytes, d->all_bytes);

		taken += d->n_sessions > 0 ? max_u64(ahead_bytes(d), claimed) : 0;
	}
	c->kept_batches.limit_bytes = min_u64(less(limit, taken), c->budget_bytes / CACHE_BATCH_PART);
	c->kept_batches.space_bytes = min_u64(c->kept_batches.asked_bytes, c->kept_batches.limit_bytes);
}

static uint32_t payers_of(const struct cached_dataset *d)
{
	return d->payers.serving ? d->payers.serving : 1u << CACHE_QUOTA_REST;
}

/* Returns the i-th of n equal parts, whose sum is exactly `bytes`. */
static uint64_t part_of(uint64_t bytes, uint32_t n, uint32_t i)
{
	return bytes / n + (i < bytes % n);
}

/* Returns the payer's part of bytes that a set of payers shares. */
static uint64_t paid_part(uint64_t bytes, uint32_t payers, uint32_t payer)
{
	uint32_t before = payers & ((1u << payer) - 1);

	if (!(payers >> payer & 1))
		return 0;
	return part_of(bytes, (uint32_t)__builtin_popcount(payers), (uint32_t)__builtin_popcount(before));
}

/* Counts the payers' memory except chunks and decoded copies. */
static void count_paid(const struct cache *c, uint64_t paid[CACHE_QUOTA_PAYERS])
{
	memcpy(paid, c->paid_other_bytes, sizeof(c->paid_other_bytes));
	if (c->handler.count_paid)
		c->handler.count_paid(c->handler.user, paid);
	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		uint32_t openers = d->payers.open ? d->payers.open : payers_of(d);

		for (uint32_t i = 0; i < CACHE_QUOTA_PAYERS && cached_is_used(d); i++)
			paid[i] += paid_part(d->copy.bytes, openers, i);
	}
}

void cache_paid_bytes(const struct cache *c, uint64_t paid[CACHE_QUOTA_PAYERS])
{
	count_paid(c, paid);
	for (uint32_t i = 0; i < CACHE_QUOTA_PAYERS; i++)
		paid[i] += c->paid_kept_bytes[i];
	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (uint32_t i = 0; i < CACHE_QUOTA_PAYERS && d->n_sessions > 0; i++)
			paid[i] += paid_part(d->held_bytes, payers_of(d), i);
		for (const struct decoded_cache *f = d->decoded_cache; f; f = f->next)
			paid[f->payer] += f->refs > 0 ? f->bytes : 0;
	}
}

/* Demands of all payers, with the addresses that receive the granted bytes. */
struct wants {
	struct quota_want *all;
	uint64_t **into;
	size_t n;
	uint64_t quotas[CACHE_QUOTA_PAYERS];
};

static void add_want(struct wants *w, const struct quota_want *want, uint64_t *into)
{
	*into = 0;
	w->all[w->n] = *want;
	w->into[w->n++] = into;
}

/* Counts a dataset for its payers in equal parts. But each payer pays for the need of its own sessions, so
 * that no payer's windows are at another payer's expense. */
static void add_dataset(struct wants *w, struct cached_dataset *d, uint64_t ahead, uint64_t most)
{
	uint32_t payers = payers_of(d), n = (uint32_t)__builtin_popcount(payers), k = 0;
	uint64_t need = cached_need_bytes(d), paid = 0, needed = 0;

	for (uint32_t i = 0; i < CACHE_QUOTA_PAYERS; i++)
		paid += payers >> i & 1 ? d->payers.need_bytes[i] : 0;
	for (uint32_t i = 0; i < CACHE_QUOTA_PAYERS; i++) {
		uint64_t own = part_of(need, n, k);

		if (!(payers >> i & 1))
			continue;
		if (paid > 0)
			own = (uint64_t)((double)need * ((double)d->payers.need_bytes[i] / (double)paid));
		if (needed + own > need || k + 1 == n)
			own = need - needed;
		needed += own;
		add_want(w,
			 &(struct quota_want){
			     .payer = i, .need = own, .most = own + part_of(less(ahead, need), n, k)},
			 &d->space_bytes);
		add_want(w,
			 &(struct quota_want){
			     .payer = i, .stage = 2, .most = part_of(less(most, max_u64(ahead, need)), n, k)},
			 &d->space_bytes);
		k++;
	}
	for (struct decoded_cache *f = d->decoded_cache; f; f = f->next)
		if (f->refs > 0)
			add_want(w,
				 &(struct quota_want){.payer = f->payer, .stage = 1, .most = f->asked_bytes},
				 &f->limit_bytes);
}

/* Sets space_bytes and the limits on decoded copies of each dataset by the quotas. caps: the claims of the
 * datasets' jobs. Returns 0 or -ENOMEM. */
static int share_by_quotas(struct cache *c, const struct policy_share *caps, uint64_t limit)
{
	_cleanup_(freep) struct quota_want *all = NULL;
	_cleanup_(freep) uint64_t **into = NULL;
	uint64_t paid[CACHE_QUOTA_PAYERS], borrow = cache_borrowable_bytes(c);
	struct wants w = {.n = 0};
	size_t most = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		most += 2 * (size_t)__builtin_popcount(payers_of(d));
		for (const struct decoded_cache *f = d->decoded_cache; f; f = f->next)
			most++;
	}
	w.all = all = calloc(most + 1, sizeof(*all));
	w.into = into = calloc(most + 1, sizeof(*into));
	if (!all || !into)
		return -ENOMEM;
	count_paid(c, paid);
	for (uint32_t i = 0; i <= c->quotas.n; i++)
		w.quotas[i] =
		    less(cache_quotas_bytes(&c->quotas, i, c->limit_bytes), paid[i] + c->paid_kept_bytes[i]);
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct decoded_cache *f = d->decoded_cache; f; f = f->next)
			f->limit_bytes = 0;
		if (d->n_sessions > 0) {
			const struct policy_share *s = caps++;
			uint64_t mapped = less(s->all, s->cap) < borrow ? s->all : s->cap + borrow;

			add_dataset(&w, d, s->ahead < mapped ? s->ahead : mapped, mapped);
		}
	}
	cache_quotas_share(w.quotas, w.all, w.n, limit);
	c->decoded_cache.limit_bytes = 0;
	for (size_t i = 0; i < w.n; i++) {
		*w.into[i] += w.all[i].given;
		c->decoded_cache.limit_bytes += w.all[i].stage == 1 ? w.all[i].given : 0;
	}
	return 0;
}

/* Evicts kept batches and decoded copies beyond their limits. Decoded copies that nobody uses stay while
 * there is space. */
static void fit_decoded(struct cache *c)
{
	while (c->kept_batches.bytes > c->kept_batches.limit_bytes && cache_give_up_batch(c))
		continue;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct decoded_cache *f = d->decoded_cache; f; f = f->next) {
			while (f->refs > 0 && f->bytes > f->limit_bytes && decoded_drop_one(c, f))
				continue;
		}
	}
	while (
	    (cache_total_bytes(c) > c->budget_bytes || cache_borrowed_bytes(c) > cache_borrowable_bytes(c)) &&
	    (cache_give_up_batch(c) || decoded_drop_any(c)))
		continue;
}

/* Sets how much each dataset borrows: the bytes that the quotas granted. */
static void borrow_by_quotas(const struct cache *c, struct policy_share *shares)
{
	for (const struct cached_dataset *d = c->datasets; d; d = d->next)
		if (d->n_sessions > 0)
			(shares++)->asked = d->space_bytes;
}

/* Sets each dataset's share. If memory runs out, the old shares stay. */
static void share_out(struct cache *c)
{
	_cleanup_(freep) struct policy_share *shares = NULL;
	uint64_t limit, claimed = 0;
	size_t n = 0, i = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next)
		n += d->n_sessions > 0;
	shares = calloc(n + 1, sizeof(*shares));
	if (!shares)
		return;
	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d->n_sessions > 0)
			shares[i++] = (struct policy_share){.all = d->all_bytes,
							    .need = cached_need_bytes(d),
							    .ahead = ahead_bytes(d),
							    .asked = d->asked_bytes};
	}
	limit = cache_segment_limit(c, c->budget_bytes);
	/* Snapshots that nobody uses are dropped when their memory is needed. */
	for (const struct cached_dataset *d = c->datasets; d && c->quotas.n > 0; d = d->next)
		limit += cached_is_used(d) ? 0 : d->copy.bytes;
	share_kept_batches(c, limit);
	limit -= c->kept_batches.space_bytes;
	(void)policy_share_out(shares, n, limit);
	if (c->quotas.n == 0)
		share_decoded(c, limit);
	else if (share_by_quotas(c, shares, limit) < 0)
		return;
	limit -= c->decoded_cache.limit_bytes;
	i = 0;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d->n_sessions == 0)
			continue;
		if (c->quotas.n > 0 && d->space_bytes < shares[i].cap)
			shares[i].cap = max_u64(d->space_bytes, shares[i].need);
		claimed += d->claim_bytes = shares[i++].cap;
	}
	c->unclaimed_bytes = limit > claimed ? limit - claimed : 0;
	if (c->quotas.n > 0)
		borrow_by_quotas(c, shares);
	else
		policy_borrow(shares, n, min_u64(c->unclaimed_bytes, cache_borrowable_bytes(c)));
	c->keep_limit_bytes = policy_share_out(shares, n, limit);
	i = 0;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d->n_sessions == 0)
			continue;
		d->space_bytes = shares[i].cap;
		d->keep_bytes = shares[i++].keep;
	}
}

static bool is_anything_used(const struct cache *c)
{
	const struct cached_dataset *d = c->datasets;

	while (d && d->n_sessions == 0)
		d = d->next;
	return d;
}

static void keep_less(struct cache *c, const struct cache_entry *entries, size_t n)
{
	bool used = is_anything_used(c);

	for (size_t i = 0; i < n; i++) {
		struct segment *s = entries[i].segment;
		bool too_much = entries[i].look.kept && (c->kept_bytes > c->keep_limit_bytes ||
							 s->dataset->kept_bytes > s->dataset->keep_bytes);

		/* Idle chunks are evicted first anyway, and must not use up the quota of chunks in use. */
		if (too_much || (entries[i].look.idle && used))
			cache_keep(c, s, false);
	}
}

static void keep_more(struct cache *c, const struct cache_entry *entries, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		struct segment *s = entries[i].segment;
		const struct cached_dataset *d;

		if (entries[i].look.idle || entries[i].look.foreign || !(cache_is_ready(s) || s->restored))
			continue;
		d = s->dataset;
		if (c->kept_bytes + s->memory.bytes <= c->keep_limit_bytes &&
		    d->kept_bytes + s->memory.bytes <= d->keep_bytes)
			cache_keep(c, s, true);
	}
}

/* Over budget, any segment that may be evicted must go. Borrowed segments must also go if more is borrowed
 * than allowed. */
static bool must_go(const struct cache *c, const struct cache_entry *e)
{
	const struct cached_dataset *d = e->segment->dataset;

	if (e->rank == 0)
		return false;
	if (cache_total_bytes(c) > c->budget_bytes)
		return true;
	return (e->look.idle || d->held_bytes > d->claim_bytes) &&
	       cache_borrowed_bytes(c) > cache_borrowable_bytes(c);
}

/* paid: evicts also from datasets within their space_bytes. */
static void give_up(struct cache *c, struct cache_entry *entries, size_t n, bool paid)
{
	for (size_t i = 0; i < n; i++) {
		if (!entries[i].segment || (!paid && cached_is_paid(entries[i].segment->dataset)) ||
		    !must_go(c, &entries[i]))
			continue;
		cache_drop_segment(c, entries[i].segment);
		entries[i].segment = NULL;
		c->counters.evictions++;
	}
}

static bool is_fit(const struct cache *c)
{
	return cache_total_bytes(c) <= c->budget_bytes &&
	       cache_borrowed_bytes(c) <= cache_borrowable_bytes(c);
}

void cache_fit(struct cache *c)
{
	_cleanup_(freep) struct cache_entry *entries = NULL;
	size_t n = 0;

	c->needs_changed = false;
	cache_find_holders(c);
	set_budget(c);
	share_out(c);
	fit_decoded(c);
	entries = calloc(c->segments.n + 1, sizeof(*entries));
	if (!entries) {
		c->unfit = true;
		return;
	}
	for (uint32_t i = 0; i < c->segments.size; i++) {
		if (c->segments.all[i])
			entries[n++].segment = c->segments.all[i];
	}
	cache_rank(c, NULL, entries, n);
	keep_less(c, entries, n);
	keep_more(c, entries, n);
	cache_rank(c, NULL, entries, n);
	if (c->quotas.n > 0)
		give_up(c, entries, n, false);
	give_up(c, entries, n, true);
	while (cache_total_bytes(c) > c->budget_bytes && cache_drop_empty(c))
		continue;
	cache_forget_victims(c);
	c->unfit = !is_fit(c);
	memberships_tell_space(c);
	c->needs_changed = false;
}

void cache_limit(struct cache *c, uint64_t borrowed_bytes, uint64_t total_bytes)
{
	const struct cache_node_memory before = c->node;
	bool is_changed;

	c->node.borrow_bytes = borrowed_bytes;
	c->node.borrow_claimed_bytes = cache_claimed_chunk_bytes(c);
	c->node.ceiling_bytes = total_bytes;
	/* Raising the limit is pointless if nobody can use the memory, and would cost a pass through all
	 * segments. */
	is_changed = cache_borrowed_bytes(c) > borrowed_bytes ||
		     (before.borrow_bytes < borrowed_bytes && before.borrow_bytes < c->unclaimed_bytes);
	if (total_bytes != before.ceiling_bytes)
		is_changed |= cache_total_bytes(c) > total_bytes || before.ceiling_bytes < c->limit_bytes;
	if (is_changed)
		cache_fit(c);
}
