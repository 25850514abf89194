/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of a session: its window, its slots, and whether the cache has room for what it needs. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/units.h"
#include "policy.h"

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + 4095) & ~UINT64_C(4095);
}

/* Bytes of the cache's budget that are neither snapshots, nor slots, nor needed by other datasets. */
static uint64_t available_bytes(const struct cache *c, const struct served_dataset *mine)
{
	uint64_t available = cache_segment_limit(c, c->limit_bytes), used = 0;

	for (const struct served_dataset *d = c->datasets; d; d = d->next) {
		if (d != mine && d->n_sessions > 0)
			used +=
			    served_largest_bytes(d, policy_join_need(d->info.n_chunks, d->need_chunks, 0));
	}
	return available > used ? available - used : 0;
}

static uint64_t slot_cost(const struct session *s, uint32_t n_slots)
{
	return n_slots * s->layout.slot_bytes + page_up(sizeof(struct ring_control)) +
	       (n_slots + 1) * batch_bytes(s->batch, s->dataset->info.n_chunks) +
	       (uint64_t)s->batch * sizeof(uint64_t) + s->dataset->info.n_chunks * 2 * sizeof(uint32_t);
}

static void session_shape(const struct session *s, struct policy_shape *shape)
{
	const struct wire_open_session *q = &s->request;

	*shape =
	    (struct policy_shape){.n_samples = s->dataset->info.n_samples,
				  .n_chunks = s->dataset->info.n_chunks,
				  .segment_bytes = s->dataset->segment_bytes,
				  .slot_bytes = s->layout.slot_bytes,
				  .batch_step = (uint64_t)q->world * q->stride * s->batch,
				  .batch = s->batch,
				  .window_chunks = q->window_chunks,
				  .n_slots = q->slots > s->options->n_slots ? q->slots : s->options->n_slots,
				  .views = s->item_bytes == 0};
}

/* Picks the number of slots and checks the room. */
static int session_admit(struct session *s, struct error *err)
{
	struct served_dataset *d = s->dataset;
	struct cache *c = s->cache;
	uint64_t available, together;
	struct policy_shape shape;
	char text[16], budget[16];

	session_shape(s, &shape);
	available = available_bytes(c, d);
	policy_fit_slots(&shape, available, RING_MIN_SLOTS);
	s->n_slots = shape.n_slots;
	s->cost_bytes = slot_cost(s, s->n_slots);
	for (;;) {
		uint64_t need = policy_need_chunks(&shape);

		together = served_largest_bytes(d, policy_join_need(d->info.n_chunks, d->need_chunks, need)) +
			   s->cost_bytes;
		if (together <= available) {
			s->need_chunks = need;
			break;
		}
		if (shape.n_slots <= RING_MIN_SLOTS)
			return error_set(err, -ENOSPC,
					 "a session on %s with batch %u and a window of %u chunks needs %s "
					 "beside what is in use, "
					 "the cache of %s cannot hold that: start dieseld with a larger "
					 "--cache, or use a smaller "
					 "window or batch",
					 d->path, s->request.batch, s->request.window_chunks,
					 units_format_bytes(text, sizeof(text), together),
					 units_format_bytes(budget, sizeof(budget), c->limit_bytes));
		s->n_slots = --shape.n_slots;
		s->cost_bytes = slot_cost(s, s->n_slots);
	}
	return 0;
}

static int session_memory(struct session *s, struct error *err)
{
	int r;

	if (!cache_make_room(s->cache, s->cost_bytes))
		return error_set(err, -ENOSPC,
				 "the cache has no room for the session's batches: all is in use");
	r = shared_memory_new("diesel-control", page_up(sizeof(struct ring_control)), SHARED_CONTROL,
			      &s->control_memory);
	if (r == 0)
		r = shared_memory_new("diesel-batches", s->n_slots * s->layout.slot_bytes, SHARED_SEALED,
				      &s->slot_memory);
	for (uint32_t i = 0; i < s->n_slots && r == 0; i++)
		r = batch_init(&s->slots[i].batch, s->batch, s->dataset->info.n_chunks);
	if (r == 0)
		r = batch_init(&s->head, s->batch, s->dataset->info.n_chunks);
	if (r < 0)
		return error_errno(err, r, "cannot make the session's shared memory");
	s->control = (struct ring_control *)s->control_memory.data;
	s->control->magic = RING_MAGIC;
	s->control->n_slots = s->n_slots;
	s->control->wake_below = s->n_slots / 2;
	atomic_store(&s->control->wanted_workers, RING_NO_WISH);
	return 0;
}

static void session_discard(struct session *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++)
		batch_free(&s->slots[i].batch);
	batch_free(&s->head);
	session_plan_free(s);
	shared_memory_free(&s->control_memory);
	shared_memory_free(&s->slot_memory);
	free(s);
}

static void choose_window(struct session *s, char *notice, size_t size)
{
	const struct snapshot_info *info = &s->dataset->info;
	uint32_t asked = s->request.window_chunks, wanted = s->options->window_chunks;
	uint64_t bytes;

	if (asked) {
		s->request.window_chunks = asked < info->n_chunks ? asked : (uint32_t)info->n_chunks;
		return;
	}
	/* Two windows' chunks, on average; where a few are giants these count. */
	bytes = served_largest_bytes(s->dataset, 2 * (uint64_t)wanted) /
		(2 * (uint64_t)wanted < info->n_chunks ? 2 * (uint64_t)wanted : info->n_chunks);
	s->request.window_chunks =
	    policy_default_window(s->options->window_cache_bytes, bytes, info->n_chunks, wanted);
	if (s->request.window_chunks < wanted && s->request.window_chunks < info->n_chunks)
		snprintf(notice, size,
			 "the shuffle window is %u chunks instead of %u, because dieseld's cache is small: a "
			 "larger "
			 "--cache, or window_chunks, changes that (and with it the order)",
			 s->request.window_chunks, wanted);
}

int session_new(struct cache *cache, const struct serve_options *options, struct served_dataset *dataset,
		const struct wire_open_session *request, struct session **ret,
		struct wire_session_reply *ret_reply, struct error *err)
{
	struct session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_errno(err, -ENOMEM, "cannot open the session");
	s->cache = cache;
	s->options = options;
	s->dataset = dataset;
	s->request = *request;
	s->control_memory = s->slot_memory = SHARED_MEMORY_INIT;
	s->item_bytes = dataset->info.equal_bytes;
	/* No batch has more samples than there are. */
	s->batch =
	    request->batch < dataset->info.n_samples ? request->batch : (uint32_t)dataset->info.n_samples;
	s->layout = ring_layout(s->batch, s->item_bytes);
	choose_window(s, ret_reply->notice, sizeof(ret_reply->notice));
	r = session_admit(s, err);
	if (r == 0)
		r = session_plan_init(s, s->request.window_chunks, err);
	if (r == 0)
		r = session_memory(s, err);
	if (r < 0) {
		session_discard(s);
		return r;
	}
	cache->slot_bytes += s->cost_bytes;
	dataset->refs++;
	dataset->n_sessions++;
	dataset->need_chunks += s->need_chunks;
	cache->needs_changed = true;
	s->epoch = request->epoch;
	s->index = session_first_index(s, request->first_batch);
	ret_reply->n_batches = s->n_batches;
	ret_reply->slot_bytes = s->layout.slot_bytes;
	ret_reply->n_slots = s->n_slots;
	ret_reply->window_chunks = s->request.window_chunks;
	ret_reply->item_bytes = s->item_bytes;
	ret_reply->batch = s->batch;
	*ret = s;
	return 0;
}
