/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves long-lived chunks into huge pages. Where huge pages are expensive (lib/huge_pages.h), a chunk is read
 * into small ones, which is right for a chunk used once. If a chunk is still in use STAY_NS later, a worker
 * moves it into huge pages, one chunk at a time and with at most a tenth of one core.
 */
#include "cache.h"

#include <stdlib.h>

#include "lib/clock.h"
#include "lib/huge_pages.h"

#define STAY_NS (5 * NS_PER_S)
#define REST    9 /* pause between two moves, in durations of the previous move */

struct stay {
	struct pool_task task;
	struct cache *cache;
	struct segment *segment; /* its chunk is pinned, so segment and chunk stay unchanged */
	uint64_t took_ns;
};

static void stay_work(struct pool_task *task)
{
	struct stay *t = (struct stay *)task;
	uint64_t begin = clock_monotonic_ns();

	huge_pages_make(t->segment->memory.data, t->segment->memory.bytes, false);
	t->took_ns = clock_monotonic_ns() - begin;
}

static void stay_done(struct pool_task *task)
{
	struct stay *t = (struct stay *)task;
	struct cache *c = t->cache;

	c->stays.one = NULL;
	c->stays.again_ns = clock_monotonic_ns() + REST * t->took_ns;
	cache_unpin(t->segment->dataset, t->segment->chunk);
	free(t);
	cache_changed(c);
}

void cache_note_use(struct cache *c, struct cached_dataset *d, uint64_t chunk)
{
	struct segment *s = d->chunks[chunk].segment;
	uint64_t now;

	if (s->huge || c->stays.one || c->closing)
		return;
	now = clock_monotonic_ns();
	if (now < c->stays.again_ns || now - s->since_ns < STAY_NS)
		return;
	c->stays.one = calloc(1, sizeof(*c->stays.one));
	if (!c->stays.one)
		return;
	s->huge = true;
	*c->stays.one =
	    (struct stay){.task = {.work = stay_work, .done = stay_done}, .cache = c, .segment = s};
	cache_pin(c, d, chunk);
	pool_submit(c->pool, &c->release_lane, &c->stays.one->task);
}
