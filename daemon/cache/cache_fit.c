/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the cache to changed sessions or limits: who may take how much, and what has to go for that. */
#include "cache.h"

#include <stdlib.h>

#include "forms.h"
#include "lib/cleanup.h"
#include "peers/sharers.h"

/* What its sessions need, and what is read ahead for them. */
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
			bytes += d->copy_bytes;
		if (d->n_sessions > 0)
			bytes += cached_need_bytes(d);
	}
	return bytes;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t taken_by(const struct cached_dataset *d, uint64_t more_bytes)
{
	return max_u64(d->n_sessions > 0 ? cached_need_bytes(d) : 0,
		       d->pinned_bytes + d->loading_bytes + more_bytes);
}

uint64_t cache_taken_bytes(const struct cache *c)
{
	uint64_t bytes = c->slot_bytes;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next)
		bytes += taken_by(d, 0) + (cached_is_used(d) ? d->copy_bytes : 0);
	return bytes;
}

uint64_t cache_take_more(const struct cached_dataset *d, uint64_t bytes)
{
	return taken_by(d, bytes) - taken_by(d, 0);
}

static void set_budget(struct cache *c)
{
	uint64_t floor = cache_floor_bytes(c);

	c->budget_bytes = c->limit_bytes;
	if (c->budget_bytes < floor)
		c->budget_bytes = floor;
}

/* What is left to forms, when all sessions have what they need and read ahead: each gets the part of it that
 * it asks for. */
static void share_forms(struct cache *c, uint64_t limit)
{
	uint64_t taken = 0, asked = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		taken += d->n_sessions > 0 ? ahead_bytes(d) : 0;
		for (const struct forms *f = d->forms; f; f = f->next)
			asked += f->refs > 0 ? f->asked_bytes : 0;
	}
	c->form_limit_bytes = limit > taken ? limit - taken : 0;
	if (c->form_limit_bytes > asked)
		c->form_limit_bytes = asked;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct forms *f = d->forms; f; f = f->next)
			f->limit_bytes = f->refs > 0 && asked > 0
					     ? (uint64_t)((double)c->form_limit_bytes *
							  ((double)f->asked_bytes / (double)asked))
					     : 0;
	}
}

/* Gives up forms beyond what there is left for them. Those that nobody uses stay while there is room. */
static void fit_forms(struct cache *c)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		for (struct forms *f = d->forms; f; f = f->next) {
			while (f->refs > 0 && f->bytes > f->limit_bytes && forms_drop_one(c, f))
				continue;
		}
	}
	while ((cache_total_bytes(c) > c->budget_bytes || cache_borrowed_bytes(c) > c->lend_bytes) &&
	       forms_drop_any(c))
		continue;
}

/* Sets each dataset's share. Without memory for that, the old shares stay. */
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
	share_forms(c, limit);
	limit -= c->form_limit_bytes;
	(void)policy_share_out(shares, n, limit);
	i = 0;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d->n_sessions > 0)
			claimed += d->claim_bytes = shares[i++].cap;
	}
	c->unclaimed_bytes = limit > claimed ? limit - claimed : 0;
	policy_lend(shares, n, c->unclaimed_bytes < c->lend_bytes ? c->unclaimed_bytes : c->lend_bytes);
	c->keep_limit_bytes = policy_share_out(shares, n, limit);
	i = 0;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d->n_sessions == 0)
			continue;
		d->room_bytes = shares[i].cap;
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

		/* Idle chunks are given up first anyway, and must not use up the quota of those in use. */
		if (too_much || (entries[i].look.idle && used))
			cache_keep(c, s, false);
	}
}

static void keep_more(struct cache *c, const struct cache_entry *entries, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		struct segment *s = entries[i].segment;
		const struct cached_dataset *d;

		if (entries[i].look.idle || entries[i].look.foreign || !(cache_is_ready(s) || s->carried))
			continue;
		d = s->dataset;
		if (c->kept_bytes + s->bytes <= c->keep_limit_bytes &&
		    d->kept_bytes + s->bytes <= d->keep_bytes)
			cache_keep(c, s, true);
	}
}

/* Over budget, anything goes that may. Borrowed segments also go if more is borrowed than may be. */
static bool must_go(const struct cache *c, const struct cache_entry *e)
{
	const struct cached_dataset *d = e->segment->dataset;

	if (e->rank == 0)
		return false;
	if (cache_total_bytes(c) > c->budget_bytes)
		return true;
	return (e->look.idle || d->held_bytes > d->claim_bytes) && cache_borrowed_bytes(c) > c->lend_bytes;
}

static void give_up(struct cache *c, struct cache_entry *entries, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!must_go(c, &entries[i]))
			continue;
		cache_drop_segment(c, entries[i].segment);
		entries[i].segment = NULL;
		c->counters.evictions++;
	}
}

static bool is_fit(const struct cache *c)
{
	return cache_total_bytes(c) <= c->budget_bytes && cache_borrowed_bytes(c) <= c->lend_bytes;
}

void cache_fit(struct cache *c)
{
	_cleanup_(freep) struct cache_entry *entries = NULL;
	size_t n = 0;

	c->needs_changed = false;
	cache_find_holders(c);
	set_budget(c);
	share_out(c);
	fit_forms(c);
	entries = calloc(c->n_segments + 1, sizeof(*entries));
	if (!entries) {
		c->unfit = true;
		return;
	}
	for (uint32_t i = 0; i < c->size_segments; i++) {
		if (c->segments[i])
			entries[n++].segment = c->segments[i];
	}
	cache_rank(c, NULL, entries, n);
	keep_less(c, entries, n);
	keep_more(c, entries, n);
	cache_rank(c, NULL, entries, n);
	give_up(c, entries, n);
	cache_drop_empty(c);
	cache_forget_victims(c);
	c->unfit = !is_fit(c);
	sharers_tell_room(c);
	c->needs_changed = false;
}

void cache_lend(struct cache *c, uint64_t bytes)
{
	uint64_t before = c->lend_bytes;

	c->lend_bytes = bytes;
	/* More room that nobody can use is not worth a pass through all segments. */
	if (cache_borrowed_bytes(c) > bytes || (before < bytes && before < c->unclaimed_bytes))
		cache_fit(c);
}
