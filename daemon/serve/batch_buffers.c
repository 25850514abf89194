/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_buffers.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/huge_pages.h"

int batch_buffers_new(struct cache *cache, uint64_t buffer_bytes, uint32_t n_buffers, bool keeps,
		      struct buffers **ret)
{
	struct buffers *f = calloc(1, sizeof(*f) + n_buffers * sizeof(f->buffer[0]));
	int r;

	if (!f)
		return -ENOMEM;
	r = shared_memory_new("diesel-batches", n_buffers * buffer_bytes, SHARED_MAPPABLE, &f->memory);
	if (r < 0) {
		free(f);
		return r;
	}
	f->cache = cache;
	f->buffer_bytes = buffer_bytes;
	f->n_buffers = n_buffers;
	f->keeps = keeps;
	for (uint32_t i = 0; i < n_buffers; i++)
		f->buffer[i].buffers = f;
	*ret = f;
	return 0;
}

static void try_free(struct buffers *f)
{
	if (f->n_members > 0 || f->n_refs > 0 || f->n_going > 0)
		return;
	cache_release(f->cache, &f->memory, f->n_live * f->buffer_bytes);
	free(f);
}

static void punch_work(struct pool_task *task)
{
	struct batch_buffer *buffer = (struct batch_buffer *)task;
	struct buffers *f = buffer->buffers;

	shared_memory_punch(&f->memory, (uint64_t)(buffer - f->buffer) * f->buffer_bytes, f->buffer_bytes);
}

static void punch_done(struct pool_task *task)
{
	struct batch_buffer *buffer = (struct batch_buffer *)task;
	struct buffers *f = buffer->buffers;
	struct cache *c = f->cache;

	buffer->state = BUFFER_ABSENT;
	f->n_going--;
	c->releasing_bytes -= f->buffer_bytes;
	try_free(f);
	cache_changed(c);
}

/* Returns true if a is reused before b. The earlier batch is reused first, because slow members still need
 * the later one. */
static bool goes_first(const struct batch_buffer *a, const struct batch_buffer *b)
{
	if (!a->holds || !b->holds)
		return !a->holds && b->holds;
	return a->batch.epoch != b->batch.epoch ? a->batch.epoch < b->batch.epoch
						: a->batch.index < b->batch.index;
}

static struct batch_buffer *find_earliest(struct buffers *f)
{
	struct batch_buffer *found = NULL;

	for (uint32_t i = 0; i < f->n_buffers; i++) {
		struct batch_buffer *buffer = &f->buffer[i];

		if (buffer->state == BUFFER_LIVE && buffer->n_refs == 0 &&
		    (!found || goes_first(buffer, found)))
			found = buffer;
	}
	return found;
}

void batch_buffers_give_back(struct buffers *f, uint32_t number)
{
	struct batch_buffer *buffer = &f->buffer[number];

	buffer->state = BUFFER_GOING;
	buffer->holds = false;
	f->n_live--;
	f->n_going++;
	f->cache->releasing_bytes += f->buffer_bytes;
	buffer->task = (struct pool_task){.work = punch_work, .done = punch_done};
	pool_submit(f->cache->pool, &f->cache->release_lane, &buffer->task);
}

/* Gives back buffers beyond the limit. */
static void trim(struct buffers *f)
{
	struct batch_buffer *buffer;

	while (f->n_live > f->limit && !f->cache->closing && (buffer = find_earliest(f)))
		batch_buffers_give_back(f, (uint32_t)(buffer - f->buffer));
}

uint32_t batch_buffers_join(struct buffers *f, uint32_t n)
{
	if (n > f->n_buffers - f->limit)
		return 0;
	f->limit += n;
	f->n_members++;
	return ++f->last_member;
}

void batch_buffers_leave(struct buffers *f, uint32_t n)
{
	f->limit -= n;
	f->n_members--;
	if (f->n_members > 0)
		trim(f);
	else
		try_free(f);
}

static struct batch_buffer *find_free(struct buffers *f)
{
	for (uint32_t i = 0; i < f->n_buffers; i++) {
		struct batch_buffer *buffer = &f->buffer[i];

		if ((buffer->state == BUFFER_LIVE && buffer->n_refs == 0 && !f->keeps) ||
		    (buffer->state == BUFFER_ABSENT && f->n_live < f->limit))
			return buffer;
	}
	return find_earliest(f);
}

void batch_buffers_take_this(struct buffers *f, uint32_t number)
{
	struct batch_buffer *buffer = &f->buffer[number];

	if (buffer->state == BUFFER_ABSENT) {
		buffer->state = BUFFER_LIVE;
		buffer->is_new = true;
		f->n_live++;
	}
	buffer->had = buffer->holds;
	buffer->holds = false;
	batch_buffers_ref(f, number);
}

uint32_t batch_buffers_take(struct buffers *f)
{
	const struct batch_buffer *buffer = find_free(f);

	if (!buffer)
		return BATCH_BUFFER_NONE;
	batch_buffers_take_this(f, (uint32_t)(buffer - f->buffer));
	return (uint32_t)(buffer - f->buffer);
}

void batch_buffers_prepare(struct buffers *f, uint32_t buffer)
{
	if (!f->buffer[buffer].is_new)
		return;
	f->buffer[buffer].is_new = false;
	huge_pages_make(batch_buffers_at(f, buffer), f->buffer_bytes, true);
}

void batch_buffers_ref(struct buffers *f, uint32_t buffer)
{
	f->buffer[buffer].n_refs++;
	f->n_refs++;
}

void batch_buffers_unref(struct buffers *f, uint32_t buffer)
{
	f->buffer[buffer].n_refs--;
	f->n_refs--;
	if (f->n_members > 0)
		trim(f);
	else
		try_free(f);
}

void batch_buffers_hold(struct buffers *f, uint32_t buffer, const struct buffer_batch *batch)
{
	f->buffer[buffer].holds = true;
	f->buffer[buffer].batch = *batch;
}

uint32_t batch_buffers_find(const struct buffers *f, uint64_t epoch, uint64_t index)
{
	for (uint32_t i = 0; i < f->n_buffers; i++) {
		const struct batch_buffer *buffer = &f->buffer[i];

		if (buffer->holds && buffer->batch.epoch == epoch && buffer->batch.index == index)
			return i;
	}
	return BATCH_BUFFER_NONE;
}
