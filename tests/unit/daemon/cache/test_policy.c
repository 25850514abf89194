/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "daemon/cache/policy.h"

#define MIB (1u << 20)

TEST(the_default_window_fits_the_cache)
{
	/* everything fits: the requested window, or the whole dataset */
	assert_int_equal(policy_default_window(1024 * MIB, 8 * MIB, 10, 8), 8);
	assert_int_equal(policy_default_window(1024 * MIB, 8 * MIB, 5, 8), 5);
	/* larger than the cache: twice the window within a quarter of the cache */
	assert_int_equal(policy_default_window(1024 * MIB, 8 * MIB, 1000, 8), 8);
	assert_int_equal(policy_default_window(256 * MIB, 8 * MIB, 1000, 8), 4);
	assert_int_equal(policy_default_window(32 * MIB, 8 * MIB, 1000, 8), 1);
}

TEST(slots_fit_memory_down_to_the_least)
{
	assert_int_equal(policy_fit_slots(8, 3, 10 * MIB, 1000u * MIB), 8);
	assert_int_equal(policy_fit_slots(8, 3, 10 * MIB, 200u * MIB), 5);
	assert_int_equal(policy_fit_slots(8, 3, 10 * MIB, 1 * MIB), 3);
}

TEST(a_joined_need_is_bounded_by_the_dataset)
{
	assert_int_equal(policy_join_need(100, 10, 5), 15);
	assert_int_equal(policy_join_need(100, 90, 50), 100);
}

/* Returns the segment of the highest rank, and among equals the better victim; -1: all must stay. */
static long pick_victim(const struct policy_segment *segments, size_t n, uint32_t distance)
{
	uint32_t best_rank = 0;
	long best = -1;

	for (size_t i = 0; i < n; i++) {
		uint32_t rank = policy_victim_rank(&segments[i], distance);

		if (rank > best_rank || (rank > 0 && rank == best_rank &&
					 policy_is_better_victim(&segments[i], &segments[best]))) {
			best = (long)i;
			best_rank = rank;
		}
	}
	return best;
}

#define BUSY(...)                                                                                            \
	{                                                                                                    \
		.busy = true, __VA_ARGS__                                                                    \
	}
#define CHUNK(d, ...)                                                                                        \
	{                                                                                                    \
		.distance = (d), __VA_ARGS__                                                                 \
	}

#define ORDERED(visits, ...)                                                                                 \
	{                                                                                                    \
		.distance = POLICY_NEVER, .next_use = (visits), .ordered = true, .reach = 30, __VA_ARGS__    \
	}

TEST(the_victim_is_the_least_useful_segment)
{
	static const struct {
		struct policy_segment segments[4];
		uint32_t distance;
		long victim;
	} table[] = {
	    {{BUSY(), BUSY(), BUSY(), BUSY()}, 0, -1},
	    /* an idle dataset first, kept or not, and of its chunks the least recently used one */
	    {{CHUNK(POLICY_NEVER), CHUNK(POLICY_NEVER, .idle = true, .kept = true, .last_use = 9),
	      CHUNK(POLICY_NEVER, .idle = true, .last_use = 3), BUSY()},
	     5,
	     2},
	    /* then a transient chunk that is not needed; never a kept one for read-ahead */
	    {{CHUNK(3), CHUNK(POLICY_NEVER, .last_use = 5), CHUNK(POLICY_NEVER, .kept = true, .last_use = 1),
	      BUSY()},
	     5,
	     1},
	    {{CHUNK(3), CHUNK(POLICY_NEVER, .kept = true), BUSY(), BUSY()}, 5, -1},
	    /* a waiting batch may take kept chunks, then read-ahead, the farthest first; never one that
	     * another batch waits for */
	    {{CHUNK(3), CHUNK(POLICY_NEVER, .kept = true), CHUNK(9), BUSY()}, 0, 1},
	    {{CHUNK(3), CHUNK(0), CHUNK(9), CHUNK(9, .kept = true, .last_use = 4)}, 0, 2},
	    {{CHUNK(0), CHUNK(0), CHUNK(0), BUSY()}, 0, -1},
	    /* chunks that other nodes must keep go before this node's own, however soon they are needed
	     * here */
	    {{ORDERED(70, .own = true), ORDERED(30, .own = true, .foreign = true),
	      ORDERED(60, .excess = true), BUSY()},
	     5,
	     1},
	    {{CHUNK(3, .foreign = true), CHUNK(POLICY_NEVER), BUSY(), BUSY()}, 5, 1},
	    /* if the order is known, the chunk that is needed last, kept or not */
	    {{ORDERED(30, .own = true), ORDERED(70, .own = true, .kept = true), ORDERED(60), BUSY()}, 5, 1},
	    {{ORDERED(30, .own = true), ORDERED(70, .kept = true), ORDERED(60), BUSY()}, 5, 2},
	    /* but no chunk that is needed before the chunk that is read ahead */
	    {{ORDERED(30, .own = true), ORDERED(20, .own = true), BUSY(), BUSY()}, 30, -1},
	    {{ORDERED(31, .own = true), ORDERED(20, .own = true), BUSY(), BUSY()}, 30, 0},
	    /* no chunk for a chunk that is read too early */
	    {{ORDERED(90, .own = true), BUSY(), BUSY(), BUSY()}, 31, -1},
	    {{ORDERED(90, .own = true), BUSY(), BUSY(), BUSY()}, 0, 0},
	    /* first the chunks that others have beyond their share */
	    {{ORDERED(90, .own = true), ORDERED(20, .excess = true), CHUNK(POLICY_NEVER, .idle = true),
	      BUSY()},
	     5,
	     2},
	    {{ORDERED(90, .own = true), ORDERED(20, .excess = true),
	      ORDERED(95, .excess = true, .kept = true), BUSY()},
	     5,
	     1},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		long victim = pick_victim(table[i].segments, 4, table[i].distance);

		if (victim != table[i].victim)
			fail_msg("line %zu: %ld instead of %ld", i, victim, table[i].victim);
	}
}

TEST(memory_is_shared_out_by_need)
{
	enum { A, B, N };
	struct policy_share s[N];

	/* both fit: everything is kept */
	s[A] = (struct policy_share){.all = 100, .need = 10, .ahead = 20, .asked = UINT64_MAX};
	s[B] = (struct policy_share){.all = 50, .need = 5, .ahead = 10, .asked = UINT64_MAX};
	assert_int_equal(policy_share_out(s, N, 200), 200);
	assert_int_equal(s[A].cap, 100);
	assert_int_equal(s[A].keep, 100);
	/* not all fits: space to pass through is taken from the kept chunks */
	assert_int_equal(policy_share_out(s, N, 120), 120 - 30);
	assert_int_equal(policy_share_out(s, N, 20), 0);
	/* a job got less than its dataset */
	s[A].asked = 60;
	assert_int_equal(policy_share_out(s, N, 120), 120);
	assert_int_equal(s[A].cap, 60);
	assert_int_equal(s[A].keep, 40);
	assert_int_equal(s[B].keep, 50);
	/* a job with less than its read-ahead keeps nothing, and a job with less than its need gets its
	 * need */
	s[A].asked = 15;
	policy_share_out(s, N, 120);
	assert_int_equal(s[A].cap, 15);
	assert_int_equal(s[A].keep, 0);
	s[A].asked = 0;
	policy_share_out(s, N, 120);
	assert_int_equal(s[A].cap, 10);
	assert_int_equal(policy_share_out(NULL, 0, 7), 7);
}

TEST(lent_memory_is_shared_in_equal_parts)
{
	struct policy_share s[] = {{.all = 100, .cap = 10}, {.all = 30, .cap = 20}, {.all = 50, .cap = 50}};

	/* equal parts of the usable rest, up to the whole dataset; claims stay */
	policy_borrow(s, 3, 60);
	assert_int_equal(s[0].asked, 60);
	assert_int_equal(s[1].asked, 30);
	assert_int_equal(s[2].asked, 50);
	assert_int_equal(s[0].cap, 10);
	policy_borrow(s, 3, 0);
	assert_int_equal(s[0].asked, 10);
	policy_borrow(s, 3, 1000);
	assert_int_equal(s[0].asked, 100);
	policy_borrow(NULL, 0, 5);
}

TEST(a_dataset_gets_its_part_of_what_is_asked)
{
	assert_int_equal(policy_dataset_part(60, 100, 300), 20);
	assert_int_equal(policy_dataset_part(500, 100, 300), 500); /* space for all of them */
	assert_int_equal(policy_dataset_part(UINT64_MAX, 100, 300), UINT64_MAX);
	assert_int_equal(policy_dataset_part(0, 100, 300), 0);
	assert_int_equal(policy_dataset_part(5, 0, 0), 5);
}

TEST(victims_have_one_order)
{
	const struct policy_segment idle = CHUNK(POLICY_NEVER, .idle = true, .kept = true),
				    transient = CHUNK(POLICY_NEVER), kept = CHUNK(POLICY_NEVER, .kept = true),
				    near = CHUNK(4), now = CHUNK(0), pinned = BUSY();

	assert_true(policy_victim_rank(&idle, 0) > policy_victim_rank(&transient, 0));
	assert_true(policy_victim_rank(&transient, 0) >= POLICY_RANK_UNWANTED);
	assert_true(policy_victim_rank(&transient, 0) > policy_victim_rank(&kept, 0));
	assert_true(policy_victim_rank(&kept, 0) > policy_victim_rank(&near, 0));
	assert_true(policy_victim_rank(&near, 0) > 0);
	assert_int_equal(policy_victim_rank(&near, 1), 0);
	assert_int_equal(policy_victim_rank(&now, 0), 0);
	assert_int_equal(policy_victim_rank(&pinned, 0), 0);
}

TEST(the_next_use_follows_the_cursor)
{
	const uint32_t now[] = {2, 0, 1, POLICY_NEVER}, then[] = {1, 2, 0, POLICY_NEVER};
	struct policy_cursor k = {.now = now, .then = then, .n_visits = 3};

	assert_int_equal(policy_next_use(&k, 0), 2);
	assert_int_equal(policy_next_use(&k, 1), 0);
	assert_int_equal(policy_next_use(&k, 3), POLICY_NEVER);
	/* a chunk that this epoch has visited is next used in the next epoch */
	k.at = 2;
	assert_int_equal(policy_next_use(&k, 0), 0);
	assert_int_equal(policy_next_use(&k, 1), 1 + 2);
	assert_int_equal(policy_next_use(&k, 2), 1 + 0);
	/* at the end of the next epoch, if its order is not known */
	k.then = NULL;
	assert_int_equal(policy_next_use(&k, 0), 0);
	assert_int_equal(policy_next_use(&k, 1), 1 + 3);
	assert_int_equal(policy_next_use(&k, 3), POLICY_NEVER);
}

/* Chunks 1 and 3 change lanes with the next epoch. */
TEST(next_use_of_what_moves)
{
	const uint32_t now[] = {1, 0, 2, POLICY_NEVER}, then[] = {2, POLICY_NEVER, 1, 0};
	struct policy_cursor k = {.now = now, .then = then, .n_visits = 3};

	assert_int_equal(policy_next_use(&k, 1), 0);
	assert_int_equal(policy_next_use(&k, 3), 3 + 0);
	k.at = 2;
	assert_int_equal(policy_next_use(&k, 0), 1 + 2);
	assert_int_equal(policy_next_use(&k, 1), POLICY_NEVER);
	assert_int_equal(policy_next_use(&k, 3), 1 + 0);
}

/* Evicting an empty segment loses nothing, for any request. Otherwise it would stay for ever while others are
 * evicted. */
TEST(empty_goes_first)
{
	const struct policy_segment empty = {.distance = POLICY_NEVER,
					     .next_use = POLICY_NEVER,
					     .ordered = true,
					     .empty = true,
					     .reach = 4},
				    foreign = {.distance = POLICY_NEVER,
					       .next_use = POLICY_NEVER,
					       .ordered = true,
					       .foreign = true,
					       .reach = 4},
				    idle = {.distance = POLICY_NEVER, .next_use = POLICY_NEVER, .idle = true},
				    filling = {.empty = true, .busy = true};

	for (uint32_t distance = 0; distance < 9; distance += 8) {
		assert_true(policy_victim_rank(&empty, distance) > policy_victim_rank(&foreign, distance));
		assert_true(policy_victim_rank(&empty, distance) > policy_victim_rank(&idle, distance));
	}
	assert_int_equal(policy_victim_rank(&filling, 0), 0);
}

TEST(the_reach_grows_with_memory)
{
	assert_int_equal(policy_reach(0), 1);
	assert_int_equal(policy_reach(13), 6);
	assert_int_equal(policy_reach(UINT64_MAX), POLICY_NEVER);
	assert_int_equal(policy_far_reach(0), 1);
	assert_int_equal(policy_far_reach(13), 11);
	assert_int_equal(policy_far_reach(UINT64_MAX), POLICY_NEVER);
}

TEST(a_chunk_is_late_by_storage_s_pace)
{
	/* Storage takes as long for a chunk as three uses. */
	assert_false(policy_is_late(3, 1, 1, 4));
	assert_true(policy_is_late(3, 1, 1, 3));
	assert_true(policy_is_late(3, 2, 1, 7));
	assert_false(policy_is_late(3, 2, 1, 8));
	assert_false(policy_is_late(3, 0, 1, 0));
	assert_int_equal(policy_reads_meanwhile(3, 1, 4), 2);
	assert_int_equal(policy_reads_meanwhile(1, 1, 4), 5);
	assert_int_equal(policy_reads_meanwhile(1, 3, 4), 5);
	assert_int_equal(policy_reads_meanwhile(0, 3, 4), 5);
}
