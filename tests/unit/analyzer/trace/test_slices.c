/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/clock.h"
#include "analyzer/trace/slices.h"

#define MIB (1 << 20)

/* The result for a job that makes this many bytes of detail per second, recorded for that long. */
struct outcome {
	uint64_t kept_bytes, on_ns, longest_hole_ns;
	size_t n_slices;
};

static struct outcome record(struct slices_config config, uint64_t bytes_per_s, unsigned seconds)
{
	struct outcome outcome = {0};
	uint64_t written = 0, end_ns = 0;
	struct slices slices;

	assert_int_equal(slices_init(&slices, config, NS_PER_S), 0);
	slices_steps_begin(&slices, NS_PER_S);
	for (uint64_t tick = 10; tick < 10 * (seconds + 1); tick++) {
		struct slice dropped;

		if (slices_on(&slices)) {
			written += bytes_per_s / 10;
			outcome.on_ns += NS_PER_S / 10;
		}
		assert_true(slices_step(&slices, tick * (NS_PER_S / 10), written, written) >= 0);
		while (slices_drop(&slices, &dropped))
			assert_true(dropped.end_ns > dropped.begin_ns);
	}
	for (size_t i = 0; i < slices.n; i++) {
		if (i && slices.items[i].begin_ns - end_ns > outcome.longest_hole_ns)
			outcome.longest_hole_ns = slices.items[i].begin_ns - end_ns;
		end_ns = slices.items[i].end_ns;
	}
	assert_int_equal(slices.items[0].id, 1);
	outcome.kept_bytes = slices.kept_bytes;
	outcome.n_slices = slices.n;
	slices_free(&slices);
	return outcome;
}

static const struct slices_config config = {.bytes_per_minute = MIB,
					    .startup_bytes = 2 * MIB,
					    .first_bytes = 8 * MIB,
					    .burst_bytes = MIB / 2,
					    .total_bytes = 32 * MIB};

TEST(quiet_job_is_recorded_whole)
{
	struct outcome outcome = record(config, 10000, 3600);

	assert_int_equal(outcome.n_slices, 1);
}

TEST(busy_job_keeps_to_the_rate)
{
	struct outcome minute = record(config, 100000, 60), outcome = record(config, 100000, 660);

	assert_int_equal(minute.n_slices, 1);
	assert_in_range(outcome.kept_bytes - minute.kept_bytes, 9 * MIB, 11 * MIB);
	assert_true(outcome.n_slices > 5);
	/* At six times the rate about a sixth of the time is seen, in addition to the first minute. */
	assert_in_range((outcome.on_ns - minute.on_ns) / NS_PER_S, 90, 115);
}

TEST(first_minute_is_recorded_whole)
{
	for (uint64_t bytes_per_s = 10000; bytes_per_s < 8 * MIB / 62U; bytes_per_s += 5000)
		assert_int_equal(record(config, bytes_per_s, 60).n_slices, 1);
	assert_int_equal(record(config, 8 * MIB / 62, 60).on_ns, 60 * NS_PER_S);
}

TEST(first_minute_has_a_limit)
{
	for (uint64_t bytes_per_s = 50000; bytes_per_s < 10000000; bytes_per_s *= 2) {
		struct outcome outcome = record(config, bytes_per_s, 60);

		assert_in_range(outcome.kept_bytes, MIB / 2, 8 * MIB + MIB / 2 + bytes_per_s / 5);
	}
}

/* Whatever a job does, at any time, the recording does not exceed its budget. */
TEST(no_job_exceeds_its_budget)
{
	uint64_t seed = 1;

	for (unsigned round = 0; round < 200; round++) {
		uint64_t written = 0, bytes_per_tick = 0, first_step = round * 10;
		struct slices slices;

		assert_int_equal(slices_init(&slices, config, NS_PER_S), 0);
		for (uint64_t tick = 1; tick < 3000; tick++) {
			uint64_t now_ns = NS_PER_S + tick * (NS_PER_S / 10);
			uint64_t promised = config.startup_bytes + config.first_bytes +
					    2 * config.burst_bytes + tick * MIB / 600;

			seed = seed * 6364136223846793005U + 1442695040888963407U;
			if (seed >> 60 == 0)
				bytes_per_tick = (seed >> 40) % 200000;
			if (tick == first_step)
				slices_steps_begin(&slices, now_ns);
			written += slices_on(&slices) ? bytes_per_tick : 0;
			assert_true(slices_step(&slices, now_ns, written, written) >= 0);
			assert_in_range(written, 0, promised + 2 * 200000);
		}
		slices_free(&slices);
	}
}

TEST(starting_up_leaves_the_steps_their_budget)
{
	struct slices slices;
	uint64_t written = 0;

	assert_int_equal(slices_init(&slices, config, NS_PER_S), 0);
	/* Ten seconds of imports use up more than the budget allows. */
	for (uint64_t s = 2; s < 12; s++) {
		written += slices_on(&slices) ? MIB / 2 : 0;
		assert_true(slices_step(&slices, s * NS_PER_S, written, written) >= 0);
	}
	assert_false(slices_on(&slices));
	slices_steps_begin(&slices, 12 * NS_PER_S);
	assert_int_equal(slices_step(&slices, 12 * NS_PER_S, written, written), SLICES_ON);
	slices_free(&slices);
}

TEST(hours_stay_within_the_limit)
{
	struct outcome outcome = record(config, 200000, 10 * 3600);

	assert_in_range(outcome.kept_bytes, 28 * MIB, 33 * MIB);
	/* The slices are spread over the whole time. About 30 slices at equal distances leave gaps of 20
	 * minutes. */
	assert_true(outcome.longest_hole_ns < 60 * 60 * NS_PER_S);
}

TEST(no_rate_keeps_everything)
{
	struct outcome outcome = record((struct slices_config){0}, 10000000, 600);

	assert_int_equal(outcome.n_slices, 1);
}

TEST(clock_that_stands_or_goes_back)
{
	struct slices slices;

	assert_int_equal(slices_init(&slices, config, 5 * NS_PER_S), 0);
	assert_int_equal(slices_step(&slices, 5 * NS_PER_S, 0, 0), SLICES_AS_BEFORE);
	assert_int_equal(slices_step(&slices, 1 * NS_PER_S, 0, 0), SLICES_AS_BEFORE);
	assert_int_equal(slices_step(&slices, 10 * NS_PER_S, 3 * MIB, 3 * MIB), SLICES_OFF);
	assert_false(slices_on(&slices));
	slices_free(&slices);
}
