/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: chunks in memory from before a restart (handover.h). That memory leaves the cache while it is being
 * copied, and counts as being released. */
#include "source.h"

#include <stdlib.h>

static void *restored_find(struct chunk_load *l, const struct cached_want *want)
{
	struct cached_chunk *k = &l->dataset->chunks[l->chunk];
	struct cache *c = l->cache;
	struct segment *s = k->segment;

	(void)want;
	if (k->state != CHUNK_RESTORED)
		return NULL;
	cache_keep(c, s, false);
	k->segment = NULL;
	k->state = CHUNK_ABSENT;
	c->segments.all[s->id & (SEGMENT_MAX - 1)] = NULL;
	c->segments.n--;
	c->segment_bytes -= s->memory.bytes;
	l->dataset->held_bytes -= s->memory.bytes;
	c->releasing_bytes += s->memory.bytes;
	load_expect(l, &s->stamp);
	return s;
}

static int restored_begin(struct chunk_load *l)
{
	(void)l;
	return 1;
}

static int restored_memory(const struct chunk_load *l)
{
	return ((const struct segment *)l->copy.state)->memory.fd;
}

static void restored_put_back(struct cache *c, struct segment *s)
{
	struct cached_chunk *k = &s->dataset->chunks[s->chunk];

	c->segments.all[s->id & (SEGMENT_MAX - 1)] = s;
	c->segments.n++;
	c->segment_bytes += s->memory.bytes;
	s->dataset->held_bytes += s->memory.bytes;
	k->segment = s;
	k->state = CHUNK_RESTORED;
}

static void restored_end(struct chunk_load *l, enum source_end how)
{
	struct segment *s = l->copy.state;
	struct cache *c = l->cache;

	c->counters.restored += how == SOURCE_USED;
	c->releasing_bytes -= s->memory.bytes;
	if (how == SOURCE_BACK) {
		restored_put_back(c, s);
		return;
	}
	handover_drop(c->handover, s);
	shared_memory_free(&s->memory);
	free(s);
}

const struct chunk_source source_restored = {
    .kind = SOURCE_NEAR,
    .copied_by = "a copy restored after the restart",
    .find = restored_find,
    .begin = restored_begin,
    .memory = restored_memory,
    .end = restored_end,
};
