/* SPDX-License-Identifier: Apache-2.0 */
/* Borrowed memory is available as long as no other program needs it, and not a second longer. */
#include "tests/support_loop.h"

#include <math.h>

#include "daemon/cache/borrow.h"
#include "daemon/cache/borrow_watch.h"

#define GIB (1024.0 * 1024 * 1024)
#define MIB (1024.0 * 1024)
#define S   UINT64_C(1000000000)

/* A node of 16 GiB with 8 GiB of headroom, of which 1 GiB is free, and page cache has the rest. The reserve
 * is twice 256 MiB. */
static struct stall_node calm(void)
{
	struct stall_node node = stall_node_unknown();

	node.memory_limit_bytes = 16 * GIB;
	node.memory_headroom_bytes = 8 * GIB;
	node.memory_free_bytes = 1 * GIB;
	node.memory_some_avg10 = node.memory_some_now = 0;
	node.oom_kills = 0;
	return node;
}

static uint64_t limit_on_borrowed(struct borrow *l, const struct stall_node *node, double refaulted,
				  uint64_t borrowed, uint64_t now_ns)
{
	const struct borrow_use use = {.total = borrowed, .borrowed = borrowed, .limit = UINT64_MAX};

	return borrow_decide(l, node, refaulted, &use, now_ns).borrowed;
}

/* Decides for a cache that takes 6 of at most 8 GiB. */
static uint64_t limit_on_all(struct borrow *l, const struct stall_node *node, uint64_t borrowed,
			     uint64_t now_ns)
{
	const struct borrow_use use = {
	    .total = (uint64_t)(6 * GIB), .borrowed = borrowed, .limit = (uint64_t)(8 * GIB)};

	return borrow_decide(l, node, 0, &use, now_ns).total;
}

TEST(what_nobody_wants_may_be_borrowed)
{
	struct stall_node node = calm(), unknown = stall_node_unknown();
	struct borrow l = {0};

	assert_int_equal(limit_on_borrowed(&l, &node, 0, 0, 100 * S), (uint64_t)(7.5 * GIB));
	assert_int_equal(limit_on_borrowed(&l, &node, 0, (uint64_t)GIB, 101 * S), (uint64_t)(8.5 * GIB));
	assert_true(limit_on_borrowed(&l, &unknown, 0, 5, 102 * S) == BORROW_ALL);
}

TEST(who_waits_gets_all_at_once)
{
	struct stall_node node = calm();
	struct borrow l = {0};

	node.memory_some_now = 6;
	assert_int_equal(limit_on_borrowed(&l, &node, 0, (uint64_t)GIB, 100 * S), 0);
	/* tasks that wait at a limit of their own do not count, while an eighth of the memory is free */
	node.memory_free_bytes = 3 * GIB;
	assert_true(limit_on_borrowed(&l, &node, 0, (uint64_t)GIB, 200 * S) > 0);
	node.memory_some_now = NAN;
	node.oom_kills = 1;
	assert_int_equal(limit_on_borrowed(&l, &node, 0, (uint64_t)GIB, 300 * S), 0);
}

TEST(what_is_missing_is_given_back)
{
	struct stall_node node = calm();
	struct borrow l = {0};

	node.memory_headroom_bytes = 412 * MIB;
	assert_int_equal(limit_on_borrowed(&l, &node, 0, (uint64_t)GIB, 100 * S), (uint64_t)(924 * MIB));
	node.memory_headroom_bytes = 0;
	assert_int_equal(limit_on_borrowed(&l, &node, 0, (uint64_t)(100 * MIB), 101 * S), 0);
}

TEST(larger_nodes_keep_more_free)
{
	struct stall_node node = calm();
	struct borrow l = {0};

	node.memory_limit_bytes = 1024 * GIB;
	node.memory_headroom_bytes = 40 * GIB;
	node.memory_free_bytes = 40 * GIB;
	assert_int_equal(limit_on_borrowed(&l, &node, 0, 0, 100 * S), (uint64_t)(8 * GIB));
	node.memory_headroom_bytes = 30 * GIB;
	assert_int_equal(limit_on_borrowed(&l, &node, 0, (uint64_t)(5 * GIB), 200 * S), (uint64_t)(3 * GIB));
}

TEST(claims_give_way_behind_what_is_borrowed)
{
	struct stall_node node = calm();
	struct borrow l = {0};
	const struct borrow_use small = {.total = (uint64_t)MIB, .limit = (uint64_t)(8 * GIB)};
	uint64_t total = (uint64_t)(6 * GIB);

	/* 156 of 256 MiB are missing */
	node.memory_headroom_bytes = 100 * MIB;
	assert_true(limit_on_all(&l, &node, (uint64_t)(156 * MIB), 100 * S) == BORROW_ALL);
	assert_int_equal(limit_on_all(&l, &node, (uint64_t)(155 * MIB), 100 * S),
			 total - (uint64_t)(156 * MIB));
	node.memory_headroom_bytes = 0;
	assert_int_equal(borrow_decide(&l, &node, 0, &small, 101 * S).total, 1);
	/* the ceiling does not rise within the hold, nor while less is left, and then by half of the
	 * surplus */
	assert_int_equal(limit_on_all(&l, &node, 0, 102 * S), total - (uint64_t)(256 * MIB));
	node.memory_headroom_bytes = 1256 * MIB;
	assert_int_equal(limit_on_all(&l, &node, 0, 111 * S), total - (uint64_t)(256 * MIB));
	node.memory_headroom_bytes = 256 * MIB;
	assert_int_equal(limit_on_all(&l, &node, 0, 900 * S), total - (uint64_t)(256 * MIB));
	node.memory_headroom_bytes = 1256 * MIB;
	assert_int_equal(limit_on_all(&l, &node, 0, 911 * S), total + (uint64_t)(244 * MIB));
	node.memory_headroom_bytes = 8 * GIB;
	assert_true(limit_on_all(&l, &node, 0, 912 * S) == BORROW_ALL);
	node = stall_node_unknown();
	assert_true(limit_on_all(&l, &node, 0, 913 * S) == BORROW_ALL);
}

TEST(the_less_is_left_the_sooner_it_looks)
{
	assert_int_equal(borrow_pause_ms(24 * GIB, 24 * GIB), BORROW_PAUSE_MOST_MS);
	assert_int_equal(borrow_pause_ms(6 * GIB, 24 * GIB), 500);
	assert_int_equal(borrow_pause_ms(0.75 * GIB, 24 * GIB), 62);
	assert_int_equal(borrow_pause_ms(-1, 24 * GIB), BORROW_PAUSE_LEAST_MS);
	assert_int_equal(borrow_pause_ms(NAN, 24 * GIB), BORROW_PAUSE_MOST_MS);
	assert_int_equal(borrow_pause_ms(GIB, 0), BORROW_PAUSE_MOST_MS);
}

TEST(page_cache_in_use_comes_first)
{
	struct stall_node node = calm();
	struct borrow l = {0};

	assert_int_equal(limit_on_borrowed(&l, &node, 50 * MIB, 1000, 100 * S), 500);
	assert_int_equal(limit_on_borrowed(&l, &node, 50 * MIB, 500, 101 * S), 250);
	/* nothing more for a while, then as before */
	assert_int_equal(limit_on_borrowed(&l, &node, 0, 250, 102 * S), 250);
	assert_int_equal(limit_on_borrowed(&l, &node, 0, 250, 110 * S), 250);
	assert_true(limit_on_borrowed(&l, &node, 0, 250, 111 * S) > 250);
	/* after a soon repetition, the pause is twice as long */
	assert_int_equal(limit_on_borrowed(&l, &node, 50 * MIB, 1000, 113 * S), 500);
	assert_int_equal(limit_on_borrowed(&l, &node, 0, 500, 132 * S), 500);
	assert_true(limit_on_borrowed(&l, &node, 0, 500, 133 * S) > 500);
	/* a few pages do not count */
	assert_true(limit_on_borrowed(&l, &node, 1 * MIB, 1000, 134 * S) > 1000);
}

/* ---- the watch, on a machine made of files ---- */

struct machine {
	const char *root;
	uv_loop_t loop;
	struct cache cache;
	struct borrow_watch watch;
};

static void memory(const struct machine *m, unsigned available_mib, unsigned active_mib)
{
	write_format(m->root, "proc/meminfo",
		     "MemTotal: 16777216 kB\nMemFree: 524288 kB\nMemAvailable: %u kB\nActive(file): %u kB\n",
		     available_mib * 1024, active_mib * 1024);
}

static uint64_t look(struct machine *m)
{
	borrow_watch_sample(&m->watch);
	return m->cache.node.borrow_bytes;
}

TEST_IN_FOLDER(the_watch_sees_the_machine)
{
	struct machine m = {.root = *state};

	memory(&m, 4096, 1024);
	write_text(m.root, "proc/vmstat", "workingset_activate_file 1000\n");
	assert_int_equal(uv_loop_init(&m.loop), 0);
	cache_init(&m.cache, (uint64_t)GIB);
	borrow_watch_start(&m.watch, &m.loop, m.root, &m.cache);
	/* Page cache in use cannot be borrowed. */
	assert_int_equal(look(&m), (uint64_t)((4096 - 1024 - 512) * MIB));
	memory(&m, 4096, 3800);
	assert_int_equal(look(&m), 0);
	borrow_watch_stop(&m.watch);
	loop_end(&m.loop);
	cache_free(&m.cache);
}

static void on_time(struct machine *m)
{
	uv_timer_stop(&m->watch.timer);
	m->watch.timer.timer_cb(&m->watch.timer);
}

/* A new program takes nearly all memory within a second between two checks. */
TEST_IN_FOLDER(a_fall_is_seen_at_once)
{
	struct machine m = {.root = *state};

	memory(&m, 8192, 0);
	assert_int_equal(uv_loop_init(&m.loop), 0);
	cache_init(&m.cache, (uint64_t)(4 * GIB));
	m.cache.decoded_cache.bytes = (uint64_t)GIB; /* keeps the watch awake */
	borrow_watch_start(&m.watch, &m.loop, m.root, &m.cache);
	borrow_watch_update(&m.watch);
	assert_int_equal(m.cache.node.borrow_bytes, (uint64_t)(GIB + (8192 - 512) * MIB));
	assert_int_equal(uv_timer_get_due_in(&m.watch.timer), 1000);
	/* Enough memory is left, so the next check only comes sooner. */
	memory(&m, 600, 0);
	on_time(&m);
	assert_int_equal(m.cache.node.borrow_bytes, (uint64_t)(GIB + (8192 - 512) * MIB));
	assert_in_range(uv_timer_get_due_in(&m.watch.timer), 1, 100);
	memory(&m, 424, 0);
	on_time(&m);
	assert_int_equal(m.cache.node.borrow_bytes, (uint64_t)(GIB - 88 * MIB));
	/* No memory is borrowed any more. */
	m.cache.decoded_cache.bytes = 0;
	m.cache.slot_bytes = (uint64_t)GIB;
	memory(&m, 100, 0);
	on_time(&m);
	assert_int_equal(m.cache.node.borrow_bytes, 0);
	assert_int_equal(m.cache.node.ceiling_bytes, (uint64_t)(GIB - 156 * MIB));
	m.cache.slot_bytes = 0;
	borrow_watch_stop(&m.watch);
	loop_end(&m.loop);
	cache_free(&m.cache);
}
