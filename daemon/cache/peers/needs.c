/* SPDX-License-Identifier: Apache-2.0 */
#include "needs.h"

#include <stdlib.h>
#include <string.h>

#include "dataset/subset.h"

/* Orders that nobody walks now, kept for the next epoch's sessions. */
#define MAX_IDLE 4

struct needs {
	struct needs *next;
	struct needs **list; /* NULL: it is out of it */
	uint32_t refs;       /* the list, sessions and windows */
	uint32_t n_sessions;
	struct shuffle_spec spec; /* what it borrows is ours */
	uint32_t *chunk_samples;
	uint64_t *base;
	struct subset *subset;
	uint64_t *ranks; /* a bit each */
	struct shuffle_plan *plans[2];
	uint64_t epochs[2];
	struct needed_window *windows;
};

static void needs_unref(struct needs *n)
{
	if (--n->refs > 0)
		return;
	for (int i = 0; i < 2; i++)
		shuffle_plan_free(n->plans[i]);
	subset_free(n->subset);
	free(n->chunk_samples);
	free(n->base);
	free(n->ranks);
	free(n);
}

static bool is_same_order(const struct shuffle_spec *a, const struct shuffle_spec *b)
{
	return a->seed == b->seed && a->window_chunks == b->window_chunks && a->shuffle == b->shuffle &&
	       a->world == b->world && a->batch == b->batch && a->drop_last == b->drop_last &&
	       a->lanes == b->lanes && a->drift == b->drift && a->n_chunks == b->n_chunks &&
	       subset_is_same(a->subset, b->subset);
}

static int copy_spec(struct needs *n, const struct shuffle_spec *spec)
{
	size_t bytes = spec->n_chunks * sizeof(*spec->chunk_samples);

	n->spec = *spec;
	n->spec.subset = NULL;
	n->spec.rank = 0;
	n->chunk_samples = malloc(bytes + 1);
	n->ranks = calloc(spec->world / 64 + 1, sizeof(*n->ranks));
	if (!n->chunk_samples || !n->ranks || (spec->subset && subset_copy(spec->subset, &n->subset) < 0))
		return -1;
	memcpy(n->chunk_samples, spec->chunk_samples, bytes);
	if (spec->base) {
		n->base = reallocarray(NULL, spec->n_chunks, sizeof(*n->base));
		if (!n->base)
			return -1;
		memcpy(n->base, spec->base, spec->n_chunks * sizeof(*n->base));
	}
	n->spec.base = n->base;
	n->spec.chunk_samples = n->chunk_samples;
	n->spec.subset = n->subset;
	return 0;
}

static void leave_list(struct needs *n)
{
	struct needs **at = n->list;

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->list = NULL;
	needs_unref(n);
}

/* The newest come first. */
static void drop_idle(struct needs **list)
{
	uint32_t n_idle = 0;

	for (struct needs *n = *list, *next; n; n = next) {
		next = n->next;
		if (n->n_sessions == 0 && ++n_idle > MAX_IDLE)
			leave_list(n);
	}
}

static struct needs *needs_new(struct needs **list, const struct shuffle_spec *spec)
{
	struct needs *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->refs = 1;
	if (copy_spec(n, spec) < 0) {
		needs_unref(n);
		return NULL;
	}
	drop_idle(list);
	n->list = list;
	n->next = *list;
	*list = n;
	return n;
}

static struct shuffle_plan *plan_of(struct needs *n, uint64_t epoch)
{
	struct shuffle_plan **plan = &n->plans[epoch & 1];

	if (*plan && n->epochs[epoch & 1] == epoch)
		return *plan;
	shuffle_plan_free(*plan);
	*plan = NULL;
	n->epochs[epoch & 1] = n->spec.epoch = epoch;
	return shuffle_plan_new(&n->spec, plan) < 0 ? NULL : *plan;
}

/* What is marked stays: a rank that is added takes more, and no less. */
static bool mark(struct needs *n, const struct needed_window *w)
{
	struct shuffle_plan *plan = plan_of(n, w->epoch);

	return plan && shuffle_window_mark(plan, w->window, n->ranks, w->words) == 0;
}

/* Without memory its windows lack it: its sessions then load what they miss. */
static void add_rank(struct needs *n, uint32_t rank)
{
	uint64_t bit = UINT64_C(1) << (rank % 64), *word = &n->ranks[rank / 64];

	if (*word & bit)
		return;
	*word |= bit;
	for (struct needed_window *w = n->windows; w; w = w->next)
		(void)mark(n, w);
}

struct needs *needs_join(struct needs **list, const struct shuffle_spec *spec)
{
	struct needs *n = *list;

	if (spec->rank >= spec->world)
		return NULL;
	while (n && !is_same_order(&n->spec, spec))
		n = n->next;
	if (!n)
		n = needs_new(list, spec);
	if (!n)
		return NULL;
	n->refs++;
	n->n_sessions++;
	add_rank(n, spec->rank);
	return n;
}

void needs_leave(struct needs *n)
{
	if (!n)
		return;
	n->n_sessions--;
	needs_unref(n);
}

void needs_free_all(struct needs **list)
{
	while (*list)
		leave_list(*list);
}

static void window_free(struct needed_window *w)
{
	free(w->chunks);
	free(w->first);
	free(w->words);
	free(w);
}

static struct needed_window *window_new(struct needs *n, uint64_t epoch, uint64_t window)
{
	struct shuffle_plan *plan = plan_of(n, epoch);
	struct needed_window *w;
	uint64_t g, visit, end;

	if (!plan || window >= shuffle_n_windows(plan))
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	g = shuffle_window_chunks(plan);
	*w = (struct needed_window){
	    .needs = n,
	    .epoch = epoch,
	    .window = window,
	    .chunks = calloc(g, sizeof(*w->chunks)),
	    .first = calloc(g, sizeof(*w->first)),
	    .words = calloc(shuffle_window_words(plan, window, NULL) + 1, sizeof(*w->words))};
	if (!w->chunks || !w->first || !w->words || !mark(n, w)) {
		window_free(w);
		return NULL;
	}
	shuffle_window_words(plan, window, w->first);
	for (shuffle_window_visits(plan, window, &visit, &end); visit < end; visit++)
		w->chunks[w->n_chunks++] = shuffle_chunk_visit(plan, visit);
	n->refs++;
	w->next = n->windows;
	n->windows = w;
	return w;
}

struct needed_window *needs_window(struct needs *n, uint64_t epoch, uint64_t window)
{
	struct needed_window *w = n->windows;

	while (w && (w->epoch != epoch || w->window != window))
		w = w->next;
	if (!w)
		w = window_new(n, epoch, window);
	if (w)
		w->refs++;
	return w;
}

struct needed_window *needed_window_unref(struct needed_window *w)
{
	struct needed_window **at;

	if (!w || --w->refs > 0)
		return NULL;
	at = &w->needs->windows;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	needs_unref(w->needs);
	window_free(w);
	return NULL;
}

const uint64_t *needed_bits(const struct needed_window *w, uint64_t chunk)
{
	for (uint32_t i = 0; i < w->n_chunks; i++) {
		if (w->chunks[i] == chunk)
			return w->words + w->first[i];
	}
	return NULL;
}
