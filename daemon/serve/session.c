/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/apart/codec.h"
#include "daemon/cache/forms.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/units.h"
#include "daemon/cache/peers/sharers.h"

static void slot_free(struct session *s, struct slot *slot)
{
	batch_unpin(&slot->batch, s->dataset);
	if (slot->frame != FRAME_NONE)
		frames_unref(s->frames, slot->frame);
	slot->frame = FRAME_NONE;
	slot->state = SLOT_FREE;
}

/* Takes back what the client released. */
static void session_reap(struct session *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct slot *slot = &s->slots[i];

		if (slot->state != SLOT_PUBLISHED ||
		    atomic_load(&s->control->slot_state[i]) != RING_SLOT_FREE)
			continue;
		slot_free(s, slot);
	}
}

static struct slot *find_free_slot(struct session *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].state == SLOT_FREE)
			return &s->slots[i];
	}
	return NULL;
}

/* Whether the workers have more of this session's batches than they can fill at a time: what is released
 * meanwhile is found when the first of these is done, before a worker lacks work. */
static bool has_fills_waiting(const struct session *s)
{
	uint32_t n = 0;

	if (s->codecs) /* these wait for more than workers */
		return false;
	for (uint32_t i = 0; i < s->n_slots; i++)
		n += s->slots[i].state == SLOT_FILLING && !s->slots[i].lacks_frame && !s->slots[i].awaits;
	return n > pool_lane_workers(s->cache->pool, &s->job->lane);
}

/* Returns a free slot. If there is none, sees to it that the session is pumped when one is released, and
 * returns NULL. */
static struct slot *take_slot(struct session *s)
{
	struct slot *slot = find_free_slot(s);

	if (slot)
		return slot;
	if (!has_fills_waiting(s))
		ring_daemon_waits(s->control);
	session_reap(s);
	return find_free_slot(s);
}

static void slot_publish(struct session *s, struct slot *slot)
{
	uint32_t number = (uint32_t)(slot - s->slots);
	const struct ring_descriptor descriptor = {
	    .epoch = slot->batch.epoch,
	    .index = slot->batch.index,
	    .generation = slot->generation,
	    .slot = number,
	    .frame = slot->frame,
	    .n_items = slot->batch.status < 0 || s->is_warm ? 0 : slot->batch.n_items,
	    .item_bytes = s->item_bytes,
	    .status = slot->batch.status,
	    .n_damaged = slot->batch.status < 0 ? 0 : slot->batch.n_damaged};

	/* Packed batches are copies, so their chunks may go. */
	if (s->item_bytes)
		batch_unpin(&slot->batch, s->dataset);
	slot->state = SLOT_PUBLISHED;
	atomic_store_explicit(&s->control->slot_state[number], RING_SLOT_LENT, memory_order_relaxed);
	ring_publish(s->control, &s->published, &descriptor);
	s->n_delivered++;
	s->member.n_shared += slot->shared;
	s->cache->counters.batches++;
	s->job->counters.batches++;
	s->job->counters.shared_batches += slot->shared;
	if (slot->shared)
		s->job->shared_from = slot->shared_job;
	s->job->counters.samples += descriptor.n_items;
	s->job->counters.bytes += descriptor.status < 0 ? 0 : slot->batch.bytes;
}

/* Publishes filled slots in order; those from before a seek are dropped. */
static void publish_filled(struct session *s)
{
	while (s->order_first != s->order_last) {
		struct slot *slot = &s->slots[s->order[s->order_first % RING_MAX_SLOTS]];

		if (slot->state != SLOT_FILLED)
			return;
		s->order_first++;
		if (slot->generation == s->generation && !s->orphaned && !s->closing) {
			slot_publish(s, slot);
		} else {
			slot_free(s, slot);
		}
	}
}

static void session_free(struct session *s)
{
	struct cached_dataset *d = s->dataset;

	if (s->job) {
		session_add_waits(s, clock_monotonic_ns(), &s->job->counters);
		sharer_leave(s->sharer);
		jobs_leave(s->job);
	}
	s->cache->slot_bytes -= s->cost_bytes;
	for (uint32_t i = 0; i < s->n_slots; i++)
		batch_free(&s->slots[i].batch);
	batch_free(&s->head);
	session_plan_free(s);
	codecs_free(s->codecs);
	forms_close(s->forms);
	shared_memory_free(&s->control_memory);
	frames_leave(s->frames, s->n_slots);
	d->n_sessions--;
	d->need_bytes -= s->need_bytes;
	d->need_chunks -= s->need_chunks;
	place_unref(s->place);
	d->refs--;
	if (d->n_sessions == 0)
		d->idle_since_ns = clock_monotonic_ns();
	s->cache->needs_changed = true;
	free(s);
}

void session_add_waits(const struct session *s, uint64_t now_ns, struct job_counters *counters)
{
	struct ring_control *control = s->control;
	uint64_t since_ns = atomic_load(&control->wait_since_ns);
	uint64_t open_ns = since_ns && since_ns < now_ns && !s->closing ? now_ns - since_ns : 0;

	counters->n_waits += atomic_load(&control->n_waits);
	counters->wait_fetch_ns += atomic_load(&control->wait_fetch_ns);
	counters->wait_prep_ns += atomic_load(&control->wait_prep_ns);
	if (ring_cause_fetches(atomic_load(&control->cause)))
		counters->wait_fetch_ns += open_ns;
	else
		counters->wait_prep_ns += open_ns;
}

static void fill_work(struct pool_task *task)
{
	struct slot *slot = (struct slot *)task;
	struct session *s = slot->session;
	uint8_t *frame = frames_at(s->frames, slot->frame);

	frames_prepare(s->frames, slot->frame);
	if (slot->keep) {
		frames_prepare(slot->keep, slot->keep_frame);
		batch_copy(&s->frames->frame[slot->frame].batch, frames_at(slot->keep, slot->keep_frame),
			   frame, &s->layout, &s->request.recipe);
	}
	if (slot->from) {
		batch_copy(&slot->from->frame[slot->from_frame].batch, frame,
			   frames_at(slot->from, slot->from_frame), &s->layout, &s->request.recipe);
		return;
	}
	if (s->codecs) {
		batch_decode(&slot->batch, s->dataset, s->codecs, &s->request.recipe, s->frames->memory.data,
			     slot->frame, &s->layout, &slot->decoded);
		task->elsewhere_ns = slot->decoded.counted.cpu_ns;
		return;
	}
	batch_write(&slot->batch, frame, &s->layout, s->item_bytes);
}

static void note_damage(struct session *s, const struct batch *b)
{
	struct cache *c = s->cache;

	log_limited(cache_lines_of(c, s->uid), LOG_LEVEL_WARNING, "%s (%u of batch %llu of epoch %llu)",
		    b->damage, b->n_damaged, (unsigned long long)b->index, (unsigned long long)b->epoch);
}

static void note_replaced(const struct session *s, uint64_t n)
{
	struct cache *c = s->cache;

	log_limited(cache_lines_of(c, s->uid), LOG_LEVEL_WARNING,
		    "job %llu: %llu decoder%s replaced after ending, or taking too long for a sample: "
		    "`journalctl -k -g "
		    "dieseld` shows whether the kernel killed them",
		    (unsigned long long)s->job->id, (unsigned long long)n, units_plural(n));
}

/* What a worker has decoded becomes its job's. */
static void count_decoded(struct session *s, struct slot *slot)
{
	const struct batch_decoded *decoded = &slot->decoded;
	struct decode_counters *sum = &s->job->counters.decoded;
	struct cache *c = s->cache;

	sum->samples += decoded->counted.samples;
	sum->damaged += decoded->counted.damaged;
	sum->cpu_ns += decoded->counted.cpu_ns;
	sum->replaced += decoded->counted.replaced;
	if (decoded->counted.replaced)
		note_replaced(s, decoded->counted.replaced);
	batch_forms_enter(&slot->batch, c);
	for (int i = 0; i < CODEC_N_WAYS; i++) {
		s->job->counters.ways[i].n += slot->batch.ways[i].n;
		s->job->counters.ways[i].cpu_ns += slot->batch.ways[i].cpu_ns;
	}
	s->job->counters.prospect.n += slot->batch.prospect.n;
	s->job->counters.prospect.n_served += slot->batch.prospect.n_served;
	s->job->counters.prospect.bytes += slot->batch.prospect.bytes;
	if (decoded->sandbox < 0 && !c->said_bare) {
		log_warning("images are decoded without a sandbox: this system refuses one (%s)",
			    strerror(-decoded->sandbox));
		c->said_bare = true;
	}
}

/* Frees the session if it has ended and no worker needs its memory any more. */
static void session_try_free(struct session *s)
{
	if (s->closing && s->n_filling == 0)
		session_free(s);
}

void session_filled(struct slot *slot)
{
	slot->state = SLOT_FILLED;
	slot->session->n_filling--;
	publish_filled(slot->session);
}

/* The frame that it was copied to holds the batch, too. */
static void copy_done(struct slot *slot)
{
	struct session *s = slot->session;
	struct frame_batch batch = slot->from->frame[slot->from_frame].batch;

	batch.member = 0;
	frames_unref(slot->from, slot->from_frame);
	slot->from = NULL;
	frames_hold(s->frames, slot->frame, &batch);
}

static void fill_done(struct pool_task *task)
{
	struct slot *slot = (struct slot *)task;
	struct session *s = slot->session;
	struct cache *c = s->cache;
	bool copied = slot->from != NULL;

	if (slot->keep)
		group_keep_ended(slot);
	if (slot->from)
		copy_done(slot);
	else if (s->codecs)
		count_decoded(s, slot);
	slot->decode_ns += task->elsewhere_ns;
	/* Its turn is over, and it is not done. */
	if (s->codecs && slot->batch.n_decoded < slot->batch.n_items && slot->generation == s->generation &&
	    !s->closing && !s->orphaned) {
		s->member.progress_ns = clock_monotonic_ns();
		batch_forms_grant(&slot->batch, c, s->forms);
		pool_submit_first(c->pool, &s->job->lane, &slot->task);
		return;
	}
	if (s->codecs && !copied)
		batch_forms_unpin(&slot->batch, c);
	if (slot->batch.n_damaged && !copied)
		note_damage(s, &slot->batch);
	if (s->codecs && !copied)
		group_decode_ended(slot);
	session_filled(slot);
	session_try_free(s);
	cache_changed(c);
}

static void begin_fill(struct slot *slot)
{
	struct session *s = slot->session;

	slot->task =
	    (struct pool_task){.work = fill_work, .done = fill_done, .is_long = s->codecs && !slot->from};
	slot->batch.pool = s->cache->pool;
	slot->batch.task = &slot->task;
	pool_submit(s->cache->pool, &s->job->lane, &slot->task);
}

static void decode(struct slot *slot)
{
	batch_forms_grant(&slot->batch, slot->session->cache, slot->session->forms);
	begin_fill(slot);
}

void session_fill(struct slot *slot)
{
	struct session *s = slot->session;

	slot->frame = frames_take(s->frames);
	slot->lacks_frame = slot->frame == FRAME_NONE;
	if (slot->lacks_frame)
		return;
	if (s->codecs)
		group_keep(slot);
	if (s->codecs && !slot->from) {
		group_decode_begins(slot);
		batch_forms_find(&slot->batch, s->forms);
		decode(slot);
		return;
	}
	begin_fill(slot);
}

/* Two of its slots never stand for one frame: who holds a batch may write to it, and its mapping has one copy
 * of a page. */
static bool has_frame(const struct session *s, uint32_t frame)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].frame == frame)
			return true;
	}
	return false;
}

void session_fill_from(struct slot *slot, struct frames *from, uint32_t frame)
{
	struct session *s = slot->session;
	const struct frame_batch *found = &from->frame[frame].batch;

	slot->shared = from != s->frames || found->member != s->frames_member;
	slot->shared_job = found->job;
	batch_adopt(&slot->batch, found);
	frames_ref(from, frame);
	if (from == s->frames && !has_frame(s, frame)) {
		slot->frame = frame;
		session_filled(slot);
		return;
	}
	slot->from = from;
	slot->from_frame = frame;
	session_fill(slot);
}

static void dispatch(struct session *s, struct slot *slot, const struct group_source *source)
{
	struct batch empty = slot->batch;
	uint64_t epoch = s->head.epoch, index = s->head.index;

	slot->batch = s->head;
	s->head = empty;
	s->has_head = false;
	if (slot->batch.status == 0 && !source->frames)
		batch_pin(&slot->batch, s->cache, s->dataset);
	slot->state = SLOT_FILLING;
	slot->generation = s->generation;
	slot->shared = false;
	s->order[s->order_last++ % RING_MAX_SLOTS] = (uint32_t)(slot - s->slots);
	s->n_filling++;
	if (source->frames)
		session_fill_from(slot, source->frames, source->frame);
	else if (source->slot)
		slot->awaits = source->slot;
	else
		session_fill(slot);
	group_passed(s, epoch, index);
}

static const enum ring_cause causes[] = {[BATCH_READY] = RING_CAUSE_PREP,
					 [BATCH_VERIFY] = RING_CAUSE_PREP,
					 [BATCH_STAGING] = RING_CAUSE_STAGING,
					 [BATCH_PEERS] = RING_CAUSE_PEERS,
					 [BATCH_FETCH] = RING_CAUSE_FETCH};

static void set_cause(struct session *s, enum ring_cause cause)
{
	if (atomic_load_explicit(&s->control->cause, memory_order_relaxed) != (uint32_t)cause)
		atomic_store_explicit(&s->control->cause, (uint32_t)cause, memory_order_relaxed);
}

void session_pump(struct session *s)
{
	if (s->closing)
		return;
	session_reap(s);
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].lacks_frame)
			session_fill(&s->slots[i]);
	}
	while (!s->stopped) {
		enum batch_wait wait = BATCH_READY;
		struct group_source source;
		struct slot *slot;
		bool found;

		if (!s->has_head && !session_prepare_head(s))
			return;
		if (s->is_warm && !session_warm_look(s))
			return;
		found = group_find(s, &s->head, &source);
		if (!found && group_is_copied(s, &s->head)) {
			set_cause(s, RING_CAUSE_PREP);
			return;
		}
		if (!found)
			wait = batch_check(&s->head, s->dataset, clock_monotonic_ns());
		/* What the client would wait for now: a batch that is being filled comes first. */
		set_cause(s, s->order_first != s->order_last ? RING_CAUSE_PREP : causes[wait]);
		if (wait != BATCH_READY) {
			/* Views that the client holds may be what keeps its chunks out. */
			if (s->starved && s->item_bytes == 0)
				ring_daemon_waits(s->control);
			return;
		}
		slot = take_slot(s);
		if (!slot || (!found && group_holds_back(s, clock_monotonic_ns())))
			return;
		dispatch(s, slot, &source);
	}
}

uint32_t session_seek(struct session *s, uint64_t epoch, uint64_t batch)
{
	s->generation++;
	s->epoch = epoch;
	s->index = session_first_index(s, epoch, batch);
	s->has_head = false;
	s->n_ahead = 0;
	publish_filled(s);
	group_moved(s);
	return s->generation;
}

/* Whether the chunk has to be loaded. */
static bool lacks(struct session *s, uint32_t chunk)
{
	if (s->is_warm && session_warm_is_elsewhere(s, chunk))
		return false;
	return cached_lacks(s->dataset, chunk, &s->want);
}

bool session_mark(struct session *s, uint64_t *ret_chunk, uint32_t *ret_distance)
{
	struct cached_dataset *d = s->dataset;
	uint32_t from = s->is_warm ? SESSION_WARM_DISTANCE : 0;
	bool missing = false, kept;

	/* Where batches are asked for, reading ahead goes on between them. */
	if ((!s->has_head && !s->asked) || s->closing || s->stopped)
		return false;
	kept = group_kept_run(s) > 0; /* it needs no chunk */
	for (uint32_t i = 0; s->has_head && s->head.status == 0 && !kept && i < s->head.n_chunks; i++) {
		uint32_t chunk = s->head.chunks[i];

		cache_mark(s->cache, d, chunk, from);
		if (!missing && lacks(s, chunk)) {
			*ret_chunk = chunk;
			*ret_distance = from;
			missing = true;
		}
	}
	for (uint32_t i = 0; i < s->n_ahead; i++) {
		uint32_t chunk = s->ahead[i];

		cache_mark(s->cache, d, chunk, from + i + 1);
		if (!missing && lacks(s, chunk)) {
			*ret_chunk = chunk;
			*ret_distance = from + i + 1;
			missing = true;
		}
	}
	return missing;
}

bool session_is_drained(const struct session *s)
{
	return s->order_first == s->order_last && atomic_load(&s->control->consumed) == s->published;
}

uint32_t session_orphan(struct session *s)
{
	uint32_t n_held = 0;

	s->stopped = s->orphaned = true;
	group_moved(s);
	session_drop_cursor(s);
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].state == SLOT_PUBLISHED)
			ring_revoke(s->control, i);
	}
	session_reap(s);
	for (uint32_t i = 0; i < s->n_slots; i++)
		n_held += s->slots[i].state == SLOT_PUBLISHED;
	session_reserve_pinned(s);
	return n_held;
}

/* It lacks a frame still, and gets none. */
static void slot_give_up(struct slot *slot)
{
	slot->lacks_frame = false;
	if (slot->from)
		frames_unref(slot->from, slot->from_frame);
	slot->from = NULL;
	session_filled(slot);
}

void session_end(struct session *s)
{
	if (s->job)
		session_count_taken(s, clock_monotonic_ns());
	s->closing = true;
	if (s->codecs)
		codecs_cancel(s->codecs);
	session_drop_cursor(s);
	group_leave(s);
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->slots[i].lacks_frame)
			slot_give_up(&s->slots[i]);
		if (s->slots[i].state != SLOT_PUBLISHED)
			continue;
		slot_free(s, &s->slots[i]);
	}
	session_try_free(s);
}

void session_usage(const struct session *s, struct session_usage *ret)
{
	uint32_t consumed = s->orphaned ? s->published : atomic_load(&s->control->consumed);

	*ret = (struct session_usage){.ready = s->published - consumed, .waits_for = ""};
	for (uint32_t i = 0; i < s->n_slots; i++) {
		const struct slot *slot = &s->slots[i];

		if (slot->batch.pinned)
			ret->pinned_chunks += slot->batch.n_chunks;
		if (slot->state == SLOT_PUBLISHED &&
		    atomic_load(&s->control->slot_state[i]) != RING_SLOT_FREE)
			ret->held++;
	}
	/* `consumed` comes from the client, and may be wrong. */
	if (ret->ready > ret->held)
		ret->ready = ret->held;
	ret->held -= ret->ready;
	if (s->has_head)
		ret->waits_for = ret->ready == s->n_slots || atomic_load(&s->control->daemon_waits) ? "client"
				 : ring_cause_fetches(atomic_load(&s->control->cause))              ? "fetch"
												    : "prep";
}
