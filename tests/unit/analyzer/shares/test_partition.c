/* SPDX-License-Identifier: Apache-2.0 */
/* Every ns of an interval is in exactly one share, the first one that applies. */
#include "tests/unit/analyzer/scene.h"

#include <linux/futex.h>
#include <stdlib.h>

#include "analyzer/shares/partition.h"

static struct script s; /* too large for the stack */

#define GIL_WORD   0x7000
#define WAIT_TIMED (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG)

enum {
	HELPER = 102, /* a thread of the trainer's process */
	CHILD = 300,
};

#define WAITS_MAX 64

/* The inputs of a partition. parts_take() hands over the lists. */
struct parts {
	struct data_wait waits[WAITS_MAX];
	uint64_t fetch_ns[WAITS_MAX];
	uint8_t saves[64];
	struct data_waits list;
	struct compiling compiling;
	struct interval_list own_checkpoints, helper_checkpoints;
	struct interval_list collectives;
	bool helper_reads; /* reads the loader's results */
	struct scene scene;
	struct partition partition;
};

static struct parts *parts_new(void)
{
	static struct parts parts;

	memset(&parts, 0, sizeof(parts));
	parts.list.items = parts.waits;
	script_begin(&s);
	return &parts;
}

static void wait_add(struct parts *parts, uint64_t begin_tick, uint64_t end_tick, uint64_t fetch_ticks)
{
	size_t i = parts->list.n++;

	assert_true(i < WAITS_MAX);
	parts->waits[i] = (struct data_wait){.begin_ns = at(begin_tick), .end_ns = at(end_tick)};
	parts->fetch_ns[i] = fetch_ticks * TICK_NS;
}

static void list_add(struct interval_list *list, uint64_t begin_tick, uint64_t end_tick)
{
	assert_int_equal(interval_list_add(list, at(begin_tick), at(end_tick)), 0);
}

static void parts_take(struct parts *parts)
{
	parts->scene = scene_of(&s);
	assert_true(parts->scene.timeline->n_threads <= sizeof(parts->saves));
	if (parts->helper_reads)
		parts->scene.roles.reader = scene_thread(&parts->scene, HELPER, 0);
	interval_list_tidy(&parts->own_checkpoints);
	interval_list_tidy(&parts->helper_checkpoints);
	interval_list_tidy(&parts->compiling.trainer);
	interval_list_tidy(&parts->compiling.helpers);
	assert_int_equal(partition_init(&parts->partition, parts->scene.timeline, &parts->scene.roles,
					&parts->list, &parts->compiling, &parts->own_checkpoints,
					&parts->helper_checkpoints),
			 0);
	assert_int_equal(parts->own_checkpoints.n, 0);
	assert_int_equal(parts->helper_checkpoints.n, 0);
	parts->partition.fetch_ns = parts->fetch_ns;
	parts->partition.saves = parts->saves;
	assert_int_equal(partition_collectives_take(&parts->partition, &parts->collectives), 0);
	assert_int_equal(parts->collectives.n, 0);
}

static void parts_free(struct parts *parts)
{
	partition_free(&parts->partition);
	interval_list_free(&parts->compiling.trainer);
	interval_list_free(&parts->compiling.helpers);
	scene_free(&parts->scene);
}

struct ticks {
	uint64_t of[SHARE_COUNT];
};

/* Returns the shares of [begin_tick, end_tick), and asserts that they sum to it. */
static struct ticks shares(const struct parts *parts, uint64_t begin_tick, uint64_t end_tick)
{
	uint64_t share_ns[SHARE_COUNT] = {0}, sum_ns = 0;
	struct ticks ticks;

	partition_interval(&parts->partition, at(begin_tick), at(end_tick), share_ns);
	for (size_t i = 0; i < SHARE_COUNT; i++) {
		sum_ns += share_ns[i];
		ticks.of[i] = share_ns[i] / TICK_NS;
	}
	assert_int_equal(sum_ns, (end_tick - begin_tick) * TICK_NS);
	return ticks;
}

static void check_whole(const struct parts *parts, uint64_t begin_tick, uint64_t end_tick,
			enum analysis_share share)
{
	assert_int_equal(shares(parts, begin_tick, end_tick).of[share], end_tick - begin_tick);
}

TEST(time_without_events_is_the_device_s)
{
	struct parts *parts = parts_new();
	uint64_t spin_ns = 1;

	script_exit(&s, TRAINER, 1000);
	parts_take(parts);
	check_whole(parts, 100, 100, SHARE_DEVICE);
	check_whole(parts, 0, 1000, SHARE_DEVICE);
	assert_int_equal(partition_gpu_wait(&parts->partition, at(0), at(1000), &spin_ns), 0);
	assert_int_equal(spin_ns, 0);
	assert_int_equal(partition_gil_ns(&parts->partition, at(0), at(1000)), 0);
	assert_int_equal(partition_collective_ns(&parts->partition, at(0), at(1000)), 0);
	/* Time in which the trainer is unknown, before its first record and after its end, is not
	 * computing. */
	check_whole(parts, 1000, 2000, SHARE_OTHER);
	parts_free(parts);
}

TEST(sleep_queue_and_gaps_are_told_apart)
{
	struct parts *parts = parts_new();

	script_off(&s, TRAINER, 100, 150, 170, 0x1, TIMER_WOKE);
	script_off(&s, TRAINER, 200, 200, 230, 0, TIMER_WOKE);
	script_off(&s, TRAINER, 300, 340, 340, 0x2, TIMER_WOKE);
	script_exit(&s, TRAINER, 1000);
	script_add(&s, 1, EVENT_GAP, 400, 500);
	parts_take(parts);
	check_whole(parts, 0, 100, SHARE_DEVICE);
	check_whole(parts, 100, 150, SHARE_OTHER);
	check_whole(parts, 150, 170, SHARE_CPU_STARVED);
	check_whole(parts, 200, 230, SHARE_CPU_STARVED);
	check_whole(parts, 300, 340, SHARE_OTHER);
	check_whole(parts, 400, 500, SHARE_OTHER); /* the gap */
	check_whole(parts, 500, 600, SHARE_DEVICE);
	assert_int_equal(shares(parts, 140, 160).of[SHARE_OTHER], 10);
	parts_free(parts);
}

/* All states overlap, and each hides the weaker ones. */
TEST(overlaps_belong_to_the_first_share)
{
	struct parts *parts = parts_new();
	uint64_t spin_ns;

	wait_add(parts, 100, 200, 30);
	list_add(&parts->own_checkpoints, 100, 300);
	list_add(&parts->compiling.trainer, 100, 400);
	script_add(&s, TRAINER, EVENT_GPU_WAIT, 100, 500);
	script_off(&s, TRAINER, 110, 590, 600, 0x1, TIMER_WOKE);
	list_add(&parts->collectives, 110, 590);
	script_exit(&s, TRAINER, 1000);
	parts_take(parts);
	assert_int_equal(shares(parts, 100, 200).of[SHARE_FETCH_STALL], 30);
	assert_int_equal(shares(parts, 100, 200).of[SHARE_PREP_STALL], 70);
	check_whole(parts, 200, 300, SHARE_CHECKPOINT_STALL);
	check_whole(parts, 300, 400, SHARE_COMPILING);
	check_whole(parts, 400, 500, SHARE_DEVICE);
	check_whole(parts, 500, 590, SHARE_DEVICE);
	check_whole(parts, 590, 600, SHARE_CPU_STARVED);
	assert_int_equal(partition_gpu_wait(&parts->partition, at(0), at(1000), &spin_ns), 100 * TICK_NS);
	assert_int_equal(spin_ns, 0);
	assert_int_equal(interval_list_cover(&parts->partition.checkpoints, 0, UINT64_MAX), 100 * TICK_NS);
	assert_int_equal(interval_list_cover(&parts->partition.compiling, 0, UINT64_MAX), 100 * TICK_NS);
	/* Only the part of collectives that no stronger state hides counts. Time in the GPU driver is device
	 * as well. */
	assert_int_equal(partition_collective_ns(&parts->partition, at(0), at(1000)), 190 * TICK_NS);
	parts_free(parts);
}

TEST(gpu_waits_count_outside_of_data_waits)
{
	struct parts *parts = parts_new();
	uint64_t spin_ns;

	wait_add(parts, 180, 250, 0);
	script_add(&s, TRAINER, EVENT_GPU_WAIT, 100, 200);
	script_add(&s, TRAINER, EVENT_GPU_WAIT, 300, 400);
	script_off(&s, TRAINER, 120, 150, 160, 0x1, TIMER_WOKE);
	script_exit(&s, TRAINER, 1000);
	parts_take(parts);
	/* The trainer spins, sleeps, and waits once for its core. The end lies in a data wait. */
	assert_int_equal(shares(parts, 100, 180).of[SHARE_DEVICE], 70);
	assert_int_equal(shares(parts, 100, 180).of[SHARE_CPU_STARVED], 10);
	assert_int_equal(partition_gpu_wait(&parts->partition, at(0), at(1000), &spin_ns), 170 * TICK_NS);
	assert_int_equal(spin_ns, 140 * TICK_NS);
	assert_int_equal(partition_gpu_wait(&parts->partition, at(130), at(350), &spin_ns), 90 * TICK_NS);
	assert_int_equal(spin_ns, 70 * TICK_NS);
	assert_int_equal(partition_gpu_wait(&parts->partition, at(200), at(300), &spin_ns), 0);
	assert_int_equal(spin_ns, 0);
	assert_int_equal(partition_gpu_wait(&parts->partition, at(400), at(500), &spin_ns), 0);
	parts_free(parts);
}

/* If the interval cuts a wait, the wait's fetch is cut in proportion, and never exceeds the wait. */
TEST(split_of_waits)
{
	const uint64_t hour_ticks = 3600 * NS_PER_S / TICK_NS;
	struct parts *parts = parts_new();
	uint64_t share_ns[SHARE_COUNT] = {0};

	wait_add(parts, 100, 200, 40);
	wait_add(parts, 300, 310, 25);
	wait_add(parts, 1000, 1000 + 3 * hour_ticks, hour_ticks);
	script_exit(&s, TRAINER, 1000 + 4 * hour_ticks);
	parts_take(parts);
	assert_int_equal(shares(parts, 0, 150).of[SHARE_FETCH_STALL], 20);
	assert_int_equal(shares(parts, 0, 150).of[SHARE_PREP_STALL], 30);
	assert_int_equal(shares(parts, 175, 250).of[SHARE_FETCH_STALL], 10);
	assert_int_equal(shares(parts, 200, 300).of[SHARE_DEVICE], 100);
	assert_int_equal(shares(parts, 300, 310).of[SHARE_FETCH_STALL], 10);
	struct ticks ticks = shares(parts, 0, 1000 + 4 * hour_ticks);
	assert_int_equal(ticks.of[SHARE_FETCH_STALL], 50 + hour_ticks);
	assert_int_equal(ticks.of[SHARE_PREP_STALL], 60 + 2 * hour_ticks);
	assert_in_range(shares(parts, 1000, 1000 + 3 * hour_ticks / 2).of[SHARE_FETCH_STALL],
			hour_ticks / 2 - 1, hour_ticks / 2);
	/* A split with other figures changes only fetch and prep. */
	partition_interval(&parts->partition, at(0), at(1000), share_ns);
	parts->fetch_ns[0] = 0;
	parts->fetch_ns[1] = 5 * TICK_NS;
	share_ns[SHARE_OTHER] = 77;
	partition_fetch(&parts->partition, at(0), at(1000), share_ns);
	assert_int_equal(share_ns[SHARE_FETCH_STALL], 5 * TICK_NS);
	assert_int_equal(share_ns[SHARE_PREP_STALL], 105 * TICK_NS);
	assert_int_equal(share_ns[SHARE_DEVICE], 890 * TICK_NS);
	assert_int_equal(share_ns[SHARE_OTHER], 77);
	partition_fetch(&parts->partition, at(200), at(300), share_ns);
	assert_int_equal(share_ns[SHARE_PREP_STALL], 0);
	partition_fetch(&parts->partition, at(150), at(305), share_ns);
	assert_int_equal(share_ns[SHARE_FETCH_STALL] + share_ns[SHARE_PREP_STALL], 55 * TICK_NS);
	parts_free(parts);
}

/* If the trainer sleeps until another of its threads is done, the time is that thread's activity. */
TEST(a_wait_for_a_helper_is_what_the_helper_did)
{
	struct parts *parts = parts_new();

	script_add(&s, HELPER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 200, 200, 0x1, HELPER);
	script_off(&s, HELPER, 120, 150, 160, 0x1, TIMER_WOKE);
	list_add(&parts->compiling.helpers, 180, 300);
	/* The same sleep is ended by the timer, by the trainer itself, and by another process. */
	script_off(&s, TRAINER, 300, 320, 320, 0x1, TIMER_WOKE);
	script_off(&s, TRAINER, 400, 420, 420, 0x1, TRAINER);
	script_off(&s, TRAINER, 500, 520, 520, 0x1, CHILD);
	script_add(&s, CHILD, EVENT_NAME, 0, 0);
	script_exit(&s, CHILD, 1000);
	script_exit(&s, HELPER, 1000);
	script_exit(&s, TRAINER, 1000);
	parts_take(parts);
	check_whole(parts, 100, 120, SHARE_DEVICE);
	check_whole(parts, 120, 150, SHARE_OTHER);
	check_whole(parts, 150, 160, SHARE_CPU_STARVED);
	check_whole(parts, 160, 180, SHARE_DEVICE);
	check_whole(parts, 180, 200, SHARE_COMPILING);
	check_whole(parts, 300, 320, SHARE_OTHER);
	check_whole(parts, 400, 420, SHARE_OTHER);
	check_whole(parts, 500, 520, SHARE_OTHER);
	assert_int_equal(shares(parts, 100, 200).of[SHARE_DEVICE], 20 + 20);
	assert_int_equal(shares(parts, 100, 200).of[SHARE_CPU_STARVED], 10);
	assert_int_equal(shares(parts, 100, 200).of[SHARE_OTHER], 30);
	parts_free(parts);
}

/* The thread that reads the loader's results does not work for a step. */
TEST(reader_is_no_helper)
{
	struct parts *parts = parts_new();

	script_add(&s, HELPER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 200, 200, 0x1, HELPER);
	script_exit(&s, HELPER, 1000);
	script_exit(&s, TRAINER, 1000);
	parts->helper_reads = true;
	parts_take(parts);
	check_whole(parts, 100, 200, SHARE_OTHER);
	parts_free(parts);
}

/* If there are several helpers, one that computes is enough, and waiting for a core counts before
 * sleeping. */
TEST(most_telling_helper)
{
	struct parts *parts = parts_new();

	for (uint32_t i = 0; i < 2; i++)
		script_add(&s, HELPER + i, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 200, 200, 0x1, HELPER);
	script_off(&s, HELPER, 110, 150, 180, 0x1, TIMER_WOKE);
	script_off(&s, HELPER + 1, 100, 130, 140, 0x1, TIMER_WOKE);
	script_off(&s, HELPER + 1, 170, 190, 195, 0x1, TIMER_WOKE);
	for (uint32_t i = 0; i < 2; i++)
		script_exit(&s, HELPER + i, 1000);
	script_exit(&s, TRAINER, 1000);
	parts_take(parts);
	check_whole(parts, 100, 110, SHARE_DEVICE);
	check_whole(parts, 110, 130, SHARE_OTHER);
	check_whole(parts, 130, 140, SHARE_CPU_STARVED);
	check_whole(parts, 140, 170, SHARE_DEVICE); /* one of them waits for a core */
	check_whole(parts, 170, 180, SHARE_CPU_STARVED);
	check_whole(parts, 180, 200, SHARE_DEVICE);
	parts_free(parts);
}

/* If a thread or child that saves ends the sleep, the time belongs to the checkpoint, whatever that thread
 * did meanwhile. */
TEST(sleeps_for_savers)
{
	struct parts *parts = parts_new();

	script_add(&s, HELPER, EVENT_NAME, 0, 0);
	script_off(&s, TRAINER, 100, 200, 200, 0x1, HELPER);
	script_off(&s, TRAINER, 300, 400, 400, 0x1, HELPER);
	list_add(&parts->collectives, 300, 400);
	script_exit(&s, HELPER, 1000);
	script_exit(&s, TRAINER, 1000);
	memset(parts->saves, 0, sizeof(parts->saves));
	parts->saves[1] = 1; /* indexed by thread: trainer, helper */
	parts_take(parts);
	check_whole(parts, 100, 200, SHARE_CHECKPOINT_STALL);
	check_whole(parts, 300, 400, SHARE_DEVICE);
	parts_free(parts);
}

/* The trainer waits for the interpreter lock from each thousand on for 250 ticks. */
static void lock_sleeps(void)
{
	script_add(&s, HELPER, EVENT_NAME, 0, 0);
	for (uint64_t i = 0; i < 12; i++) {
		uint64_t tick = 1000 * i, word = GIL_WORD + 4 * (i % 2);

		script_off(&s, TRAINER, tick, tick + 250, tick + 255, 0x1, TIMER_WOKE);
		script_call(&s, TRAINER, tick, tick + 255, SYS_futex, EVENT_FILE_NONE, word, -ETIMEDOUT)
		    ->call.argument = WAIT_TIMED;
		script_call(&s, HELPER, tick + 300, tick + 300, SYS_futex, EVENT_FILE_NONE, word, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
		script_off(&s, HELPER, tick + 600, tick + 650, tick + 650, 0x1, TRAINER);
		script_call(&s, HELPER, tick + 600, tick + 650, SYS_futex, EVENT_FILE_NONE, word, 0)
		    ->call.argument = WAIT_TIMED;
		script_call(&s, TRAINER, tick + 650, tick + 650, SYS_futex, EVENT_FILE_NONE, word, 1)
		    ->call.argument = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
	}
	script_exit(&s, TRAINER, 12000);
}

/* The time of partition_gil_ns() is a part of cpu_starved, and so outside of all stronger states. */
TEST(waits_for_the_interpreter_lock_are_cpu_starved)
{
	struct parts *parts = parts_new();
	uint64_t sum_ns = 0;

	lock_sleeps();
	wait_add(parts, 1100, 1200, 0);
	list_add(&parts->own_checkpoints, 2100, 2200);
	list_add(&parts->compiling.trainer, 3100, 3200);
	script_add(&s, TRAINER, EVENT_GPU_WAIT, 4100, 4200);
	list_add(&parts->collectives, 5000, 5250);
	parts_take(parts);
	assert_int_equal(parts->scene.roles.gil.n, 1);
	for (uint64_t tick = 0; tick < 12000; tick += 1000) {
		uint64_t ticks = partition_gil_ns(&parts->partition, at(tick), at(tick + 1000)) / TICK_NS;
		uint64_t starved = shares(parts, tick, tick + 1000).of[SHARE_CPU_STARVED];

		assert_int_equal(ticks, tick == 5000 ? 0 : tick >= 1000 && tick <= 4000 ? 150 : 250);
		assert_int_equal(starved, ticks + 5);
		sum_ns += ticks * TICK_NS;
	}
	assert_int_equal(partition_gil_ns(&parts->partition, at(0), at(12000)), sum_ns);
	assert_int_equal(partition_gil_ns(&parts->partition, at(6100), at(6110)), 10 * TICK_NS);
	assert_int_equal(shares(parts, 5000, 5250).of[SHARE_DEVICE], 250);
	parts_free(parts);
}

TEST(collectives_are_a_part_of_device)
{
	struct parts *parts = parts_new();

	for (uint64_t tick = 0; tick < 6000; tick += 1000) {
		script_off(&s, TRAINER, tick + 100, tick + 300, tick + 310, 0x1, TIMER_WOKE);
		list_add(&parts->collectives, tick + 100, tick + 300);
	}
	wait_add(parts, 1150, 1200, 0);
	list_add(&parts->own_checkpoints, 2150, 2200);
	list_add(&parts->compiling.trainer, 3150, 3200);
	script_exit(&s, TRAINER, 6000);
	parts_take(parts);
	for (uint64_t tick = 0; tick < 6000; tick += 1000) {
		uint64_t ns = partition_collective_ns(&parts->partition, at(tick), at(tick + 1000));

		assert_int_equal(ns / TICK_NS, tick >= 1000 && tick <= 3000 ? 150 : 200);
		assert_int_equal(shares(parts, tick + 100, tick + 300).of[SHARE_DEVICE], ns / TICK_NS);
	}
	parts_free(parts);
}

/* ---- comparison with a partition tick by tick ---- */

static bool covers(const struct interval *items, size_t n, uint64_t tick)
{
	for (size_t i = 0; i < n; i++)
		if (items[i].begin_ns <= at(tick) && at(tick) < items[i].end_ns)
			return true;
	return false;
}

static enum analysis_share share_at(const struct parts *parts, const struct interval *checkpoints,
				    size_t n_checkpoints, const struct interval *compiling,
				    size_t n_compiling, uint64_t tick)
{
	const struct timeline_thread *trainer = parts->scene.roles.trainer;
	bool driver = false;

	for (size_t i = 0; i < parts->list.n; i++)
		if (parts->waits[i].begin_ns <= at(tick) && at(tick) < parts->waits[i].end_ns)
			return SHARE_PREP_STALL;
	if (covers(checkpoints, n_checkpoints, tick))
		return SHARE_CHECKPOINT_STALL;
	if (covers(compiling, n_compiling, tick))
		return SHARE_COMPILING;
	for (size_t i = 0; i < trainer->n_gpu_waits; i++)
		driver |=
		    trainer->gpu_waits[i].begin_ns <= at(tick) && at(tick) < trainer->gpu_waits[i].end_ns;
	switch (timeline_piece_at(trainer, at(tick), at(tick) + 1).state) {
	case STATE_CPU: return SHARE_DEVICE;
	case STATE_QUEUE: return SHARE_CPU_STARVED;
	case STATE_SLEEP:
	case STATE_BLOCK:
	case STATE_UNKNOWN: return driver ? SHARE_DEVICE : SHARE_OTHER;
	}
	return SHARE_OTHER;
}

TEST(any_overlap_adds_up_to_the_whole)
{
	enum { LIFE = 400, LISTS = 8 };
	unsigned int seed = 1;

	for (int round = 0; round < 200; round++) {
		struct interval checkpoints[LISTS], compiling[LISTS];
		struct parts *parts = parts_new();

		for (uint64_t tick = rand_r(&seed) % 20; tick < LIFE; tick += 1 + rand_r(&seed) % 60) {
			uint64_t ticks = 1 + rand_r(&seed) % 30;

			wait_add(parts, tick, tick + ticks, 0);
			tick += ticks;
		}
		for (size_t i = 0; i < LISTS; i++) {
			uint64_t a = rand_r(&seed) % LIFE, b = rand_r(&seed) % LIFE, c = rand_r(&seed) % LIFE;

			checkpoints[i] = (struct interval){at(a), at(a + rand_r(&seed) % 30)};
			compiling[i] = (struct interval){at(b), at(b + rand_r(&seed) % 30)};
			interval_list_add(&parts->own_checkpoints, checkpoints[i].begin_ns,
					  checkpoints[i].end_ns);
			interval_list_add(&parts->compiling.trainer, compiling[i].begin_ns,
					  compiling[i].end_ns);
			script_add(&s, TRAINER, EVENT_GPU_WAIT, c, c + rand_r(&seed) % 40);
		}
		for (uint64_t tick = rand_r(&seed) % 20; tick < LIFE;) {
			uint64_t sleep = rand_r(&seed) % 20, queue = rand_r(&seed) % 10;

			script_off(&s, TRAINER, tick, tick + sleep, tick + sleep + queue, rand_r(&seed) % 3,
				   TIMER_WOKE);
			tick += sleep + queue + rand_r(&seed) % 20;
		}
		script_add(&s, 1, EVENT_GAP, 200, 200 + rand_r(&seed) % 50);
		script_exit(&s, TRAINER, LIFE - 10);
		parts_take(parts);
		for (int k = 0; k < 10; k++) {
			uint64_t begin = rand_r(&seed) % LIFE, end = begin + rand_r(&seed) % LIFE;
			struct ticks found = shares(parts, begin, end), expected = {0};

			for (uint64_t tick = begin; tick < end; tick++)
				expected.of[share_at(parts, checkpoints, LISTS, compiling, LISTS, tick)]++;
			for (size_t i = 0; i < SHARE_COUNT; i++)
				assert_int_equal(found.of[i], expected.of[i]);
		}
		parts_free(parts);
	}
}
