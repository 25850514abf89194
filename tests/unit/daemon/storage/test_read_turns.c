/* SPDX-License-Identifier: Apache-2.0 */
/* Users and jobs that read from storages in virtual time. A storage ends the reads in the order in which they
 * began. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

#include "lib/clock.h"
#include "daemon/storage/read_turns.h"
#include "daemon/node/turns.h"

#define MIB       (UINT64_C(1) << 20)
#define MAX_JOBS  64
#define MAX_READS 1024

/* A job that always needs more, from n_datasets, each with up to 4 reads under way. */
struct reader {
	uint32_t uid, weight, n_datasets;
	uint64_t bytes;
	bool waits;
	dev_t storage;
	bool idle;
	struct read_lanes lanes;
	uint32_t n_reads;
	uint64_t done_bytes, last_served;
};

struct world {
	struct read_turns *turns;
	struct reader *readers;
	size_t n;
	struct read_ticket tickets[MAX_READS];
	struct reader *of[MAX_READS];
	uint32_t first, last; /* reads under way, in order */
	uint64_t now_ns, clock, again_ns;
};

static void world_new(struct world *w, struct reader *readers, size_t n)
{
	*w = (struct world){.readers = readers, .n = n};
	assert_int_equal(read_turns_new(&w->turns), 0);
	for (size_t i = 0; i < n; i++) {
		readers[i].weight = readers[i].weight ? readers[i].weight : TURN_WEIGHT;
		readers[i].n_datasets = readers[i].n_datasets ? readers[i].n_datasets : 1;
		readers[i].bytes = readers[i].bytes ? readers[i].bytes : MIB;
	}
}

static void world_free(struct world *w)
{
	for (; w->first != w->last; w->first++)
		read_turns_end(&w->tickets[w->first % MAX_READS]);
	read_turns_free(w->turns); /* lanes may outlive it */
	for (size_t i = 0; i < w->n; i++)
		read_lanes_free(&w->readers[i].lanes);
}

/* Starts all reads that may start. */
static void start_all(struct world *w)
{
	for (;;) {
		struct read_want wants[MAX_JOBS];
		struct reader *of[MAX_JOBS], *r;
		size_t n = 0;
		long pick;

		for (size_t i = 0; i < w->n; i++) {
			r = &w->readers[i];
			if (r->idle || r->n_reads >= 4 * r->n_datasets)
				continue;
			of[n] = r;
			wants[n++] = (struct read_want){.lanes = &r->lanes,
							.storage = r->storage,
							.uid = r->uid,
							.weight = r->weight,
							.bytes = r->bytes,
							.distance = r->waits ? 0 : 3,
							.waits = r->waits,
							.last_served = r->last_served};
		}
		pick = read_turns_pick(w->turns, wants, n, w->now_ns, &w->again_ns);
		if (pick < 0)
			return;
		r = of[pick];
		r->n_reads++;
		r->last_served = ++w->clock;
		w->of[w->last % MAX_READS] = r;
		read_turns_begin(w->turns, &wants[pick], w->now_ns, &w->tickets[w->last++ % MAX_READS]);
		assert_true(w->last - w->first < MAX_READS);
	}
}

static void end_one(struct world *w)
{
	struct reader *r = w->of[w->first % MAX_READS];

	assert_int_not_equal(w->first, w->last);
	read_turns_end(&w->tickets[w->first++ % MAX_READS]);
	w->now_ns += NS_PER_MS;
	r->n_reads--;
	r->done_bytes += r->bytes;
}

static void run(struct world *w, uint32_t n)
{
	start_all(w);
	for (uint32_t i = 0; i < n; i++) {
		end_one(w);
		start_all(w);
	}
}

static uint64_t bytes_of(const struct world *w, uint32_t uid)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < w->n; i++)
		sum += w->readers[i].uid == uid ? w->readers[i].done_bytes : 0;
	return sum;
}

static void assert_near(uint64_t a, uint64_t b, uint64_t most)
{
	assert_true((a > b ? a - b : b - a) <= most);
}

TEST(a_job_alone_has_all_its_reads)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 20}};
	struct world w;

	world_new(&w, readers, 1);
	start_all(&w);
	assert_int_equal(readers[0].n_reads, 80);
	world_free(&w);
}

/* Ten datasets, fifty jobs or many sessions that always wait give a user no more than one job has. */
TEST(many_sessions_give_a_user_no_more)
{
	struct reader readers[MAX_JOBS] = {{.uid = 1}, {.uid = 2, .n_datasets = 10}};
	struct world w;

	world_new(&w, readers, 2);
	run(&w, 2000);
	assert_near(bytes_of(&w, 1), bytes_of(&w, 2), 16 * MIB);
	world_free(&w);

	memset(readers, 0, sizeof(readers));
	readers[0].uid = 1;
	for (int i = 1; i <= 50; i++)
		readers[i] = (struct reader){.uid = 2, .waits = true};
	world_new(&w, readers, 51);
	run(&w, 4000);
	assert_near(bytes_of(&w, 1), bytes_of(&w, 2), READ_URGENT_BYTES + 32 * MIB);
	world_free(&w);
}

/* The jobs of a user share, too, by bytes rather than by reads. */
TEST(jobs_of_a_user_share_by_bytes)
{
	struct reader readers[] = {
	    {.uid = 1, .n_datasets = 16}, {.uid = 1}, {.uid = 1}, {.uid = 1}, {.uid = 1}};
	struct world w;

	world_new(&w, readers, 5);
	run(&w, 5000);
	for (int i = 1; i < 5; i++)
		assert_near(readers[0].done_bytes, readers[i].done_bytes, 16 * MIB);
	world_free(&w);
	for (int i = 0; i < 5; i++)
		readers[i] =
		    (struct reader){.uid = (uint32_t)i, .n_datasets = 4, .bytes = i ? 8 * MIB : 2 * MIB};
	world_new(&w, readers, 5);
	run(&w, 5000);
	for (int i = 1; i < 5; i++) /* each read has a fixed cost, too */
		assert_near(readers[0].done_bytes * 100 / readers[i].done_bytes, 92, 3);
	world_free(&w);
}

TEST(weights_divide_the_bytes)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 4, .weight = 300}, {.uid = 2, .n_datasets = 10}};
	struct world w;

	world_new(&w, readers, 2);
	run(&w, 4000);
	assert_near(bytes_of(&w, 1), 3 * bytes_of(&w, 2), 64 * MIB);
	world_free(&w);
}

/* A waiting trainer's read is served next, although others have had less, but only up to a bound. */
TEST(an_urgent_read_is_next_up_to_a_bound)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 4}, {.uid = 2, .n_datasets = 4}};
	struct world w;

	world_new(&w, readers, 2);
	run(&w, 400);
	uint64_t before = readers[0].done_bytes;
	readers[1].waits = true;
	run(&w, 400);
	assert_near(readers[0].done_bytes - before, 200 * MIB, READ_URGENT_BYTES / 2 + 8 * MIB);
	world_free(&w);
}

/* Time without requests gives no credit, and debts outlive jobs. */
TEST(time_away_is_no_credit)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 4},
				   {.uid = 2, .n_datasets = 4, .idle = true},
				   {.uid = 3, .n_datasets = 4}};
	struct world w;

	world_new(&w, readers, 3);
	run(&w, 1000);
	uint64_t before = readers[0].done_bytes;
	readers[1].idle = false;
	run(&w, 300);
	assert_near(readers[0].done_bytes - before, 100 * MIB, 16 * MIB);
	assert_near(readers[1].done_bytes, 100 * MIB, 16 * MIB);
	world_free(&w);
}

/* Hanging reads delay others only briefly, and do not affect another storage at all. */
TEST(hanging_reads_hold_nobody_up_for_long)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 10}, {.uid = 2}, {.uid = 3, .storage = 7}};
	struct world w;

	world_new(&w, readers, 2);
	readers[1].idle = true;
	start_all(&w);
	assert_int_equal(readers[0].n_reads, 40);
	readers[1].idle = false;
	w.n = 3;
	readers[2].weight = TURN_WEIGHT;
	readers[2].n_datasets = 1;
	readers[2].bytes = MIB;
	start_all(&w);
	assert_int_equal(readers[1].n_reads, 0);
	assert_int_equal(readers[2].n_reads, 4);
	assert_int_equal(w.again_ns, READ_STUCK_NS);
	w.now_ns = READ_STUCK_NS;
	start_all(&w);
	assert_int_equal(readers[1].n_reads, 4);
	world_free(&w);
}

/* Whatever is requested, at most the limit, a burst and one read begin. */
TEST(no_more_than_the_limit_is_begun)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 10, .bytes = 8 * MIB}};
	struct world w;

	world_new(&w, readers, 1);
	read_turns_limit(w.turns, 80 * MIB, 0);
	for (uint32_t ms = 0; ms < 10000; ms++) {
		w.now_ns = ms * NS_PER_MS;
		start_all(&w);
		if (w.first != w.last)
			end_one(&w);
	}
	assert_near(readers[0].done_bytes, 800 * MIB, 16 * MIB);
	/* Reads waited for the limit nearly all of the time. */
	assert_true(read_turns_limited_ns(w.turns, w.now_ns) > 9 * NS_PER_S);
	assert_true(read_turns_limited_ns(w.turns, w.now_ns) < 10 * NS_PER_S);
	assert_true(w.again_ns > w.now_ns && w.again_ns <= w.now_ns + 100 * NS_PER_MS);
	/* A read larger than a second's limit is paid for afterwards. */
	read_turns_limit(w.turns, MIB, 0);
	w.now_ns += NS_PER_S;
	start_all(&w);
	assert_int_equal(readers[0].n_reads, 1);
	assert_int_equal(w.again_ns, w.now_ns + 8 * NS_PER_S - READ_BURST_NS);
	/* Without a limit, debts are forgotten. */
	read_turns_limit(w.turns, 0, 0);
	start_all(&w);
	assert_int_equal(readers[0].n_reads, 40);
	world_free(&w);
}

TEST(limit_of_requests)
{
	struct reader readers[] = {{.uid = 1, .n_datasets = 10, .bytes = MIB / 4}};
	struct world w;

	world_new(&w, readers, 1);
	read_turns_limit(w.turns, 1000 * MIB, 50);
	for (uint32_t ms = 0; ms < 10000; ms++) {
		w.now_ns = ms * NS_PER_MS;
		start_all(&w);
		if (w.first != w.last)
			end_one(&w);
	}
	assert_near(readers[0].done_bytes, 500 * MIB / 4, 2 * MIB);
	world_free(&w);
}

/* Under a limit, a user gets no more by reading from many storages, nor from a storage of its own. */
TEST(limit_is_shared)
{
	struct reader readers[11] = {{.uid = 1, .weight = 200}};
	struct world w;

	for (size_t i = 1; i < 11; i++)
		readers[i] = (struct reader){.uid = 2, .storage = (dev_t)i, .n_datasets = 10, .waits = true};
	world_new(&w, readers, 11);
	read_turns_limit(w.turns, 200 * MIB, 0);
	for (uint32_t ms = 0; ms < 20000; ms++) {
		w.now_ns = ms * NS_PER_MS;
		start_all(&w);
		if (w.first != w.last)
			end_one(&w);
	}
	assert_near(bytes_of(&w, 1) + bytes_of(&w, 2), 4000 * MIB, 24 * MIB);
	assert_near(bytes_of(&w, 1), 2 * bytes_of(&w, 2), 3 * READ_URGENT_BYTES + 16 * MIB);
	world_free(&w);
}
