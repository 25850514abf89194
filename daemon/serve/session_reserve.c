/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that a session keeps reserved. If there is room, it reserves what the worst order of the chunks
 * would need. If there is not (few samples are most of the bytes, and all of them might come together), it
 * reserves what each epoch's own order needs; an epoch that needs more than there is ends in an error.
 */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/diesel.h"
#include "lib/minmax.h"
#include "lib/units.h"

void session_shape(const struct session *s, struct session_shape *ret)
{
	const struct wire_open_session *q = &s->request;
	const struct shuffle_plan *plan = s->plans[q->epoch & 1].plan;
	uint64_t step = min_u64((uint64_t)q->world * s->batch, s->n_samples), first = 0, end = 1;

	if (plan) /* which lanes these are is the same in all epochs, but for one that has a start */
		shuffle_rank_lanes(plan, &first, &end);
	*ret = (struct session_shape){.batch_step = min_u64(step * q->stride, s->n_samples),
				      .step = step,
				      .lanes = q->lanes > 1 ? q->lanes : 1,
				      .n_lanes = end - first,
				      .n_chunks = s->n_chunks,
				      .batch = s->batch,
				      .window_chunks = q->window_chunks,
				      .n_slots = s->n_slots,
				      .views = s->item_bytes == 0,
				      .asked = s->request.flags & DIESEL_ASKED};
}

/* Changes what is reserved; does not grow it if others leave no room for that. */
static void reserve(struct session *s, uint64_t need)
{
	struct cached_dataset *d = s->dataset;
	uint64_t others = d->need_bytes - s->need_bytes, together = others + need;

	if (together > d->all_bytes)
		together = d->all_bytes;
	if (need == s->need_bytes || (need > s->need_bytes && together > session_available_bytes(s)))
		return;
	d->need_bytes = others + need;
	s->need_bytes = need;
	s->cache->needs_changed = true;
	cache_changed(s->cache);
}

static uint64_t largest_need(const struct session *s)
{
	uint64_t a = s->plans[0].need_bytes, b = s->plans[1].need_bytes;

	return a > b ? a : b;
}

int session_note_plan(struct session *s, struct epoch_plan *p)
{
	struct epoch_plan *other = &s->plans[(p->epoch + 1) & 1];
	const struct shuffle_plan *next = other->epoch == p->epoch + 1 ? other->plan : NULL;
	struct session_shape shape;
	int r;

	session_shape(s, &shape);
	r = session_need_bytes(s->dataset, &shape, p->plan, next, &p->need_bytes);
	if (r == 0 && other->plan && other->epoch + 1 == p->epoch)
		r = session_need_bytes(s->dataset, &shape, other->plan, p->plan, &other->need_bytes);
	if (r == 0)
		reserve(s, largest_need(s));
	return r;
}

void session_reserve_pinned(struct session *s)
{
	uint64_t bytes = 0, n_chunks = 0;

	for (uint32_t i = 0; i < s->n_slots; i++) {
		const struct batch *b = &s->slots[i].batch;

		for (uint32_t k = 0; b->pinned && k < b->n_chunks; k++, n_chunks++)
			bytes += s->dataset->chunks[b->chunks[k]].bytes;
	}
	if (n_chunks < s->need_chunks) {
		s->dataset->need_chunks -= s->need_chunks - n_chunks;
		s->need_chunks = n_chunks;
	}
	if (bytes < s->need_bytes)
		reserve(s, bytes);
}

static uint64_t head_bytes(const struct session *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->head.n_chunks; i++)
		bytes += s->dataset->chunks[s->head.chunks[i]].bytes;
	return bytes;
}

void session_check_head(struct session *s)
{
	uint64_t need = s->plans[s->head.epoch & 1].need_bytes;

	if (need > s->need_bytes)
		reserve(s, largest_need(s)); /* other sessions may have ended meanwhile */
	if (s->item_bytes)
		need = head_bytes(s);
	if (need > s->need_bytes)
		session_give_up(s, -ENOSPC, need);
}

void session_give_up(struct session *s, int reason, uint64_t bytes)
{
	char text[400], needed[16], budget[16];

	if (reason == -ENOSPC)
		snprintf(text, sizeof(text),
			 "the order of this epoch takes chunks of %s at one time, and the cache of %s has no "
			 "room for them beside what is in use: start dieseld with a larger --cache, or use a "
			 "smaller window or batch",
			 units_format_bytes(needed, sizeof(needed), bytes ? bytes : head_bytes(s)),
			 units_format_bytes(budget, sizeof(budget), s->cache->limit_bytes));
	else
		snprintf(text, sizeof(text),
			 "dieseld gets no memory for a chunk (%s): raise its limit of open files "
			 "(LimitNOFILE=) or of memory",
			 strerror(-reason));
	batch_fail(&s->head, reason, text);
}
