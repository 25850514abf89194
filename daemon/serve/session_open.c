/* SPDX-License-Identifier: Apache-2.0 */
/* Admission of a session: its window, its slots, and whether the cache has room for what it needs. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "daemon/apart/codec.h"
#include "dataset/subset.h"
#include "daemon/cache/forms.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "lib/units.h"
#include "daemon/apart/plugin.h"
#include "daemon/cache/policy.h"

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + 4095) & ~UINT64_C(4095);
}

uint64_t session_available_bytes(const struct session *s)
{
	const struct cache *c = s->cache;
	uint64_t available = cache_segment_limit(c, c->limit_bytes);
	uint64_t used = cache_stuck_bytes(c, CACHE_ANYBODY);

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d != s->dataset && d->n_sessions > 0)
			used += cached_need_bytes(d);
	}
	return available > used ? available - used : 0;
}

/* Processes that decode for it at a time, and are kept: no more than threads that can wait for them. */
static uint32_t max_codecs(const struct session *s, uint32_t n_slots)
{
	uint32_t n_workers = pool_workers(s->cache->pool);

	if (!s->request.recipe.kind)
		return 0;
	return n_workers < n_slots ? n_workers : n_slots;
}

static uint64_t slot_cost(const struct session *s, uint32_t n_slots)
{
	/* A plug-in decodes to memory of its own first. */
	uint64_t codec_bytes =
	    CODEC_IDLE_BYTES + (s->request.recipe.kind == RECIPE_CODEC ? s->item_bytes : 0);

	return n_slots * s->layout.slot_bytes + page_up(sizeof(struct ring_control)) +
	       (n_slots + 1) * batch_bytes(s->batch, s->dataset->info.n_chunks) +
	       max_codecs(s, n_slots) * codec_bytes +
	       (s->request.flags & DIESEL_ASKED ? n_slots * sizeof(*s->asked) : 0) +
	       (s->subset ? subset_bytes(s->dataset->info.n_samples) : 0) +
	       (uint64_t)s->batch * 3 * sizeof(uint64_t) + s->dataset->info.n_chunks * 2 * sizeof(uint32_t);
}

/* fits: a window for which there is room; 0: none. */
static int refuse(const struct session *s, uint64_t bytes, uint32_t window, uint32_t fits, struct error *err)
{
	char text[16], budget[16], hint[40] = "";

	if (fits)
		snprintf(hint, sizeof(hint), " (window_chunks=%u fits)", fits);
	return error_set(
	    err, -ENOSPC,
	    "a session on %s with batch %u and a window of %u chunk%s needs %s beside what is in "
	    "use, the cache of %s cannot hold that: start dieseld with a larger --cache, or use "
	    "a smaller window or batch%s%s",
	    s->dataset->path, s->request.batch, window, units_plural(window),
	    units_format_bytes(text, sizeof(text), bytes),
	    units_format_bytes(budget, sizeof(budget), s->cache->limit_bytes), hint,
	    s->request.recipe.kind ? ", or leave the transforms to Python (native=False)" : "");
}

/* Finds what the session needs with so many slots: in any order, or (exact) in that of its first epoch. */
static int find_need(struct session *s, const uint32_t *samples, uint32_t n_slots)
{
	struct epoch_plan *first = &s->plans[s->request.epoch & 1];
	struct session_shape shape;
	int r = 0;

	s->n_slots = n_slots;
	s->cost_bytes = slot_cost(s, n_slots);
	session_shape(s, &shape);
	s->need_chunks = session_need_at_most(&shape, samples);
	s->need_bytes = cached_largest_bytes(s->dataset, s->need_chunks);
	if (s->exact) {
		r = session_need_bytes(s->dataset, &shape, first->plan, NULL, &first->need_bytes);
		s->need_bytes = first->need_bytes;
	}
	return r;
}

/* What this session and the dataset's other sessions need together. */
static uint64_t bytes_together(const struct session *s)
{
	const struct cached_dataset *d = s->dataset;
	uint64_t bytes = d->need_bytes + s->need_bytes;

	return (bytes < d->all_bytes ? bytes : d->all_bytes) + s->cost_bytes;
}

/* A window for which there is room; 0: none was found. The request is then no longer what it was. */
static uint32_t smaller_window(struct session *s, const uint32_t *samples, uint64_t available)
{
	for (uint32_t g = s->request.window_chunks / 2; g > 0; g /= 2) {
		s->request.window_chunks = g;
		if (find_need(s, samples, RING_MIN_SLOTS) == 0 && bytes_together(s) <= available)
			return g;
	}
	return 0;
}

/* Picks the number of slots for which there is room. */
static int session_admit(struct session *s, struct error *err)
{
	uint32_t wanted = s->request.slots > s->options->n_slots ? s->request.slots : s->options->n_slots;
	uint64_t n_chunks = s->dataset->info.n_chunks, available = session_available_bytes(s);
	_cleanup_(freep) uint32_t *samples = reallocarray(NULL, n_chunks, sizeof(*samples));
	uint32_t window = s->request.window_chunks;
	uint64_t bytes;
	int r = samples ? 0 : -ENOMEM;

	if (r == 0) {
		shuffle_count_chunks(s->subset, s->chunk_samples, n_chunks, samples);
		qsort(samples, n_chunks, sizeof(*samples), compare_u32);
	}
	if (s->is_warm) /* it holds nothing */
		wanted = RING_MIN_SLOTS;
	wanted = policy_fit_slots(wanted, RING_MIN_SLOTS, s->layout.slot_bytes, available);
	/* What is asked for has no order that could need less than the worst. */
	for (int exact = 0; exact < (s->request.flags & DIESEL_ASKED ? 1 : 2); exact++) {
		s->exact = exact;
		for (uint32_t n = wanted; n >= RING_MIN_SLOTS && r == 0; n--) {
			r = find_need(s, samples + n_chunks - s->n_chunks, n);
			if (r == 0 && bytes_together(s) <= available)
				return 0;
		}
	}
	if (r < 0)
		return error_errno(err, r, "cannot open the session");
	bytes = bytes_together(s);
	s->exact = false;
	return refuse(s, bytes, window, smaller_window(s, samples + n_chunks - s->n_chunks, available), err);
}

/* Its own, or those of its group. There is more room than it needs where others may join. */
static int session_frames(struct session *s)
{
	bool decodes = s->request.recipe.kind != RECIPE_NONE;
	uint32_t room = decodes && !(s->request.flags & DIESEL_PINNABLE) ? FRAMES_MEMBERS : 1;
	struct frames *f = room > 1 ? group_frames(s) : NULL;
	int r = f ? 0 : frames_new(s->cache, s->layout.slot_bytes, s->n_slots * room, decodes, &f);

	if (r < 0)
		return r;
	s->frames = f;
	s->frames_member = frames_join(f, s->n_slots);
	return 0;
}

static int session_memory(struct session *s, int plugin_fd, struct error *err)
{
	int r = s->cache->handler.may_take
		    ? s->cache->handler.may_take(s->cache->handler.user, s->cost_bytes, err)
		    : 0;

	if (r < 0)
		return r;
	if (!cache_make_room(s->cache, s->cost_bytes))
		return error_set(err, -ENOSPC,
				 "the cache has no room for the session's batches: all is in use");
	r = shared_memory_new("diesel-control", page_up(sizeof(struct ring_control)), SHARED_CONTROL,
			      &s->control_memory);
	if (r == 0)
		r = session_frames(s);
	for (uint32_t i = 0; i < s->n_slots && r == 0; i++) {
		s->slots[i].session = s;
		s->slots[i].frame = FRAME_NONE;
		r = batch_init(&s->slots[i].batch, s->batch, s->dataset->info.n_chunks);
	}
	if (r == 0)
		r = batch_init(&s->head, s->batch, s->dataset->info.n_chunks);
	if (r == 0 && s->request.recipe.kind)
		r = codecs_new(s->cache->readers.nursery, &s->request.recipe, plugin_fd, s->request.seed,
			       &s->layout, s->frames->n_frames, s->batch, s->frames->memory.data,
			       s->frames->memory.fd, max_codecs(s, s->n_slots), &s->codecs);
	if (r == 0 && s->request.flags & DIESEL_ASKED)
		r = session_asked_init(s);
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
	codecs_free(s->codecs);
	forms_close(s->forms);
	shared_memory_free(&s->control_memory);
	if (s->frames)
		frames_leave(s->frames, s->n_slots);
	free(s);
}

static void choose_window(struct session *s, char *notice, size_t size)
{
	uint64_t n_chunks = s->n_chunks;
	uint32_t asked = s->request.window_chunks, wanted = s->options->window_chunks;
	uint64_t bytes;

	if (s->request.flags & DIESEL_ASKED) {
		s->request.window_chunks = 1;
		return;
	}
	if (asked || s->is_of_cluster || s->request.world > 1) {
		/* The others' daemons may have other caches and options, and all ranks need one order. */
		asked = asked ? asked : s->request.lanes > 1 ? SESSION_LANES_WINDOW : SESSION_RANKS_WINDOW;
		s->request.window_chunks = asked < s->n_chunks ? asked : (uint32_t)s->n_chunks;
		return;
	}
	/* The mean chunk of two windows, as if the largest chunks came together. */
	bytes = cached_largest_bytes(s->dataset, 2 * (uint64_t)wanted) /
		(2 * (uint64_t)wanted < n_chunks ? 2 * (uint64_t)wanted : n_chunks);
	s->request.window_chunks =
	    policy_default_window(s->options->window_cache_bytes, bytes, n_chunks, wanted);
	if (s->request.window_chunks < wanted && s->request.window_chunks < n_chunks)
		snprintf(
		    notice, size,
		    "the shuffle window is %u chunk%s instead of %u, because dieseld's cache is small: a "
		    "larger "
		    "--cache, or window_chunks, changes that (and with it the order)",
		    s->request.window_chunks, units_plural(s->request.window_chunks), wanted);
}

/* The items that a slot has room for: the longest batch of any rank, which is no longer than the dataset. */
static int choose_batch(struct session *s, struct error *err)
{
	const struct wire_open_session *q = &s->request;
	uint64_t n_samples = s->n_samples;
	struct shuffle_counts counts;

	if (q->flags & DIESEL_ASKED) {
		s->n_batches = UINT64_MAX;
		s->batch = q->batch;
		return 0;
	}
	if (shuffle_count(n_samples, q->start, q->world, q->batch, q->flags & DIESEL_DROP_LAST, &counts) <
	    0) {
		if (q->start && n_samples >= q->world)
			return error_set(
			    err, -EINVAL,
			    "%llu samples are left in epoch %llu of %s, too few for %u ranks: go on with "
			    "fewer ranks, or with the next epoch",
			    (unsigned long long)(q->start < n_samples ? n_samples - q->start : 0),
			    (unsigned long long)q->epoch, s->dataset->path, q->world);
		return error_set(err, -EINVAL, "%s%s has %llu sample%s, too few for %u ranks",
				 s->subset ? "the subset of " : "", s->dataset->path,
				 (unsigned long long)n_samples, units_plural(n_samples), q->world);
	}
	if (q->lanes > n_samples)
		return error_set(err, -EINVAL, "%s%s has %llu sample%s, too few for %u lanes",
				 s->subset ? "the subset of " : "", s->dataset->path,
				 (unsigned long long)n_samples, units_plural(n_samples), q->lanes);
	s->n_batches = counts.n_batches;
	s->start_batch = counts.first_batch;
	s->batch = counts.max_batch < n_samples ? counts.max_batch : (uint32_t)n_samples;
	return 0;
}

int session_new(struct cache *cache, const struct serving_options *options, struct cached_dataset *dataset,
		uint32_t uid, const struct wire_open_session *request, struct subset *subset,
		struct session **ret, struct wire_session_reply *ret_reply, struct error *err)
{
	struct session *s = calloc(1, sizeof(*s));
	const struct plugin *plugin = NULL;
	int r = 0;

	if (!s) {
		subset_free(subset);
		return error_errno(err, -ENOMEM, "cannot open the session");
	}
	s->subset = subset;
	s->want.subset = subset;
	s->cache = cache;
	s->options = options;
	s->dataset = dataset;
	s->request = *request;
	s->control_memory = SHARED_MEMORY_INIT;
	s->uid = uid;
	s->is_warm = request->flags & DIESEL_WARM;
	if (s->is_warm) /* what it said is that there are others */
		s->request.world = 1;
	s->is_of_cluster = cache->cluster && request->cluster[0] && request->nodes != 1;
	if (request->recipe.kind)
		s->item_bytes = (uint32_t)recipe_item_bytes(&request->recipe);
	else if (!(request->flags & (DIESEL_ASKED | DIESEL_VIEWS)))
		s->item_bytes = dataset->info.equal_bytes;
	if (request->recipe.kind == RECIPE_CODEC)
		r = plugins_find(options->plugins, request->recipe.codec.name, &plugin, err);
	if (r == 0)
		r = session_count_samples(s, err);
	if (r == 0)
		r = choose_batch(s, err);
	if (r == 0) {
		s->layout = ring_layout(s->batch, s->item_bytes);
		choose_window(s, ret_reply->notice, sizeof(ret_reply->notice));
		r = session_plan_init(s, err);
	}
	if (r == 0)
		r = session_admit(s, err);
	if (r == 0)
		r = session_memory(s, plugin ? plugin->fd : -EBADF, err);
	if (r < 0) {
		session_discard(s);
		return r;
	}
	cache->slot_bytes += s->cost_bytes;
	dataset->refs++;
	dataset->n_sessions++;
	dataset->need_bytes += s->need_bytes;
	dataset->need_chunks += s->need_chunks;
	cache->needs_changed = true;
	s->epoch = request->epoch;
	s->index = session_first_index(s, s->epoch, request->first_batch);
	ret_reply->n_batches = s->n_batches;
	ret_reply->slot_bytes = s->layout.slot_bytes;
	ret_reply->n_slots = s->n_slots;
	ret_reply->n_frames = s->frames->n_frames;
	ret_reply->window_chunks = s->request.window_chunks;
	ret_reply->item_bytes = s->item_bytes;
	ret_reply->batch = s->batch;
	*ret = s;
	return 0;
}

void session_find_forms(struct session *s)
{
	struct recipe key;

	if (recipe_form(&s->request.recipe, &key) != RECIPE_FORM_NONE)
		s->forms = forms_open(s->dataset, s->uid, &key);
}
