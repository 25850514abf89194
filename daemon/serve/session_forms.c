/* SPDX-License-Identifier: Apache-2.0 */
/* A slot whose samples are about to be decoded: forms of some may be had from other nodes, where that is
 * cheaper (peers/form_pace.h). It waits for them, for a bounded time; its session's other slots go on. */
#include "session.h"

#include <math.h>
#include <stdlib.h>

#include "forms.h"
#include "lib/clock.h"
#include "lib/sorted.h"
#include "peers/form_asks.h"
#include "peers/sharers.h"

/* Questions of one batch. */
#define ASKS_MAX 16

static double mean_s(const struct codec_cost *cost)
{
	return cost->n > 0 ? (double)cost->cpu_ns / 1e9 / (double)cost->n : NAN;
}

struct form_costs session_form_costs(const struct cache *c, const struct job *job)
{
	const struct codec_cost *ways = job->counters.ways;
	const struct codec_prospect *p = &job->counters.prospect;
	double fresh_s = mean_s(&ways[CODEC_FRESH]), form_s = mean_s(&ways[CODEC_FROM_FORM]);

	return (struct form_costs){.decode_s = isnan(fresh_s) ? mean_s(&ways[CODEC_MADE_FORM]) : fresh_s,
				   .form_s = isnan(form_s) ? mean_s(&ways[CODEC_OUT_OF_IT]) : form_s,
				   .served = p->n > 0 ? (double)p->n_served / (double)p->n : NAN,
				   .form_bytes = p->n > 0 ? (double)p->bytes / (double)p->n : NAN,
				   .workers = pool_lane_workers(c->pool, &job->lane)};
}

/* Goes on with what came, and without the rest. */
static void go_on(struct slot *slot)
{
	struct session *s = slot->session;
	struct cache *c = s->cache;

	if (slot->generation == s->generation && !s->closing && !s->orphaned) {
		session_decode(slot);
		return;
	}
	batch_forms_unpin(&slot->batch, c);
	group_decode_ended(slot);
	session_filled(slot);
	session_try_free(s);
	c->on_change(c->user);
}

static void on_came(struct form_ask *ask)
{
	struct slot *slot = ask->user;
	struct batch *b = &slot->batch;

	for (uint32_t i = 0; ask->n_came > 0 && i < b->n_items; i++) {
		struct batch_item *item = &b->items[i];

		if (item->form)
			continue;
		for (uint32_t k = 0; k < ask->n_came && !item->form; k++) {
			if (ask->first_sample + ask->came[k].sample != item->sample)
				continue;
			item->form = ask->memory;
			item->form_offset = (uint32_t)ask->came[k].offset;
			forms_pin(item->form);
		}
	}
	form_ask_free(ask);
	if (--slot->n_asks == 0)
		go_on(slot);
}

/* The batch's samples of that chunk without a form, each once, in order. */
static uint32_t list_samples(const struct batch *b, uint32_t chunk, uint64_t *samples)
{
	uint32_t n = 0, n_once = 0;

	for (uint32_t i = 0; i < b->n_items; i++)
		if (b->items[i].chunk == chunk && !b->items[i].form)
			samples[n++] = b->items[i].sample;
	qsort(samples, n, sizeof(*samples), compare_u64);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || samples[i] != samples[i - 1])
			samples[n_once++] = samples[i];
	return n_once;
}

/* Where memory is too little for all, each node keeps the forms of the chunks that it owns: together they
 * have room for more. */
static void choose_kept(struct session *s, struct batch *b, const struct form_costs *costs)
{
	double all = costs->form_bytes * (double)s->dataset->info.n_samples;
	bool is_tight = (double)s->forms->limit_bytes < all; /* false where it is not known */

	for (uint32_t i = 0; i < b->n_items; i++) {
		struct batch_item *item = &b->items[i];

		item->is_foreign = s->dataset->chunks[item->chunk].is_foreign;
		item->no_form = is_tight && item->is_foreign;
	}
	b->forms_tight = is_tight;
}

bool session_ask_forms(struct slot *slot)
{
	struct session *s = slot->session;
	struct cache *c = s->cache;
	struct batch *b = &slot->batch;
	struct form_costs costs;
	uint64_t *samples;

	slot->n_asks = 0;
	if (c->gives.forms.travel == FORM_TRAVEL_OFF || !c->cluster || !s->forms || !s->sharer ||
	    b->status < 0)
		return false;
	b->sums = true;
	costs = session_form_costs(c, s->job);
	choose_kept(s, b, &costs);
	if (!(costs.form_bytes > 0) ||
	    !form_pace_asks(&s->sharer->forms, c->gives.forms.travel, &costs, clock_monotonic_ns()))
		return false;
	samples = calloc(b->n_items, sizeof(*samples));
	for (uint32_t i = 0; samples && i < b->n_chunks && slot->n_asks < ASKS_MAX; i++) {
		uint32_t n = sharer_has_elsewhere(s->sharer, b->chunks[i])
				 ? list_samples(b, b->chunks[i], samples)
				 : 0;

		/* None is done before the loop goes on. */
		if (n > 0 && form_ask_begin(s->sharer, s->job, s->forms, b->chunks[i], samples, n,
					    (uint64_t)(costs.form_bytes * n), on_came, slot) == 0)
			slot->n_asks++;
	}
	free(samples);
	return slot->n_asks > 0;
}
