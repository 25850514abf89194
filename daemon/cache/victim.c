/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the segment to evict for another chunk, by the rules of policy.h. One pass through all segments
 * yields a list of victims, so that the cost per eviction does not grow with the cache. Each victim is
 * checked again before its eviction.
 */
#include "cache.h"

#include <stdlib.h>

#include "lib/cleanup.h"

/* One pass lists 1/PART of the segments, plus one. */
#define PART 16

static bool is_same_place(const struct cached_cursor *a, const struct cached_cursor *b)
{
	return a->whole && b->whole && a->seed == b->seed && a->epoch == b->epoch &&
	       a->shuffled == b->shuffled && a->lanes == b->lanes && a->drift == b->drift &&
	       a->first_lane == b->first_lane && a->end_lane == b->end_lane && a->place.at == b->place.at &&
	       (a->place.then == NULL) == (b->place.then == NULL);
}

/* Marks duplicate cursors: the ranks of a job have the same order, and usually the same position. */
static void find_doubles(struct cached_dataset *d)
{
	for (struct cached_cursor *k = d->cursors; k; k = k->next) {
		const struct cached_cursor *o = d->cursors;

		while (o != k && !is_same_place(o, k))
			o = o->next;
		k->double_of = o != k;
	}
}

struct policy_segment cache_look_at(const struct cache *c, const struct segment *s,
				    const struct cached_dataset *wanting)
{
	const struct cached_dataset *d = s->dataset;
	const struct cached_chunk *k = cache_chunk_of(s);
	struct policy_segment look = {.distance = POLICY_NEVER,
				      .next_use = POLICY_NEVER,
				      .ordered = d->cursors,
				      .own = d == wanting,
				      .reach = policy_far_reach(d->held_bytes / d->segment_bytes),
				      .excess = d->held_bytes > d->space_bytes,
				      .busy = s->filling,
				      .empty = !k,
				      .idle = d->n_sessions == 0 && !residents_are_used(d)};

	look.beyond_quota = c->quotas.n > 0 && look.excess && !look.own && !look.idle;
	if (!k)
		return look;
	if (k->round == c->round)
		look.distance = k->distance;
	look.next_use = cached_next_use(d, s->chunk);
	look.busy = cached_is_loading(k) || k->pins > 0;
	look.kept = k->kept;
	look.foreign = k->is_foreign;
	look.last_use = k->last_use;
	return look;
}

/* Sorts the segments to evict first to the front. */
static int by_rank(const void *a, const void *b)
{
	const struct cache_entry *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (policy_is_better_victim(&x->look, &y->look))
		return -1;
	return policy_is_better_victim(&y->look, &x->look) ? 1 : 0;
}

void cache_rank(const struct cache *c, const struct cached_dataset *wanting, struct cache_entry *entries,
		size_t n)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next)
		find_doubles(d);
	for (size_t i = 0; i < n; i++) {
		entries[i].look = cache_look_at(c, entries[i].segment, wanting);
		entries[i].rank = policy_victim_rank(&entries[i].look, 0);
	}
	qsort(entries, n, sizeof(*entries), by_rank);
}

static bool is_candidate(const struct candidates *which, const struct segment *s)
{
	const struct segment *like = which->mapped_like;

	if (which->own && s->dataset != which->wanting)
		return false;
	if (which->beyond_quotas && s->dataset != which->wanting && cached_is_paid(s->dataset))
		return false;
	if (which->is_spare && (s->dataset->n_sessions > 0 || s->dataset->copy.uid != which->uid))
		return false;
	return !like || (s != like && s->mapped && s->dataset == like->dataset &&
			 s->memory.bytes == like->memory.bytes);
}

/* Fills the list again. If memory runs out, the list is empty. */
static void look_for_victims(const struct cache *c, const struct candidates *which, struct victim_list *list)
{
	_cleanup_(freep) struct cache_entry *entries = calloc(c->segments.n + 1, sizeof(*entries));
	uint32_t n = 0, most;

	list->n = list->next = 0;
	list->own = which->own;
	list->beyond_quotas = which->beyond_quotas;
	list->is_spare = which->is_spare;
	for (uint32_t i = 0; entries && i < c->segments.size; i++) {
		if (c->segments.all[i] && is_candidate(which, c->segments.all[i]))
			entries[n++].segment = c->segments.all[i];
	}
	most = n / PART + 1;
	if (most > list->size) {
		struct victim *grown = reallocarray(list->victims, most, sizeof(*grown));

		if (!grown)
			return;
		list->victims = grown;
		list->size = most;
	}
	cache_rank(c, which->wanting, entries, n);
	while (list->n < most && list->n < n && entries[list->n].rank > 0) {
		const struct cache_entry *e = &entries[list->n];

		list->victims[list->n++] =
		    (struct victim){.segment = e->segment->id, .rank = e->rank, .chunk = e->segment->chunk};
	}
}

/* Returns the first listed segment that may be evicted for a chunk at this distance and has not changed.
 * NULL: none. */
static struct segment *take_victim(const struct cache *c, const struct candidates *which,
				   struct victim_list *list, uint32_t distance)
{
	for (uint32_t i = list->next; i < list->n; i++) {
		const struct victim *v = &list->victims[i];
		struct segment *s = cache_find_segment(c, v->segment);
		struct policy_segment look;
		bool same = s && s->chunk == v->chunk && is_candidate(which, s);

		if (same)
			look = cache_look_at(c, s, which->wanting);
		same = same && policy_victim_rank(&look, 0) >= v->rank;
		if (same && policy_victim_rank(&look, distance) == 0)
			continue;
		/* Consumes this entry, and earlier ones that are needed too soon. */
		list->next = i + 1;
		if (same)
			return s;
	}
	return NULL;
}

struct segment *cache_pick_victim(struct cache *c, const struct candidates *which, struct victim_list *list,
				  uint32_t distance)
{
	bool is_such = list->own == which->own && list->is_spare == which->is_spare &&
		       list->beyond_quotas == which->beyond_quotas;
	struct segment *s = is_such ? take_victim(c, which, list, distance) : NULL;

	if (!s) {
		residents_note_uses(c);
		look_for_victims(c, which, list);
		s = take_victim(c, which, list, distance);
	}
	if (s)
		s->dataset->evicts = true;
	return s;
}

void cache_forget_victims(struct cache *c)
{
	c->victims.n = c->victims.next = 0;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		d->victims.n = d->victims.next = 0;
		d->mapped_victims.n = d->mapped_victims.next = 0;
	}
}
