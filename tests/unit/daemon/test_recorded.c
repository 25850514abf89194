/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"
#include "tests/unit/analyzer/script.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analyzer/recording.h"
#include "recorded/recorded.h"

#define STEP_TICKS 5000 /* 100 ms */
#define N_STEPS    200
#define LAST       ((uint64_t)STEP_TICKS * (N_STEPS - 1))

static struct script s; /* too large for the stack */
static char path[256];

static int setup(void **state)
{
	if (make_folder(state) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/s.db", (const char *)*state);
	return 0;
}

/* One worker needs 100 ms per batch, of which 8 are reading and the rest computing. The trainer computes for
 * 10. */
static void make_events(uint64_t last)
{
	script_begin(&s);
	for (uint64_t i = 0; i < N_STEPS; i++) {
		uint64_t tick = i < N_STEPS - 1 ? STEP_TICKS * i : last;

		script_take_index(&s, 0, tick);
		script_read_file(&s, WORKER, tick + 25, tick + 425);
		script_give_result(&s, 0, tick + 4425, tick + 4430);
		script_next(&s, 0, tick, tick + 4430, tick + 4455);
		script_step(&s, TRAINER, tick + 4750);
		script_request(&s, 0, tick + 4500);
	}
	script_exit(&s, TRAINER, last + STEP_TICKS + 25);
}

/* The last step begins at this tick. */
static void record(uint64_t last)
{
	struct recording *recording;

	make_events(last);
	assert_int_equal(recording_create(path, &recording, NULL), 0);
	for (size_t i = 0; i < s.n; i++)
		assert_int_equal(recording_append(recording, &s.events[i], NULL), 0);
	recording_set_u64(recording, RECORDING_ROOT_TGID, TRAINER, NULL);
	recording_set_u64(recording, RECORDING_CPUS, 8, NULL);
	recording_set_text(recording, RECORDING_START_CLOCKS, "1000000000 5 1700000000000000000 20", NULL);
	assert_int_equal(recording_finish(recording, NULL), 0);
	recording_close(recording);
}

struct seen {
	struct tuner_state *state;
	struct tuner_result *result;
	struct stall_sample first;
	size_t n, n_refused, n_client_workers;
	uint64_t last_ms, last_ns;
};

static int on_round(void *user, const struct history_round *round)
{
	struct seen *seen = user;

	assert_int_equal(round->n_samples, 1);
	if (seen->n++) {
		assert_int_equal(round->now_ns - seen->last_ns, NS_PER_S);
		assert_int_equal(round->at_ms - seen->last_ms, 1000);
	} else {
		seen->first = round->samples[0];
	}
	seen->last_ms = round->at_ms;
	seen->last_ns = round->now_ns;
	tuner_decide(round->config, seen->state, round->node, round->samples, round->n_samples, round->now_ns,
		     seen->result);
	seen->n_refused += seen->result->n_samples_refused;
	for (size_t i = 0; i < seen->result->n_decisions; i++) {
		assert_int_equal(seen->result->decisions[i].knob, TUNER_CLIENT_WORKERS);
		assert_true(seen->result->decisions[i].new_value > 1);
		seen->n_client_workers++;
	}
	return 0;
}

static int replay(const char *file, struct seen *seen, struct recorded_info *info, struct error *err)
{
	*seen = (struct seen){.state = calloc(1, tuner_state_bytes()),
			      .result = calloc(1, sizeof(*seen->result))};
	*info = (struct recorded_info){0};
	int r = recorded_rounds(file, on_round, seen, info, err);
	free(seen->state);
	free(seen->result);
	return r;
}

TEST(a_job_that_its_worker_holds_up)
{
	struct recorded_info info;
	struct seen seen;

	record(LAST);
	assert_int_equal(replay(path, &seen, &info, NULL), 0);
	assert_false(info.cut_off);
	assert_in_range(seen.n, N_STEPS / 10 - 2, N_STEPS / 10);
	assert_int_equal(seen.n_refused, 0);
	assert_in_range(seen.last_ms, UINT64_C(1700000000000), UINT64_C(1700000000000) + 2 * 100 * N_STEPS);
	/* The tuner adds workers, as the model knows the cores and the cost of a batch. */
	assert_true(seen.n_client_workers > 0);
	const struct stall_sample *sample = &seen.first;
	assert_int_equal(sample->source, STALL_SOURCE_BPF);
	assert_float_equal(sample->samples_per_s, 10, 1.1);
	assert_float_equal(sample->shares.fetch_stall + sample->shares.prep_stall, 0.887, 0.02);
	assert_float_equal(sample->client_cpu_s_per_sample, 0.0995, 0.003);
	assert_float_equal(sample->device_rate, sample->samples_per_s / 0.113, 20);
	assert_int_equal(sample->knobs.value[TUNER_CLIENT_WORKERS], 1);
	assert_int_equal(sample->tunable, 1u << TUNER_CLIENT_WORKERS);
	/* A recording cannot show these. */
	assert_true(isnan(sample->chunk_latency_s) && isnan(sample->chunk_bytes) &&
		    isnan(sample->need_bytes));
	assert_int_equal(sample->dataset, 0);
}

TEST(half_a_recording_is_read_as_far_as_it_goes)
{
	struct recorded_info info;
	struct seen seen;
	struct stat stat_;

	record(LAST);
	assert_int_equal(stat(path, &stat_), 0);
	for (off_t size = stat_.st_size; size >= 0; size -= stat_.st_size / 7) {
		struct error err = ERROR_INIT;
		int r;

		assert_int_equal(truncate(path, size), 0);
		r = replay(path, &seen, &info, &err);
		if (r < 0)
			assert_true(err.text[0] && !strchr(err.text, '\n'));
		else if (size < stat_.st_size)
			assert_true(info.cut_off);
	}
}

/* A recording without a training job gives an error that says so. */
TEST(nothing_to_see)
{
	struct recorded_info info;
	struct recording *recording;
	struct seen seen;

	assert_int_equal(recording_create(path, &recording, NULL),
			 -EEXIST); /* the cut recording is not overwritten */
	unlink(path);
	assert_int_equal(recording_create(path, &recording, NULL), 0);
	assert_int_equal(recording_finish(recording, NULL), 0);
	recording_close(recording);
	assert_int_equal(replay(path, &seen, &info, NULL), 0);
	assert_int_equal(seen.n, 0);
	assert_true(info.insufficient[0]);
}

/* The last time is as a damaged file may have it. The replay is not endless. */
TEST(absurd_times_end_the_replay)
{
	struct error err = ERROR_INIT;
	struct recorded_info info;
	struct seen seen;

	unlink(path);
	record(UINT64_C(33) * 24 * 3600 * (STEP_TICKS * 10));
	assert_int_equal(replay(path, &seen, &info, &err), -E2BIG);
	assert_non_null(strstr(err.text, "is damaged"));
	assert_int_equal(seen.n, 0);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
