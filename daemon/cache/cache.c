/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "decoded.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/minmax.h"
#include "daemon/cache/peers/memberships.h"

void cache_drop_dataset(struct cache *c, struct cached_dataset *d)
{
	for (uint32_t i = 0; i < c->segments.size; i++) {
		if (c->segments.all[i] && c->segments.all[i]->dataset == d)
			cache_drop_segment(c, c->segments.all[i]);
	}
	decoded_drop_all(c, d);
	memberships_end_dataset(d);
	LL_DELETE(c->datasets, d);
	reader_let_go(&d->reader);
	c->snapshot_bytes -= d->copy.bytes;
	c->needs_changed = true;
	handover_drop_dataset(c->handover, d);
	cached_free(d);
}

const struct cached_chunk *cache_chunk_of(const struct segment *s)
{
	const struct cached_chunk *k = &s->dataset->chunks[s->chunk];

	return k->segment == s ? k : NULL;
}

/* Returns true if nobody uses the dataset, and none of its chunks is being loaded, or copied for another
 * version of the dataset. */
static bool is_droppable(const struct cache *c, const struct cached_dataset *d)
{
	if (cached_is_used(d) || d->pinned_bytes > 0)
		return false;
	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *s = c->segments.all[i];
		const struct cached_chunk *k = s && s->dataset == d ? cache_chunk_of(s) : NULL;

		if (k && cached_is_loading(k))
			return false;
	}
	return true;
}

void cache_find_holders(struct cache *c)
{
	c->n_held = 0;
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		d->copy.is_held =
		    d->refs == 0 && d->copy.is_borrowed && shared_memory_copy_is_held(d->copy.fd);
		d->copy.is_borrowed = d->copy.is_borrowed && cached_is_used(d);
		c->n_held += d->copy.is_held;
	}
}

void cache_init(struct cache *c, uint64_t bytes)
{
	c->limit_bytes = c->budget_bytes = bytes;
	c->node.borrow_bytes = c->node.ceiling_bytes = UINT64_MAX;
	c->segments.max = SEGMENT_MAX;
	pool_lane_init(&c->release_lane, POOL_DAEMON);
}

void cache_free(struct cache *c)
{
	c->closing = true;
	cache_abandon_loads(c);
	while (c->datasets)
		cache_drop_dataset(c, c->datasets);
	free(c->segments.all);
	free(c->segments.generations);
	free(c->victims.victims);
}

uint64_t cache_segment_limit(const struct cache *c, uint64_t budget_bytes)
{
	uint64_t other = c->slot_bytes + c->snapshot_bytes;

	return budget_bytes > other ? budget_bytes - other : 0;
}

void cache_keep(struct cache *c, struct segment *s, bool kept)
{
	struct cached_chunk *k = &s->dataset->chunks[s->chunk];

	if (k->kept == kept)
		return;
	k->kept = kept;
	c->kept_bytes += kept ? s->memory.bytes : -s->memory.bytes;
	s->dataset->kept_bytes += kept ? s->memory.bytes : -s->memory.bytes;
}

void cache_forget_chunk(struct cache *c, struct segment *s)
{
	struct cached_chunk *k = &s->dataset->chunks[s->chunk];

	if (k->segment != s)
		return;
	residents_leave(s->dataset, s->chunk);
	handover_forget(c->handover, s);
	cache_keep(c, s, false);
	if (k->state == CHUNK_READY)
		s->dataset->n_cached--;
	if (k->state != CHUNK_BAD)
		k->state = CHUNK_ABSENT;
	k->segment = NULL;
	free(k->part);
	k->part = NULL;
}

/* Returns true if the segment can be reused for a chunk of the dataset that takes `bytes`. */
static bool is_reusable(const struct segment *s, const struct cached_dataset *d, uint64_t bytes)
{
	return s->dataset == d && s->memory.bytes == bytes && !s->mapped && !s->restored;
}

static void evict(struct cache *c, struct segment *victim)
{
	c->counters.evictions++;
	cache_drop_segment(c, victim);
}

int cache_add_segment(struct cache *c, struct cached_dataset *d, const struct shared_memory *memory,
		      struct segment **ret)
{
	struct segment *s;
	uint32_t index = 0;

	while (index < c->segments.size && c->segments.all[index])
		index++;
	if (index == c->segments.size) {
		uint32_t size = c->segments.size ? c->segments.size * 2 : 64;
		struct segment **segments = reallocarray(c->segments.all, size, sizeof(struct segment *));
		uint16_t *generations;

		if (!segments || size > SEGMENT_MAX)
			return -ENOMEM;
		c->segments.all = segments;
		generations = reallocarray(c->segments.generations, size, sizeof(*generations));
		if (!generations)
			return -ENOMEM;
		c->segments.generations = generations;
		for (uint32_t i = c->segments.size; i < size; i++) {
			c->segments.all[i] = NULL;
			c->segments.generations[i] = 0;
		}
		c->segments.size = size;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->memory = *memory;
	s->dataset = d;
	s->id = index | (uint32_t)c->segments.generations[index] << SEGMENT_INDEX_BITS;
	c->segments.generations[index] =
	    (c->segments.generations[index] + 1) & ((1u << (32 - SEGMENT_INDEX_BITS)) - 1);
	c->segments.all[index] = s;
	c->segments.n++;
	c->segment_bytes += memory->bytes;
	d->held_bytes += memory->bytes;
	*ret = s;
	return 0;
}

static int add_new_segment(struct cache *c, struct cached_dataset *d, uint64_t bytes, struct segment **ret)
{
	struct shared_memory memory;
	int r = shared_memory_new("diesel-chunk", bytes, SHARED_MAPPABLE, &memory);

	if (r == 0) {
		r = cache_add_segment(c, d, &memory, ret);
		if (r < 0)
			shared_memory_free(&memory);
	}
	return r;
}

/* Memory being returned to the system: freeing its pages takes too long for the loop thread. */
struct release {
	struct pool_task task;
	struct cache *cache;
	struct shared_memory memory;
	uint64_t bytes;
};

static void release_work(struct pool_task *task)
{
	shared_memory_discard(&((struct release *)task)->memory);
}

static void release_done(struct pool_task *task)
{
	struct release *r = (struct release *)task;
	struct cache *c = r->cache;

	c->releasing_bytes -= r->bytes;
	free(r);
	cache_changed(c);
}

void cache_release(struct cache *c, struct shared_memory *memory, uint64_t bytes)
{
	struct release *r = c->closing ? NULL : calloc(1, sizeof(*r));

	if (!r) {
		if (c->closing)
			shared_memory_free(memory);
		else
			shared_memory_discard(memory);
		return;
	}
	*r = (struct release){.task = {.work = release_work, .done = release_done},
			      .cache = c,
			      .memory = *memory,
			      .bytes = bytes};
	c->releasing_bytes += bytes;
	pool_submit(c->pool, &c->release_lane, &r->task);
}

void cache_drop_segment(struct cache *c, struct segment *s)
{
	cache_forget_chunk(c, s);
	c->segments.all[s->id & (SEGMENT_MAX - 1)] = NULL;
	c->segments.n--;
	c->segment_bytes -= s->memory.bytes;
	s->dataset->held_bytes -= s->memory.bytes;
	handover_drop(c->handover, s);
	/* Clients of the previous daemon may map a restored chunk: its pages are not discarded. */
	if (s->restored)
		shared_memory_free(&s->memory);
	else
		cache_release(c, &s->memory, s->memory.bytes);
	free(s);
}

/* Drops a dataset that nobody uses and that has nothing in memory. */
bool cache_drop_empty(struct cache *c)
{
	for (struct cached_dataset *d = c->datasets; d; d = d->next) {
		if (d->held_bytes > 0 || !is_droppable(c, d))
			continue;
		cache_drop_dataset(c, d);
		return true;
	}
	return false;
}

static bool is_unlinked(int fd)
{
	struct statx found;

	return fd >= 0 && statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &found) == 0 &&
	       found.stx_nlink == 0;
}

/* Returns true if the files of the dataset were removed: no client can open it any more. Does not wait for
 * storage, so a removal by another node of a network file system is not noticed. */
static bool cached_is_removed(const struct cached_dataset *d)
{
	return is_unlinked(d->copy.chunks_fd) && is_unlinked(d->copy.original_fd);
}

void cache_drop_removed(struct cache *c)
{
	cache_find_holders(c);
	for (struct cached_dataset *d = c->datasets, *next; d; d = next) {
		next = d->next;
		if (!cached_is_removed(d) || !is_droppable(c, d))
			continue;
		log_info("%s was removed: its chunks in memory and in the staging folder are dropped",
			 d->path);
		stage_forget(c->stage, d->identity.chunks_dev, d->identity.chunks_ino);
		cache_drop_dataset(c, d);
	}
}

static uint64_t borrowed_chunk_bytes(const struct cache *c)
{
	uint64_t bytes = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		uint64_t claimed = d->n_sessions > 0 ? d->claim_bytes : 0;

		bytes += d->held_bytes > claimed ? d->held_bytes - claimed : 0;
	}
	return bytes;
}

uint64_t cache_borrowed_bytes(const struct cache *c)
{
	return borrowed_chunk_bytes(c) + c->decoded_cache.bytes + c->kept_batches.bytes;
}

uint64_t cache_claimed_chunk_bytes(const struct cache *c)
{
	return c->segment_bytes - borrowed_chunk_bytes(c);
}

uint64_t cache_borrowable_bytes(const struct cache *c)
{
	uint64_t claimed = cache_claimed_chunk_bytes(c);

	/* Chunks that were claimed when the limit was set add to it: their memory was in use then, so nobody
	 * else lacks it. */
	if (c->node.borrow_bytes == UINT64_MAX || claimed >= c->node.borrow_claimed_bytes)
		return c->node.borrow_bytes;
	return c->node.borrow_bytes + (c->node.borrow_claimed_bytes - claimed);
}

uint64_t cache_claimed_bytes(const struct cache *c)
{
	uint64_t bytes = c->slot_bytes + cache_claimed_chunk_bytes(c);

	for (const struct cached_dataset *d = c->datasets; d; d = d->next)
		bytes += cached_is_used(d) ? d->copy.bytes : 0;
	return bytes;
}

/* Returns the limit on the bytes of chunks: the rest after the shares of decoded copies and kept batches. */
static uint64_t chunk_limit(const struct cache *c)
{
	uint64_t limit = cache_segment_limit(c, c->budget_bytes);
	uint64_t others = max_u64(c->decoded_cache.bytes, c->decoded_cache.limit_bytes) +
			  max_u64(c->kept_batches.bytes, c->kept_batches.space_bytes);

	return limit > others ? limit - others : 0;
}

/* Returns true if `bytes` more of the dataset fit, claimed or borrowed. */
static bool may_add(const struct cache *c, const struct cached_dataset *d, uint64_t bytes)
{
	if (c->segment_bytes + bytes > chunk_limit(c) ||
	    c->segments.n + c->decoded_cache.n_extents + c->n_held * CACHE_HELD_FILES >= c->segments.max)
		return false;
	return d->held_bytes + bytes <= d->claim_bytes || c->node.borrow_bytes == UINT64_MAX ||
	       cache_borrowed_bytes(c) + bytes <= cache_borrowable_bytes(c);
}

struct segment *cache_take_segment(struct cache *c, struct cached_dataset *d, uint64_t chunk,
				   uint32_t distance, const struct job *job, int *ret_error)
{
	bool spare = distance >= CACHE_SPARE_DISTANCE;
	uint64_t bytes = d->chunks[chunk].bytes;
	struct candidates which = {
	    .wanting = d, .beyond_quotas = c->quotas.n > 0, .is_spare = spare, .uid = spare ? job->uid : 0};
	struct segment *s = NULL;

	*ret_error = -ENOSPC;
	while (!s) {
		struct segment *victim;

		if (may_add(c, d, bytes)) {
			int r = add_new_segment(c, d, bytes, &s);

			if (r == 0)
				break;
			*ret_error = r;
		}
		/* Decoded copies of an earlier job make way for this job's chunks. */
		if (!spare && c->decoded_cache.bytes > c->decoded_cache.limit_bytes && decoded_drop_any(c))
			continue;
		if (!spare && c->kept_batches.bytes > c->kept_batches.limit_bytes && cache_give_up_batch(c))
			continue;
		/* Without descriptors or memory, continues with the existing segments, as if the budget were
		 * used up. */
		which.own = !spare && d->held_bytes + bytes > d->space_bytes;
		victim = cache_pick_victim(c, &which, &d->victims, distance);
		if (!victim) {
			if (!spare && ((distance == 0 && cache_give_up_batch(c)) || cache_drop_empty(c)))
				continue;
			/* Quotas leave enough memory for chunks that a batch waits for, but perhaps not
			 * enough descriptors. */
			if (spare || distance > 0 || !which.beyond_quotas)
				return NULL;
			which.beyond_quotas = false;
		} else if (c->segment_bytes <= chunk_limit(c) && is_reusable(victim, d, bytes)) {
			c->counters.evictions++;
			cache_forget_chunk(c, victim);
			s = victim;
		} else {
			evict(c, victim);
		}
	}
	s->chunk = chunk;
	return s;
}

struct segment *cache_take_mapped(struct cache *c, const struct segment *from, uint32_t distance)
{
	const struct cached_dataset *d = from->dataset;
	struct segment *victim;

	/* While the daemon is closing, nothing is pinned, but clients still read mapped memory, which must
	 * not be overwritten. */
	if (c->closing || from->mapped || may_add(c, d, from->memory.bytes))
		return NULL;
	/* While the dataset may take more memory, its own chunks stay, and others' are evicted. */
	if (d->space_bytes >= d->all_bytes || d->held_bytes + from->memory.bytes <= d->space_bytes)
		return NULL;
	victim = cache_pick_victim(c, &(struct candidates){.wanting = from->dataset, .mapped_like = from},
				   &from->dataset->mapped_victims, distance);
	if (!victim)
		return NULL;
	c->counters.evictions += cache_chunk_of(victim) != NULL;
	cache_forget_chunk(c, victim);
	victim->filling = true;
	return victim;
}

/* Makes this segment, which is now empty, the next victim of its dataset. */
static void cache_victim_first(const struct segment *s)
{
	struct victim_list *list = &s->dataset->victims;

	if (list->next == 0)
		list->n = 0; /* the next pass finds the segment */
	else
		list->victims[--list->next] =
		    (struct victim){.segment = s->id, .rank = POLICY_RANK_UNWANTED, .chunk = s->chunk};
}

void cache_fill_done(struct segment *from, struct segment *to, bool filled)
{
	to->filling = false;
	if (!filled)
		return;
	from->filling = false;
	to->chunk = from->chunk;
	to->dataset->chunks[to->chunk].segment = to;
	cache_victim_first(from);
}

/* Makes space for borrowed memory: evicts chunks that nobody is going to miss. */
static bool make_borrowed_space(struct cache *c, uint64_t bytes)
{
	struct segment *victim;

	while (cache_total_bytes(c) + bytes > c->budget_bytes) {
		victim = cache_pick_victim(c, &(struct candidates){.beyond_quotas = c->quotas.n > 0},
					   &c->victims, POLICY_NEVER);
		if (!victim)
			return false;
		evict(c, victim);
	}
	return c->node.borrow_bytes == UINT64_MAX ||
	       cache_borrowed_bytes(c) + bytes <= cache_borrowable_bytes(c);
}

bool cache_make_decoded_space(struct cache *c, uint64_t bytes)
{
	return c->segments.n + c->decoded_cache.n_extents + c->n_held * CACHE_HELD_FILES <
		   c->segments.max - c->segments.max / 8 &&
	       make_borrowed_space(c, bytes);
}

bool cache_make_batch_space(struct cache *c, uint64_t bytes)
{
	return c->kept_batches.bytes + bytes <= c->kept_batches.limit_bytes && make_borrowed_space(c, bytes);
}

bool cache_give_up_batch(struct cache *c)
{
	return c->kept_batches.bytes > 0 && c->handler.give_up_batch(c);
}

bool cache_make_space(struct cache *c, uint64_t bytes)
{
	bool needs_changed = c->needs_changed;

	/* With quotas, these bytes reduce the space of the user's datasets from now on. */
	if (c->quotas.n > 0)
		cache_fit(c);
	c->needs_changed |= needs_changed;
	cache_find_holders(c);
	while (cache_total_bytes(c) + bytes > c->limit_bytes) {
		struct segment *victim;

		if (cache_give_up_batch(c) || decoded_drop_any(c) || cache_drop_empty(c))
			continue;
		victim = cache_pick_victim(c, &(struct candidates){.beyond_quotas = c->quotas.n > 0},
					   &c->victims, 0);
		if (!victim)
			return false;
		evict(c, victim);
	}
	return true;
}

void cache_pin(struct cache *c, struct cached_dataset *d, uint64_t chunk)
{
	if (d->chunks[chunk].pins++ == 0)
		d->pinned_bytes += d->chunks[chunk].bytes;
	d->chunks[chunk].last_use = ++c->clock;
}

void cache_unpin(struct cached_dataset *d, uint64_t chunk)
{
	if (--d->chunks[chunk].pins == 0)
		d->pinned_bytes -= d->chunks[chunk].bytes;
}

void cache_mark(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance)
{
	struct cached_chunk *k = &d->chunks[chunk];

	if (k->round != c->round || distance < k->distance)
		k->distance = distance;
	k->round = c->round;
}

void cache_note_ready(struct cache *c, struct cached_dataset *d, uint64_t chunk)
{
	struct cached_chunk *k = &d->chunks[chunk];

	k->state = CHUNK_READY;
	k->segment->since_ns = clock_monotonic_ns();
	k->last_use = ++c->clock;
	d->n_cached++;
	if (!k->part) {
		residents_enter(d, chunk);
		handover_put(c->handover, k->segment);
	}
	/* Keeps an eighth of the descriptors free for transient chunks. */
	k->is_taken = false;
	k->is_foreign = memberships_is_foreign(d, chunk);
	cache_keep(c, k->segment,
		   !k->is_foreign && c->kept_bytes + k->segment->memory.bytes <= c->keep_limit_bytes &&
		       d->kept_bytes + k->segment->memory.bytes <= d->keep_bytes &&
		       c->segments.n <= c->segments.max - c->segments.max / 8);
}

struct segment *cache_find_segment(const struct cache *c, uint32_t id)
{
	uint32_t index = id & (SEGMENT_MAX - 1);

	if (index >= c->segments.size || !c->segments.all[index] || c->segments.all[index]->id != id)
		return NULL;
	return c->segments.all[index];
}

bool cache_is_ready(const struct segment *s)
{
	const struct cached_chunk *k = cache_chunk_of(s);

	return k && k->state == CHUNK_READY;
}

bool cache_is_mappable(const struct segment *s)
{
	const struct cached_chunk *k = cache_chunk_of(s);

	/* The verified samples of a partly read chunk stay valid while more samples are added. */
	return cache_is_ready(s) || (k && k->part && cached_is_loading(k));
}

/* Drops the datasets that have been idle longest until at most CACHE_MAX_IDLE_DATASETS are left. */
static void drop_many_idle(struct cache *c)
{
	cache_find_holders(c);
	for (;;) {
		struct cached_dataset *oldest = NULL;
		uint32_t n = 0;

		for (struct cached_dataset *d = c->datasets; d; d = d->next) {
			if (!is_droppable(c, d))
				continue;
			n++;
			if (!oldest || d->idle_since_ns < oldest->idle_since_ns)
				oldest = d;
		}
		if (n <= CACHE_MAX_IDLE_DATASETS)
			return;
		cache_drop_dataset(c, oldest);
	}
}

void cache_add_dataset(struct cache *c, struct cached_dataset *d)
{
	drop_many_idle(c);
	/* An older version that nobody uses is rarely needed again. */
	for (struct cached_dataset *o = c->datasets, *next; o; o = next) {
		next = o->next;
		if (o->identity.directory_dev == d->identity.directory_dev &&
		    o->identity.directory_ino == d->identity.directory_ino && is_droppable(c, o))
			cache_drop_dataset(c, o);
	}
	d->idle_since_ns = clock_monotonic_ns();
	LL_PREPEND(c->datasets, d);
	c->snapshot_bytes += d->copy.bytes;
}

struct cached_dataset *cache_find_dataset(struct cache *c, const struct proof_identity *identity)
{
	struct cached_dataset *d = c->datasets;

	while (d && !proof_identity_equal(&d->identity, identity))
		d = d->next;
	return d;
}

#ifndef NDEBUG
static void check_segment(const struct segment *s, uint32_t index)
{
	const struct cached_chunk *chunk = cache_chunk_of(s);

	assert((s->id & (SEGMENT_MAX - 1)) == index && s->dataset && s->memory.bytes > 0);
	assert(!chunk || chunk->segment == s);
	assert(!chunk || !residents_have(s->dataset, s->chunk) ||
	       (chunk->state == CHUNK_READY && !chunk->part));
	/* A segment that is being filled from another segment holds no ready chunk yet. */
	assert(!s->filling || !chunk || chunk->state == CHUNK_READING || chunk->state == CHUNK_VERIFYING);
}

static void check_cached(const struct cache *c, const struct cached_dataset *d)
{
	uint64_t held_bytes = 0, kept_bytes = 0, pinned_bytes = 0;

	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *s = c->segments.all[i];
		const struct cached_chunk *chunk;

		if (!s || s->dataset != d)
			continue;
		chunk = cache_chunk_of(s);
		held_bytes += s->memory.bytes;
		kept_bytes += chunk && chunk->kept ? s->memory.bytes : 0;
		pinned_bytes += chunk && chunk->pins > 0 ? chunk->bytes : 0;
	}
	assert(d->held_bytes == held_bytes && d->kept_bytes == kept_bytes && d->pinned_bytes == pinned_bytes);
	assert(d->loads.n_verifying <= d->loads.n && d->loads.n_asking <= d->loads.n);
	assert(d->n_cached + d->loads.n_bad <= d->info.n_chunks);
}

void check_cache(const struct cache *c)
{
	uint64_t held_bytes = 0, kept_bytes = 0, bytes = 0;
	uint32_t n = 0, n_loading = 0;

	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *s = c->segments.all[i];

		if (!s)
			continue;
		check_segment(s, i);
		n++;
		bytes += s->memory.bytes;
	}
	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		check_cached(c, d);
		held_bytes += d->held_bytes;
		kept_bytes += d->kept_bytes;
		n_loading += d->loads.n;
	}
	assert(n == c->segments.n && bytes == c->segment_bytes && held_bytes == bytes);
	assert(kept_bytes == c->kept_bytes && n_loading == c->n_loading);
}
#endif
