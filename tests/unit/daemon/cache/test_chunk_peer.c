/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that other nodes have, and chunks that other nodes request. This file stands in for the process that
 * exchanges messages with other nodes. All else is real. */
#include "real_cache.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/shuffle.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "daemon/cache/peers/memberships.h"

#define N_CHUNKS 4

/* ---- the nodes ----------------------------------------------------------------------------------------- */

struct cluster_group {
	struct registry_group_key key;
	uint32_t n_joined;
	uint64_t weight_bytes;
};

struct cluster_question {
	int code; /* 1: answered */
	uint64_t bytes;
	void *answer;
};

static struct cluster_group group;
static struct cluster_read *asked; /* the read under way */
static uint32_t n_fetches, n_spoilt, n_members;
static bool is_ours;
static struct owner_lanes served; /* lanes that this node's ranks use */

int cluster_join(struct cluster *c, const struct registry_group_key *key, const char *path,
		 uint64_t weight_bytes, const struct owner_lanes *lanes, struct cluster_group **ret)
{
	group =
	    (struct cluster_group){.key = *key, .n_joined = group.n_joined + 1, .weight_bytes = weight_bytes};
	*ret = &group;
	return 0;
}

void cluster_leave(struct cluster_group *g)
{
	g->n_joined--;
}

void cluster_set_weight(struct cluster_group *g, uint64_t weight_bytes)
{
	g->weight_bytes = weight_bytes;
}

void cluster_set_lanes(struct cluster_group *g, const struct owner_lanes *lanes)
{
}

const struct owner_lanes *cluster_lanes(const struct cluster_group *g)
{
	return &served;
}

bool cluster_is_ours(const struct cluster_group *g, const struct chunk_id *chunk,
		     const struct owner_place *place)
{
	return is_ours;
}

uint32_t cluster_n_members(const struct cluster_group *g)
{
	return n_members;
}

int cluster_fetch(struct cluster_read *read)
{
	assert_null(asked);
	asked = read;
	n_fetches++;
	return 0;
}

void cluster_spoilt(struct cluster_read *read)
{
	n_spoilt++;
}

void cluster_answer(struct cluster_question *q, int memory_fd, uint64_t bytes, void *answer)
{
	uint8_t byte = 0;

	/* The sender cannot change the memory. */
	assert_int_equal(pread(memory_fd, &byte, 1, 0), 1);
	assert_int_equal(pwrite(memory_fd, &byte, 1, 0), -1);
	*q = (struct cluster_question){.code = 1, .bytes = bytes, .answer = answer};
}

void cluster_refuse(struct cluster_question *q, int code)
{
	q->code = code;
}

/* ---- the fixture --------------------------------------------------------------------------------------- */

struct fixture {
	struct real_cache f;
	struct cache *cache;
	struct cached_dataset *d;
	struct chunk_place *place;
	struct membership *membership;
	char *path;
};

static const struct dataset_plan small = {
    .n_samples = N_CHUNKS * 3, .bytes = 40000, .spread = 4000, .n_a_chunk = 3};
/* A sample is a small part of a chunk. */
static const struct dataset_plan large = {
    .n_samples = N_CHUNKS * 32, .bytes = 40000, .spread = 4000, .n_a_chunk = 32};

static void start_plan(struct fixture *f, const char *root, const struct dataset_plan *plan)
{
	group = (struct cluster_group){.n_joined = 0};
	asked = NULL;
	n_fetches = n_spoilt = 0;
	n_members = 2;
	is_ours = false;
	served = (struct owner_lanes){.lanes = 0};
	real_cache_start(&f->f);
	f->cache = &f->f.cache;
	f->cache->cluster = (struct cluster *)f; /* non-NULL, so the node has a cluster */
	f->path = make_dataset(root, "data", plan);
	f->d = real_cache_open(&f->f, f->path, &f->place);
	f->d->refs = f->d->n_sessions = 1;
	f->d->need_bytes = f->d->segment_bytes;
	f->membership = memberships_join(f->cache, f->d, f->f.job, "job", 2, f->place);
	assert_non_null(f->membership);
	cache_fit(f->cache);
	f->cache->round++;
	assert_int_equal(group.n_joined, 1);
	assert_string_equal(group.key.job, "job");
	assert_true(group.weight_bytes >= f->d->segment_bytes);
}

static void start(struct fixture *f, const char *root)
{
	start_plan(f, root, &small);
}

static void stop(struct fixture *f)
{
	membership_leave(f->membership);
	memberships_end_all(f->cache);
	assert_int_equal(group.n_joined, 0);
	gives_free(f->cache);
	f->cache->cluster = NULL;
	f->place = place_unref(f->place);
	f->d->refs = f->d->n_sessions = 0;
	free(f->path);
	real_cache_stop(&f->f);
}

static void load(struct fixture *f, uint64_t chunk, bool for_peer)
{
	const struct cached_want want = {.for_peer = for_peer};

	assert_int_equal(cache_load(f->cache, f->d, chunk, 0, f->f.job, f->place, &want), 0);
}

static bool is_over(void *cache)
{
	return ((struct cache *)cache)->n_loading == 0;
}

static bool is_asked(void *unused)
{
	return asked != NULL;
}

static void finish(struct fixture *f)
{
	loop_until(&f->f.loop, is_over, f->cache);
	real_cache_check(f->cache);
	assert_int_equal(f->d->loads.n_asking, 0);
	assert_int_equal(f->d->loads.n_for_peers, 0);
}

/* Lets the node send the chunk. spoilt: with one byte of a sample changed. */
static void give(struct fixture *f, uint64_t chunk, int result, bool spoilt)
{
	struct cluster_read *read = asked;
	char *path = real_cache_file(f->d, f->path, chunk);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *data = malloc(read->bytes);
	struct error err = ERROR_INIT;

	assert_int_equal(pread(fd, data, read->bytes, 0), read->bytes);
	data[2 * CHUNK_ALIGN] ^= spoilt;
	if (result == 0)
		assert_int_equal(pwrite(read->memory_fd, data, read->bytes, 0), read->bytes);
	close(fd);
	free(data);
	free(path);
	asked = NULL;
	read->done(read, result, &err);
}

/* ---- asking -------------------------------------------------------------------------------------------- */

TEST_IN_FOLDER(it_comes_from_there)
{
	struct fixture f;

	start(&f, *state);
	load(&f, 1, false);
	assert_int_equal(f.d->loads.n_asking, 1);
	loop_until(&f.f.loop, is_asked, NULL);
	assert_int_equal(f.d->chunks[1].state, CHUNK_READING);
	give(&f, 1, 0, false);
	finish(&f);
	assert_int_equal(f.d->chunks[1].state, CHUNK_READY);
	assert_true(f.d->chunks[1].is_foreign);
	assert_false(f.d->chunks[1].kept);
	assert_int_equal(f.cache->counters.reads, 0);
	assert_int_equal(f.f.job->counters.chunk_reads, 0);
	assert_int_equal(f.f.job->counters.n_read, 0); /* the time is not storage time */
	assert_int_equal(f.f.job->counters.peer_chunks, 1);
	assert_int_equal(f.f.job->n_coming, 0);
	assert_int_equal(f.f.job->counters.coming_ns, f.f.job->counters.peer_ns); /* one chunk at a time */
	assert_false(isnan(read_latency_quantile_s(&f.f.job->counters.came, NULL, 0.5, 1)));
	/* The other node is gone, so this node keeps the chunk. */
	is_ours = true;
	memberships_note_changed(f.cache, &group);
	assert_false(f.d->chunks[1].is_foreign);
	load(&f, 2, false);
	finish(&f);
	assert_int_equal(f.cache->counters.reads, 1);
	assert_int_equal(n_fetches, 1);
	assert_true(f.d->chunks[2].kept);
	stop(&f);
}

TEST_IN_FOLDER(what_does_not_come_is_read)
{
	struct fixture f;

	start(&f, *state);
	for (uint64_t chunk = 0; chunk < 2; chunk++) {
		load(&f, chunk, false);
		loop_until(&f.f.loop, is_asked, NULL);
		give(&f, chunk, chunk == 0 ? -ETIMEDOUT : 0, true);
		finish(&f);
		assert_int_equal(f.d->chunks[chunk].state, CHUNK_READY);
		assert_int_equal(f.cache->counters.reads, chunk + 1);
		assert_int_equal(n_spoilt, chunk); /* the second copy came, and was wrong */
		assert_int_equal(f.f.job->counters.peer_failed, chunk + 1);
		assert_int_equal(f.f.job->n_coming, 0);
	}
	assert_int_equal(n_fetches, 2);
	stop(&f);
}

/* Few samples are needed of a chunk that this node does not keep, so they are read from storage. The whole
 * chunk comes from the peer once all samples are needed, and a segment whose part is in use stays where it
 * is. */
TEST_IN_FOLDER(a_few_samples_are_read)
{
	const uint64_t sample = 1;
	const struct cached_want few = {.samples = &sample, .n = 1};
	struct fixture f;

	start_plan(&f, *state, &large);
	assert_int_equal(cache_load(f.cache, f.d, 0, 0, f.f.job, f.place, &few), 0);
	assert_int_equal(f.d->loads.n_asking, 0);
	finish(&f);
	assert_int_equal(f.d->chunks[0].state, CHUNK_READY);
	struct segment *part = f.d->chunks[0].segment;
	assert_non_null(f.d->chunks[0].part);
	assert_int_equal(n_fetches, 0);
	cache_pin(f.cache, f.d, 0);
	load(&f, 0, false);
	loop_until(&f.f.loop, is_asked, NULL);
	give(&f, 0, 0, false);
	finish(&f);
	assert_int_equal(f.d->chunks[0].state, CHUNK_READY);
	assert_ptr_equal(f.d->chunks[0].segment, part);
	assert_null(f.d->chunks[0].part);
	assert_int_equal(n_fetches, 1);
	assert_int_equal(f.cache->counters.reads, 1);
	cache_unpin(f.d, 0);
	stop(&f);
}

TEST_IN_FOLDER(who_may_not_read_it_asks_nobody)
{
	struct fixture f;

	start(&f, *state);
	_cleanup_(freep) char *path = real_cache_file(f.d, f.path, 0);
	assert_int_equal(chmod(path, 0400), 0); /* stricter than the snapshot */
	load(&f, 0, false);
	finish(&f);
	assert_int_equal(f.d->chunks[0].state, CHUNK_BAD);
	assert_int_equal(n_fetches, 0);
	stop(&f);
}

TEST_IN_FOLDER(nodes_are_waited_for)
{
	struct fixture f;
	uint64_t again_ns = UINT64_MAX, begin_ns;

	start(&f, *state);
	begin_ns = f.membership->since_ns;
	n_members = 1;
	assert_true(membership_waits(f.membership, begin_ns, &again_ns));
	assert_int_equal(again_ns, begin_ns + MEMBERSHIP_WAIT_NS);
	n_members = 2;
	assert_false(membership_waits(f.membership, begin_ns, &again_ns));
	n_members = 1; /* a node that left is not waited for */
	assert_false(membership_waits(f.membership, begin_ns, &again_ns));
	f.membership->is_complete = false;
	assert_false(membership_waits(f.membership, begin_ns + MEMBERSHIP_WAIT_NS, &again_ns));
	stop(&f);
}

/* ---- giving -------------------------------------------------------------------------------------------- */

static void ask(struct fixture *f, uint64_t chunk, struct cluster_question *q)
{
	struct snapshot_chunk meta;

	*q = (struct cluster_question){.code = 0};
	assert_int_equal(snapshot_chunk_get(f->d->snapshot, chunk, &meta), 0);
	gives_asked(f->cache, &group, &meta.id, q);
	gives_pump(f->cache);
}

TEST_IN_FOLDER(it_is_read_once_and_given)
{
	struct cluster_question first, second;
	struct give_want want;
	struct fixture f;

	start(&f, *state);
	ask(&f, 2, &first);
	ask(&f, 2, &second);
	assert_int_equal(first.code, 0);
	assert_int_equal(gives_wanted(f.cache, &want, 1), 1);
	assert_int_equal(want.chunk, 2);
	load(&f, 2, true); /* a node gives it, whichever node owns it */
	assert_int_equal(f.d->loads.n_for_peers, 1);
	assert_int_equal(gives_wanted(f.cache, &want, 1), 0);
	finish(&f);
	assert_int_equal(n_fetches, 0);
	gives_pump(f.cache);
	assert_int_equal(first.code, 1);
	assert_int_equal(second.code, 1);
	assert_int_equal(f.cache->counters.reads, 1);
	assert_int_equal(f.d->chunks[2].pins, 2);
	gives_given(f.cache, first.answer);
	gives_given(f.cache, second.answer);
	assert_int_equal(f.d->chunks[2].pins, 0);
	assert_int_equal(f.cache->gives.n, 0);
	stop(&f);
}

TEST_IN_FOLDER(questions_that_are_refused)
{
	const struct chunk_id unknown = {{0}};
	struct cluster_question q = {.code = 0}, other = {.code = 0};
	struct cluster_group elsewhere = {.n_joined = 1};
	struct give_want want;
	struct fixture f;

	start(&f, *state);
	gives_asked(f.cache, &group, &unknown, &q);
	gives_asked(f.cache, &elsewhere, &unknown, &other);
	gives_pump(f.cache);
	assert_int_equal(q.code, -ENOENT);
	assert_int_equal(other.code, -ENOENT);
	/* Two nodes that each consider the other one the owner do not wait for each other. */
	load(&f, 0, false);
	ask(&f, 0, &q);
	assert_int_equal(q.code, -EAGAIN);
	loop_until(&f.f.loop, is_asked, NULL);
	give(&f, 0, 0, false);
	finish(&f);
	/* The node has no space for the chunk. */
	ask(&f, 3, &q);
	assert_int_equal(gives_wanted(f.cache, &want, 1), 1);
	gives_refuse(f.cache, &want);
	assert_int_equal(q.code, -EBUSY);
	/* Without a session no chunk is read, but chunks in memory are given. */
	membership_leave(f.membership);
	ask(&f, 3, &q);
	assert_int_equal(q.code, -ENOENT);
	ask(&f, 0, &q);
	assert_int_equal(q.code, 1);
	gives_given(f.cache, q.answer);
	assert_ptr_equal(memberships_join(f.cache, f.d, f.f.job, "job", 2, f.place), f.membership);
	/* A membership does not continue under another name, on one node, or without a name. */
	assert_null(memberships_join(f.cache, f.d, f.f.job, "another", 2, f.place));
	assert_null(memberships_join(f.cache, f.d, f.f.job, "job", 1, f.place));
	assert_null(memberships_join(f.cache, f.d, f.f.job, "", 2, f.place));
	/* The node leaves the group while a request waits. */
	ask(&f, 3, &q);
	assert_int_equal(q.code, 0);
	stop(&f);
	assert_int_equal(q.code, -ENOENT);
}

/* A chunk that drift assigns to another node's lane stays here until that node has it. */
TEST_IN_FOLDER(a_chunk_that_left_stays_until_taken)
{
	static const uint32_t sizes[N_CHUNKS] = {3, 3, 3, 3};
	static const uint64_t base[N_CHUNKS] = {0, 1, 2, 3};
	struct shuffle_spec spec = {.chunk_samples = sizes,
				    .n_chunks = N_CHUNKS,
				    .base = base,
				    .shuffle = true,
				    .lanes = 2,
				    .drift = 1,
				    .world = 2,
				    .batch = 1};
	uint32_t visits[N_CHUNKS] = {1, 1, 1, 1};
	struct cached_cursor cursor = {.place = {.now = visits, .then = visits, .n_visits = 2}};
	struct cluster_question q = {.code = 0};
	struct fixture f;
	uint64_t chunk = N_CHUNKS, epoch = 0;

	start(&f, *state);
	served = (struct owner_lanes){.lanes = 2, .drift = 1, .n_runs = 1, .runs = {{0, 1}}};
	membership_join_lanes(f.membership, &spec, 0, 1);
	while (chunk == N_CHUNKS) {
		membership_go_on(f.membership, ++epoch);
		assert_true(epoch < 100);
		for (chunk = 0; chunk < N_CHUNKS; chunk++) {
			struct owner_place next;

			if (membership_has_left(f.membership, epoch, chunk) &&
			    lane_table_place(&f.membership->lanes, LANES_NEXT, chunk, &next) &&
			    next.first == 1)
				break; /* and the chunk does not return in the next epoch */
		}
	}
	is_ours = true; /* this node is the owner as far as its own reads are concerned */
	load(&f, chunk, false);
	finish(&f);
	cached_add_cursor(f.d, &cursor);
	memberships_find_owners(f.cache, f.d);
	assert_false(f.d->chunks[chunk].is_foreign);
	assert_int_equal(cached_next_use(f.d, chunk), 1);
	ask(&f, chunk, &q);
	assert_int_equal(q.code, 1);
	assert_false(f.d->chunks[chunk].is_foreign);
	gives_given(f.cache, q.answer);
	assert_true(f.d->chunks[chunk].is_foreign);
	assert_int_equal(cached_next_use(f.d, chunk), POLICY_NEVER);
	cached_drop_cursor(f.d, &cursor);
	stop(&f);
}
