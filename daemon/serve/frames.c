/* SPDX-License-Identifier: Apache-2.0 */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/huge_pages.h"

int frames_new(struct cache *cache, uint64_t frame_bytes, uint32_t n_frames, bool keeps, struct frames **ret)
{
	struct frames *f = calloc(1, sizeof(*f) + n_frames * sizeof(f->frame[0]));
	int r;

	if (!f)
		return -ENOMEM;
	r = shared_memory_new("diesel-batches", n_frames * frame_bytes, SHARED_LENT, &f->memory);
	if (r < 0) {
		free(f);
		return r;
	}
	f->cache = cache;
	f->frame_bytes = frame_bytes;
	f->n_frames = n_frames;
	f->keeps = keeps;
	for (uint32_t i = 0; i < n_frames; i++)
		f->frame[i].frames = f;
	*ret = f;
	return 0;
}

static void try_free(struct frames *f)
{
	if (f->n_members > 0 || f->n_refs > 0 || f->n_going > 0)
		return;
	cache_release(f->cache, &f->memory, f->n_live * f->frame_bytes);
	free(f);
}

static void punch_work(struct pool_task *task)
{
	struct frame *frame = (struct frame *)task;
	struct frames *f = frame->frames;

	shared_memory_punch(&f->memory, (uint64_t)(frame - f->frame) * f->frame_bytes, f->frame_bytes);
}

static void punch_done(struct pool_task *task)
{
	struct frame *frame = (struct frame *)task;
	struct frames *f = frame->frames;
	struct cache *c = f->cache;

	frame->state = FRAME_ABSENT;
	f->n_going--;
	c->releasing_bytes -= f->frame_bytes;
	try_free(f);
	cache_changed(c);
}

/* Returns true if a is reused before b: the earlier batch goes first, because members that are behind have
 * yet to get the later one. */
static bool goes_first(const struct frame *a, const struct frame *b)
{
	if (!a->holds || !b->holds)
		return !a->holds && b->holds;
	return a->batch.epoch != b->batch.epoch ? a->batch.epoch < b->batch.epoch
						: a->batch.index < b->batch.index;
}

static struct frame *find_earliest(struct frames *f)
{
	struct frame *found = NULL;

	for (uint32_t i = 0; i < f->n_frames; i++) {
		struct frame *frame = &f->frame[i];

		if (frame->state == FRAME_LIVE && frame->n_refs == 0 && (!found || goes_first(frame, found)))
			found = frame;
	}
	return found;
}

void frames_give_back(struct frames *f, uint32_t number)
{
	struct frame *frame = &f->frame[number];

	frame->state = FRAME_GOING;
	frame->holds = false;
	f->n_live--;
	f->n_going++;
	f->cache->releasing_bytes += f->frame_bytes;
	frame->task = (struct pool_task){.work = punch_work, .done = punch_done};
	pool_submit(f->cache->pool, &f->cache->release_lane, &frame->task);
}

/* Gives back frames beyond the limit. */
static void trim(struct frames *f)
{
	struct frame *frame;

	while (f->n_live > f->limit && !f->cache->closing && (frame = find_earliest(f)))
		frames_give_back(f, (uint32_t)(frame - f->frame));
}

uint32_t frames_join(struct frames *f, uint32_t n)
{
	if (n > f->n_frames - f->limit)
		return 0;
	f->limit += n;
	f->n_members++;
	return ++f->last_member;
}

void frames_leave(struct frames *f, uint32_t n)
{
	f->limit -= n;
	f->n_members--;
	if (f->n_members > 0)
		trim(f);
	else
		try_free(f);
}

static struct frame *find_free(struct frames *f)
{
	for (uint32_t i = 0; i < f->n_frames; i++) {
		struct frame *frame = &f->frame[i];

		if ((frame->state == FRAME_LIVE && frame->n_refs == 0 && !f->keeps) ||
		    (frame->state == FRAME_ABSENT && f->n_live < f->limit))
			return frame;
	}
	return find_earliest(f);
}

void frames_take_this(struct frames *f, uint32_t number)
{
	struct frame *frame = &f->frame[number];

	if (frame->state == FRAME_ABSENT) {
		frame->state = FRAME_LIVE;
		frame->is_new = true;
		f->n_live++;
	}
	frame->had = frame->holds;
	frame->holds = false;
	frames_ref(f, number);
}

uint32_t frames_take(struct frames *f)
{
	const struct frame *frame = find_free(f);

	if (!frame)
		return FRAME_NONE;
	frames_take_this(f, (uint32_t)(frame - f->frame));
	return (uint32_t)(frame - f->frame);
}

void frames_prepare(struct frames *f, uint32_t frame)
{
	if (!f->frame[frame].is_new)
		return;
	f->frame[frame].is_new = false;
	huge_pages_make(frames_at(f, frame), f->frame_bytes, true);
}

void frames_ref(struct frames *f, uint32_t frame)
{
	f->frame[frame].n_refs++;
	f->n_refs++;
}

void frames_unref(struct frames *f, uint32_t frame)
{
	f->frame[frame].n_refs--;
	f->n_refs--;
	if (f->n_members > 0)
		trim(f);
	else
		try_free(f);
}

void frames_hold(struct frames *f, uint32_t frame, const struct frame_batch *batch)
{
	f->frame[frame].holds = true;
	f->frame[frame].batch = *batch;
}

uint32_t frames_find(const struct frames *f, uint64_t epoch, uint64_t index)
{
	for (uint32_t i = 0; i < f->n_frames; i++) {
		const struct frame *frame = &f->frame[i];

		if (frame->holds && frame->batch.epoch == epoch && frame->batch.index == index)
			return i;
	}
	return FRAME_NONE;
}
