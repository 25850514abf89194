/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which memory a new chunk gets, and which chunk is evicted for it. Memory and datasets are real. The test
 * itself declares that a chunk was read and verified.
 */
#include "filled_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "client/residents.h"

TEST_IN_FOLDER(what_is_kept_and_what_passes_through)
{
	struct fixture f;
	uint32_t id;

	start(&f, *state, &even, 4);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	assert_int_equal(f.cache->segment_bytes, 4 * f.unit);
	/* One chunk passes through memory, so all but one may be kept. */
	assert_int_equal(f.d->kept_bytes, 3 * f.unit);
	assert_false(f.d->chunks[3].kept);
	id = f.d->chunks[3].segment->id;
	assert_int_equal(fill(&f, f.d, 4, 1), 0);
	assert_int_equal(in_memory(f.d), 0x17);
	/* The chunk gets the memory of the evicted one. */
	assert_int_equal(f.d->chunks[4].segment->id, id);
	assert_int_equal(f.cache->counters.evictions, 1);
	/* A segment that a client may have mapped is never written to. */
	f.d->chunks[4].segment->mapped = true;
	assert_int_equal(fill(&f, f.d, 5, 1), 0);
	assert_int_not_equal(f.d->chunks[5].segment->id, id);
	assert_null(cache_find_segment(f.cache, id));
	assert_int_equal(in_memory(f.d), 0x27);
	/* Beyond the budget, released memory is not reused. */
	f.cache->budget_bytes -= f.unit;
	assert_int_equal(fill(&f, f.d, 6, 0), 0);
	assert_int_equal(f.d->held_bytes, 3 * f.unit);
	stop(&f);
}

/* A waiting batch may evict kept chunks and read-ahead chunks, the farthest first. No request evicts a chunk
 * in use. */
TEST_IN_FOLDER(who_goes_first)
{
	struct cached_dataset *idle;
	struct fixture f;

	start(&f, *state, &even, 6);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	cache_pin(f.cache, f.d, 0);
	cache_mark(f.cache, f.d, 1, 7);
	cache_mark(f.cache, f.d, 2, 4);
	cache_mark(f.cache, f.d, 2, 9);
	cache_mark(f.cache, f.d, 3, 0);
	cache_mark(f.cache, f.d, 5, 2);
	/* Every chunk is needed, so read-ahead gets no memory. */
	assert_int_equal(fill(&f, f.d, 6, 1), -ENOSPC);
	assert_int_equal(in_memory(f.d), 0x3f);
	assert_int_equal(fill(&f, f.d, 6, 0), 0); /* evicts 4, which is not needed */
	assert_int_equal(in_memory(f.d), 0x6f);
	cache_mark(f.cache, f.d, 6, 0);
	assert_int_equal(fill(&f, f.d, 7, 0), 0); /* evicts 1 */
	assert_int_equal(in_memory(f.d), 0xed);
	cache_mark(f.cache, f.d, 7, 0);
	assert_int_equal(fill(&f, f.d, 8, 0), 0); /* evicts 2 */
	assert_int_equal(in_memory(f.d), 0x1e9);
	cache_mark(f.cache, f.d, 8, 0);
	assert_int_equal(fill(&f, f.d, 9, 0), 0); /* evicts 5 */
	assert_int_equal(in_memory(f.d), 0x3c9);
	cache_mark(f.cache, f.d, 9, 0);
	assert_int_equal(fill(&f, f.d, 10, 0), -ENOSPC);
	/* Marks hold for one round. */
	f.cache->round++;
	assert_int_equal(fill(&f, f.d, 10, 0), 0);
	assert_int_equal(in_memory(f.d) & 1, 1);
	cache_unpin(f.d, 0);
	assert_int_equal(f.d->pinned_bytes, 0);
	/* A chunk of an unused dataset is evicted before all others, also if evicting one chunk is enough. */
	cache_drop_segment(f.cache, f.d->chunks[10].segment);
	idle = open_dataset(&f.f, *state, "idle", &even);
	f.cache->limit_bytes += idle->copy.bytes;
	cache_fit(f.cache);
	idle->space_bytes = UINT64_MAX;
	assert_int_equal(fill(&f, idle, 0, 1), 0);
	cache_keep(f.cache, f.d->chunks[0].segment, false); /* chunk 0 is not needed, and older */
	f.cache->round++;
	assert_int_equal(fill(&f, f.d, 11, 1), 0);
	assert_null(idle->chunks[0].segment);
	stop(&f);
}

#define EPOCHS 5

/* Sets the visit of the epoch in which each chunk is used. The chunks come in strides, in another order in
 * each epoch. */
static void make_visits(uint32_t epoch, uint32_t *visits)
{
	static const uint32_t strides[] = {3, 7, 9, 11, 13, 17};

	for (uint32_t i = 0; i < N_CHUNKS; i++)
		visits[(i * strides[epoch] + epoch) % N_CHUNKS] = i;
}

static uint32_t chunk_at(const uint32_t *visits, uint32_t visit)
{
	uint32_t chunk = 0;

	while (visits[chunk] != visit)
		chunk++;
	return chunk;
}

/* If the order is known, an epoch finds as many chunks as fit into memory, however many pass through. */
TEST_IN_FOLDER(what_is_needed_last_goes_first)
{
	enum { SPACE = 10 };
	uint32_t visits[EPOCHS + 1][N_CHUNKS];
	struct cached_cursor k = {.place = {.n_visits = N_CHUNKS}, .whole = true};
	struct fixture f;

	start(&f, *state, &even, SPACE);
	f.d->need_bytes = 4 * f.unit; /* this many pass through, so six could be kept */
	cache_fit(f.cache);
	for (uint32_t i = 0; i <= EPOCHS; i++)
		make_visits(i, visits[i]);
	cached_add_cursor(f.d, &k);
	for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
		uint32_t found = 0;

		k.epoch = epoch;
		k.place.now = visits[epoch];
		k.place.then = visits[epoch + 1];
		for (uint32_t i = 0; i < N_CHUNKS; i++) {
			uint32_t chunk = chunk_at(visits[epoch], i);

			k.place.at = i;
			f.cache->round++;
			if (f.d->chunks[chunk].segment)
				found++;
			else
				assert_int_equal(fill(&f, f.d, chunk, 1), 0);
		}
		assert_int_equal(found, epoch == 0 ? 0 : SPACE);
	}
	cached_drop_cursor(f.d, &k);
	assert_null(f.d->cursors);
	stop(&f);
}

/* If several sessions need a chunk, the nearest use counts. Ranks at the same position count once. */
TEST_IN_FOLDER(the_nearest_session_counts)
{
	uint32_t visits[N_CHUNKS], backwards[N_CHUNKS];
	struct cached_cursor a = {.place = {.now = visits, .n_visits = N_CHUNKS}, .whole = true}, b = a,
			     c = {
				 .place = {.now = backwards, .n_visits = N_CHUNKS}, .seed = 1, .whole = true};
	struct fixture f;

	start(&f, *state, &even, 4);
	for (uint32_t i = 0; i < N_CHUNKS; i++) {
		visits[i] = i;
		backwards[i] = N_CHUNKS - 1 - i;
	}
	assert_int_equal(cached_next_use(f.d, 3), POLICY_NEVER);
	cached_add_cursor(f.d, &a);
	cached_add_cursor(f.d, &b);
	assert_int_equal(cached_next_use(f.d, 15), 15);
	cached_add_cursor(f.d, &c);
	assert_int_equal(cached_next_use(f.d, 15), 4);
	for (uint64_t i = 8; i < 12; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	f.cache->round++;
	/* Chunks 8, 9, 10 and 11 are used after 8, 9, 9 and 8 visits. Chunk 9 was used before chunk 10. */
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	assert_int_equal(in_memory(f.d), 0xd01);
	assert_int_equal(a.double_of + b.double_of, 1);
	assert_false(c.double_of);
	cached_drop_cursor(f.d, &b);
	cached_drop_cursor(f.d, &c);
	cached_drop_cursor(f.d, &a);
	cached_drop_cursor(f.d, &a);
	stop(&f);
}

/* A chunk that is being read or verified is not evicted, even for a waiting batch. */
TEST_IN_FOLDER(what_is_under_way_stays)
{
	struct fixture f;
	int r;

	start(&f, *state, &even, 1);
	struct segment *s = take_whole(f.cache, f.d, 0, 0, &r);
	assert_non_null(s);
	f.d->chunks[0].segment = s;
	for (enum chunk_state now = CHUNK_READING; now <= CHUNK_VERIFYING; now++) {
		f.d->chunks[0].state = now;
		assert_null(take_whole(f.cache, f.d, 1, 0, &r));
		assert_int_equal(r, -ENOSPC);
		assert_false(cache_is_ready(s));
	}
	cache_note_ready(f.cache, f.d, 0);
	assert_ptr_equal(take_whole(f.cache, f.d, 1, 0, &r), s);
	stop(&f);
}

/* Among unneeded chunks, the least recently used one is evicted. */
TEST_IN_FOLDER(the_oldest_goes_first)
{
	struct fixture f;

	start(&f, *state, &even, 3);
	f.d->need_bytes = 3 * f.unit; /* nothing is kept */
	cache_fit(f.cache);
	for (uint64_t i = 3; i-- > 0;)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	assert_int_equal(f.d->kept_bytes, 0);
	assert_int_equal(fill(&f, f.d, 3, 1), 0);
	assert_int_equal(in_memory(f.d), 0xb);
	cache_pin(f.cache, f.d, 1);
	cache_unpin(f.d, 1);
	assert_int_equal(fill(&f, f.d, 4, 1), 0);
	assert_int_equal(in_memory(f.d), 0x1a);
	stop(&f);
}

/* Segments are as large as their chunks. A giant replaces several, and its memory is not given to a chunk of
 * another size. */
TEST_IN_FOLDER(segments_are_as_large_as_their_chunks)
{
	struct fixture f;

	start(&f, *state, &uneven, 10);
	uint64_t giant = f.d->chunks[N_CHUNKS - 1].bytes;
	assert_int_equal(f.d->giants.n, 1);
	assert_true(giant > 4 * f.unit);
	f.d->need_bytes = giant + 3 * f.unit;
	cache_fit(f.cache);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	assert_int_equal(fill(&f, f.d, N_CHUNKS - 1, 0), 0);
	assert_int_equal(f.d->chunks[N_CHUNKS - 1].segment->memory.bytes, giant);
	assert_int_equal(f.cache->segment_bytes, giant + (10 - (giant + f.unit - 1) / f.unit) * f.unit);
	cache_drop_segment(f.cache, f.d->chunks[N_CHUNKS - 1].segment);
	assert_int_equal(fill(&f, f.d, N_CHUNKS - 1, 0), 0);
	f.cache->round++;
	for (uint64_t i = 0; i < 10; i++) {
		if (f.d->chunks[i].state == CHUNK_READY)
			cache_mark(f.cache, f.d, i, 0);
	}
	for (uint64_t i = 0; i < 10; i++) {
		if (f.d->chunks[i].state == CHUNK_READY)
			continue;
		assert_int_equal(fill(&f, f.d, i, 0), 0);
		assert_int_equal(f.d->chunks[i].segment->memory.bytes, f.unit);
		break;
	}
	assert_null(f.d->chunks[N_CHUNKS - 1].segment);
	stop(&f);
}

/* The number of a dropped segment stays unused, also if its slot in the table is reused. */
TEST_IN_FOLDER(numbers_of_segments)
{
	struct fixture f;
	uint32_t first, second;

	start(&f, *state, &even, 4);
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	first = f.d->chunks[0].segment->id;
	assert_true(cache_is_ready(cache_find_segment(f.cache, first)));
	cache_drop_segment(f.cache, f.d->chunks[0].segment);
	assert_int_equal(f.d->chunks[0].state, CHUNK_ABSENT);
	assert_null(cache_find_segment(f.cache, first));
	assert_int_equal(fill(&f, f.d, 1, 1), 0);
	second = f.d->chunks[1].segment->id;
	assert_int_equal(first % SEGMENT_MAX, second % SEGMENT_MAX);
	assert_int_not_equal(first, second);
	assert_null(cache_find_segment(f.cache, first));
	assert_null(cache_find_segment(f.cache, SEGMENT_MAX - 1));
	stop(&f);
}

/* Clients read chunks in place by a table. A chunk's entry changes with each of its stays in memory. */
TEST_IN_FOLDER(the_table_has_whole_chunks_and_tells_stays_apart)
{
	struct resident_uses *uses;
	const resident_entry *table;
	struct fixture f;
	uint64_t first;
	int fd, uses_fd;

	start(&f, *state, &even, 4);
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	assert_int_equal(residents_lend(f.d, &uses, &fd, &uses_fd), 0);
	close(uses_fd);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	table = mmap(NULL, N_CHUNKS * sizeof(*table), PROT_READ, MAP_SHARED, fd, 0);
	assert_true(table != MAP_FAILED);
	close(fd);
	first = residents_look(&table[0]);
	assert_int_equal(resident_segment(first), f.d->chunks[0].segment->id);
	assert_int_equal(residents_look(&table[1]), 0);
	assert_int_equal(fill(&f, f.d, 1, 1), 0);
	assert_int_equal(resident_segment(residents_look(&table[1])), f.d->chunks[1].segment->id);
	cache_forget_chunk(f.cache, f.d->chunks[0].segment);
	assert_int_equal(residents_look(&table[0]), 0);
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	assert_int_not_equal(residents_look(&table[0]), 0);
	assert_int_not_equal(residents_look(&table[0]), first);
	/* Some samples of a chunk are not enough. */
	cache_forget_chunk(f.cache, f.d->chunks[0].segment);
	f.d->chunks[0].part = calloc(1, sizeof(uint64_t));
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	assert_int_equal(residents_look(&table[0]), 0);
	munmap((void *)(uintptr_t)table, N_CHUNKS * sizeof(*table));
	residents_take_back(f.d, uses);
	stop(&f);
}

/* Makes space for two chunks after a client has read chunk 0 in place, or not. A read counts as a use, in the
 * memory of the client that reads, as long as it is connected. */
static void check_reads_in_place(void **state, bool reads, uint64_t stay)
{
	struct resident_uses *uses[2];
	resident_use *mine;
	struct fixture f;
	int table_fd, fd;

	start(&f, *state, &even, 4);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(residents_lend(f.d, &uses[i], &table_fd, &fd), 0);
		close(table_fd);
		if (i == 0)
			close(fd);
	}
	mine = mmap(NULL, N_CHUNKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(mine != MAP_FAILED);
	close(fd);
	if (reads)
		residents_use(&mine[0]);
	assert_true(cache_make_space(f.cache, 2 * f.unit));
	assert_int_equal(in_memory(f.d), stay);
	assert_int_equal(mine[0], 0);
	assert_int_equal(residents_are_used(f.d), reads);
	for (int i = 0; i < 2; i++)
		residents_take_back(f.d, uses[i]);
	residents_use(&mine[2]); /* which nobody reads any more */
	munmap(mine, N_CHUNKS);
	stop(&f);
}

TEST_IN_FOLDER(a_chunk_that_is_read_in_place_stays)
{
	check_reads_in_place(state, true, 0x5);
}

TEST_IN_FOLDER(without_reads_in_place_the_oldest_goes)
{
	check_reads_in_place(state, false, 0x6);
}

/* Each segment uses a descriptor, and so does each snapshot that a client holds. Some descriptors are kept
 * free for chunks that pass through. */
TEST_IN_FOLDER(descriptors_are_bounded)
{
	struct cached_dataset *held;
	struct fixture f;
	int fd;

	start(&f, *state, &even, N_CHUNKS);
	f.cache->segments.max = 8;
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	assert_int_equal(f.d->kept_bytes, 7 * f.unit);
	assert_int_equal(fill(&f, f.d, 8, 1), 0);
	assert_int_equal(f.cache->segments.n, 8);
	assert_int_equal(in_memory(f.d), 0x17f);
	for (uint64_t i = 0; i < 9; i++) {
		if (f.d->chunks[i].segment && i != 8)
			cache_drop_segment(f.cache, f.d->chunks[i].segment);
	}
	held = open_dataset(&f.f, *state, "held", &even);
	assert_int_equal(shared_memory_reader(held->copy.fd, &fd), 0);
	held->copy.is_borrowed = true;
	f.cache->limit_bytes += held->copy.bytes;
	cache_fit(f.cache);
	assert_int_equal(f.cache->n_held, 1);
	assert_true(cached_is_used(held));
	for (uint64_t i = 0; i < 8 - CACHE_HELD_FILES - 1; i++) /* in addition to chunk 8 */
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	assert_int_equal(f.cache->segments.n, 8 - CACHE_HELD_FILES);
	assert_int_equal(fill(&f, f.d, 5, 0), 0);
	assert_int_equal(f.cache->segments.n, 8 - CACHE_HELD_FILES);
	close(fd);
	cache_find_holders(f.cache);
	assert_int_equal(f.cache->n_held, 0);
	assert_false(cached_is_used(held));
	stop(&f);
}

TEST_IN_FOLDER(what_is_verified_goes_where_clients_look)
{
	struct segment *from, *to;
	struct fixture f;
	int r;

	start(&f, *state, &even, 3);
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(fill(&f, f.d, i, 1), 0);
		f.d->chunks[i].segment->mapped = true;
	}
	from = take_whole(f.cache, f.d, 2, 0, &r);
	assert_non_null(from);
	f.d->chunks[2].segment = from;
	f.d->chunks[2].state = CHUNK_VERIFYING;
	cache_mark(f.cache, f.d, 0, 0);                   /* a batch waits for it */
	assert_null(cache_take_mapped(f.cache, from, 0)); /* the whole dataset may be in memory */
	f.d->space_bytes = f.d->held_bytes + from->memory.bytes;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* another chunk may be */
	f.d->space_bytes--;
	assert_null(cache_take_mapped(f.cache, from, 1));
	f.cache->closing = true; /* the daemon ends, but clients do not */
	assert_null(cache_take_mapped(f.cache, from, 0));
	f.cache->closing = false;
	to = cache_take_mapped(f.cache, from, 0);
	assert_non_null(to);
	assert_true(to->mapped && to->filling);
	assert_int_equal(f.d->chunks[1].state, CHUNK_ABSENT);
	assert_null(cache_chunk_of(to));
	assert_false(cache_is_ready(to));
	assert_true(cache_look_at(f.cache, to, NULL).busy);
	assert_int_equal(f.cache->counters.evictions, 1);
	/* The chunk was damaged, and no client has seen any of it. */
	cache_fill_done(from, to, false);
	assert_ptr_equal(f.d->chunks[2].segment, from);
	assert_null(cache_chunk_of(to));
	assert_false(cache_look_at(f.cache, to, NULL).busy);
	/* A segment that holds nothing is taken at once, which is not an eviction. */
	assert_ptr_equal(cache_take_mapped(f.cache, from, 1), to);
	assert_int_equal(f.cache->counters.evictions, 1);
	cache_fill_done(from, to, true);
	assert_ptr_equal(f.d->chunks[2].segment, to);
	cache_note_ready(f.cache, f.d, 2);
	assert_true(cache_is_ready(to));
	assert_null(cache_chunk_of(from));
	real_cache_check(f.cache);
	/* The segment into which the chunk was read is free for the next one. */
	assert_ptr_equal(take_whole(f.cache, f.d, 3, 1, &r), from);
	stop(&f);
}

TEST_IN_FOLDER(where_what_is_verified_stays)
{
	struct cached_dataset *other;
	struct segment *from, *to;
	struct fixture f;
	int r;

	start(&f, *state, &uneven, 10);
	f.d->space_bytes = 0; /* more of the dataset is in memory than its share */
	from = take_whole(f.cache, f.d, 0, 0, &r);
	assert_int_equal(fill(&f, f.d, N_CHUNKS - 1, 1), 0);
	f.d->chunks[N_CHUNKS - 1].segment->mapped = true;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* there is space */
	f.cache->limit_bytes = f.cache->budget_bytes = f.d->copy.bytes + f.cache->segment_bytes;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* its segment has another size */
	other = open_dataset(&f.f, *state, "other", &uneven);
	f.cache->budget_bytes = UINT64_MAX / 2;
	assert_int_equal(fill(&f, other, 0, 0), 0);
	other->chunks[0].segment->mapped = true;
	f.cache->budget_bytes = f.cache->snapshot_bytes + f.cache->segment_bytes;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* its segment belongs to another dataset */
	f.cache->budget_bytes = UINT64_MAX / 2;
	assert_int_equal(fill(&f, f.d, 1, 0), 0);
	f.cache->budget_bytes = f.cache->snapshot_bytes + f.cache->segment_bytes;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* no client maps it */
	f.d->chunks[1].segment->mapped = from->mapped = true;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* a client already maps the chunk's own segment */
	from->mapped = false;
	to = f.d->chunks[1].segment;
	f.cache->budget_bytes++;
	assert_ptr_equal(cache_take_mapped(f.cache, from, 0), to);
	cache_fill_done(from, to, false);
	f.cache->budget_bytes = UINT64_MAX / 2;
	assert_null(cache_take_mapped(f.cache, from, 0)); /* there is space again */
	f.cache->budget_bytes = f.cache->snapshot_bytes + f.cache->segment_bytes;
	assert_ptr_equal(cache_take_mapped(f.cache, from, 0), to);
	stop(&f);
}

static bool is_released(void *cache)
{
	return ((struct cache *)cache)->releasing_bytes == 0;
}

/* Workers return pages to the system, also pages that a client maps, but not pages from before a restart. */
TEST_IN_FOLDER(memory_goes_back)
{
	struct fixture f;
	uint8_t *maps[2];

	start(&f, *state, &even, 4);
	for (uint64_t i = 0; i < 2; i++) {
		const struct shared_memory *memory;

		assert_int_equal(fill(&f, f.d, i, 1), 0);
		memory = &f.d->chunks[i].segment->memory;
		memset(memory->data, 7, memory->bytes);
		maps[i] = mmap(NULL, f.unit, PROT_READ, MAP_SHARED, memory->fd, 0);
		assert_ptr_not_equal(maps[i], MAP_FAILED);
	}
	f.d->chunks[1].segment->restored = true;
	uint32_t before = f.f.n_changes;
	cache_drop_segment(f.cache, f.d->chunks[0].segment);
	cache_drop_segment(f.cache, f.d->chunks[1].segment);
	assert_int_equal(f.cache->releasing_bytes, f.unit);
	assert_int_equal(f.cache->segment_bytes, 0);
	loop_until(&f.f.loop, is_released, f.cache);
	assert_int_equal(f.f.n_changes, before + 1);
	assert_int_equal(maps[0][100], 0);
	assert_int_equal(maps[1][100], 7);
	munmap(maps[0], f.unit);
	munmap(maps[1], f.unit);
	stop(&f);
}

/* Unused datasets stay for the next job, as long as there are few of them and there is space. */
TEST_IN_FOLDER(few_idle_datasets_stay_for_the_next_job)
{
	struct cached_dataset *first, *d = NULL;
	struct fixture f;
	uint64_t bytes;

	start(&f, *state, &even, N_CHUNKS);
	first = open_dataset(&f.f, *state, "many", &even);
	for (uint64_t i = 1; i <= CACHE_MAX_IDLE_DATASETS; i++) {
		char *path = path_in(*state, "many");

		d = real_cache_open(&f.f, path, NULL);
		free(path);
		/* An older version of the same folder was dropped for this one. */
		assert_ptr_equal(f.cache->datasets, d);
		assert_ptr_equal(d->next, i == 1 ? f.d : d->next);
		d->identity.directory_ino += i << 32;
		d->idle_since_ns = i;
		assert_ptr_equal(cache_find_dataset(f.cache, &d->identity), d);
	}
	first = d;
	while (first->next != f.d)
		first = first->next;
	assert_int_equal(first->idle_since_ns, 1);
	d = open_dataset(&f.f, *state, "more", &even);
	assert_ptr_equal(f.cache->datasets, d);
	while (d && d != first)
		d = d->next;
	assert_ptr_equal(d, first); /* that was the last one allowed */
	(void)open_dataset(&f.f, *state, "much", &even);
	for (d = f.cache->datasets; d; d = d->next)
		assert_int_not_equal(d->idle_since_ns, 1);
	/* Space for one more dataset comes from unused ones, but not from a dataset that is served. */
	cache_fit(f.cache);
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	cache_pin(f.cache, f.d, 0);
	bytes = f.cache->limit_bytes - f.unit - f.d->copy.bytes;
	assert_false(cache_make_space(f.cache, bytes + 1));
	assert_ptr_equal(f.cache->datasets, f.d);
	assert_null(f.d->next);
	assert_int_equal(f.d->chunks[0].state, CHUNK_READY);
	assert_true(cache_make_space(f.cache, bytes));
	cache_unpin(f.d, 0);
	f.cache->round++;
	assert_true(cache_make_space(f.cache, bytes + 1));
	assert_int_equal(f.cache->segment_bytes, 0);
	/* No more unused memory is released than necessary. */
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(fill(&f, f.d, i, 1), 0);
	f.d->refs = f.d->n_sessions = 0;
	assert_true(cache_make_space(f.cache, bytes));
	assert_ptr_equal(f.cache->datasets, f.d);
	assert_int_equal(in_memory(f.d), 0x2);
	stop(&f);
}

static bool is_at_rest(void *user)
{
	return !((struct cache *)user)->stays.one;
}

/* A chunk that is in use long after it was read moves to other pages, and is not evicted meanwhile. */
TEST_IN_FOLDER(a_chunk_in_use_moves_to_other_pages)
{
	struct fixture f;

	start(&f, *state, &even, 4);
	assert_int_equal(fill(&f, f.d, 0, 1), 0);
	assert_int_equal(fill(&f, f.d, 1, 1), 0);
	struct cached_chunk *k = &f.d->chunks[0];
	memset(k->segment->memory.data, 7, k->segment->memory.bytes);
	cache_note_use(f.cache, f.d, 0);
	assert_null(f.cache->stays.one); /* the chunk has just come */
	k->segment->since_ns = f.d->chunks[1].segment->since_ns = 0;
	cache_note_use(f.cache, f.d, 0);
	assert_non_null(f.cache->stays.one);
	assert_int_equal(k->pins, 1);
	cache_note_use(f.cache, f.d, 1);
	assert_int_equal(f.d->chunks[1].pins, 0); /* only one chunk moves at a time */
	loop_until(&f.f.loop, is_at_rest, f.cache);
	assert_int_equal(k->pins, 0);
	assert_true(k->segment->huge);
	for (uint64_t i = 0; i < k->segment->memory.bytes; i++)
		assert_int_equal(k->segment->memory.data[i], 7);
	f.cache->stays.again_ns = UINT64_MAX;
	cache_note_use(f.cache, f.d, 1);
	assert_null(f.cache->stays.one); /* chunks do not move all the time */
	f.cache->stays.again_ns = 0;
	cache_note_use(f.cache, f.d, 0);
	assert_null(f.cache->stays.one);
	/* Another chunk in this memory need not wait. */
	cache_note_use(f.cache, f.d, 1);
	assert_non_null(f.cache->stays.one);
	loop_until(&f.f.loop, is_at_rest, f.cache);
	stop(&f);
}
