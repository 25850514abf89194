/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A cache whose chunks count as read as soon as the test says so, in real memory. Each test includes it
 * once. */

#include "real_cache.h"

#include <errno.h>

#define N_CHUNKS 20

/* One sample per chunk, in segments of one size, or with a much larger chunk at the end. */
static const struct dataset_plan even = {.n_samples = N_CHUNKS, .bytes = 60000, .n_a_chunk = 1},
				 uneven = {.n_samples = N_CHUNKS,
					   .bytes = 40000,
					   .spread = 20000,
					   .giant = 300000,
					   .n_a_chunk = 1};

struct fixture {
	struct real_cache f;
	struct cache *cache;
	struct cached_dataset *d;
	uint64_t unit; /* bytes of a segment */
};

static inline struct cached_dataset *open_dataset(struct real_cache *f, const char *root, const char *name,
						  const struct dataset_plan *plan)
{
	char *path = make_dataset(root, name, plan);
	struct cached_dataset *d = real_cache_open(f, path, NULL);

	assert_int_equal(d->info.n_chunks, plan->n_samples);
	free(path);
	return d;
}

/* Starts a cache with capacity for n_chunks chunks of the dataset. Its session needs one chunk at a time. */
static inline void start(struct fixture *f, const char *root, const struct dataset_plan *plan,
			 uint64_t n_chunks)
{
	real_cache_start(&f->f);
	f->cache = &f->f.cache;
	f->d = open_dataset(&f->f, root, "data", plan);
	f->unit = f->d->segment_bytes;
	f->d->refs = f->d->n_sessions = 1;
	f->d->need_bytes = f->unit;
	f->cache->limit_bytes = f->d->copy.bytes + n_chunks * f->unit;
	cache_fit(f->cache);
	f->cache->round++;
}

static inline void stop(struct fixture *f)
{
	f->d->refs = f->d->n_sessions = 0;
	real_cache_stop(&f->f);
}

/* Takes memory for the whole chunk. */
static inline struct segment *take_whole(struct cache *c, struct cached_dataset *d, uint64_t chunk,
					 uint32_t distance, int *ret_error)
{
	return cache_take_segment(c, d, chunk, distance, NULL, ret_error);
}

/* Makes the chunk count as read. Returns 0 or the error of take_whole(). */
static inline int fill(struct fixture *f, struct cached_dataset *d, uint64_t chunk, uint32_t distance)
{
	int r;
	struct segment *s = take_whole(f->cache, d, chunk, distance, &r);

	if (!s)
		return r;
	d->chunks[chunk].segment = s;
	d->chunks[chunk].state = CHUNK_VERIFYING;
	cache_note_ready(f->cache, d, chunk);
	real_cache_check(f->cache);
	assert_true(f->cache->segment_bytes <= cache_segment_limit(f->cache, f->cache->budget_bytes));
	return 0;
}

/* Returns which chunks are in memory. Bit i is chunk i. */
static inline uint32_t in_memory(const struct cached_dataset *d)
{
	uint32_t bits = 0;

	for (uint64_t i = 0; i < d->info.n_chunks; i++) {
		assert_int_equal(d->chunks[i].state == CHUNK_READY, d->chunks[i].segment != NULL);
		bits |= (uint32_t)(d->chunks[i].state == CHUNK_READY) << i;
	}
	return bits;
}
