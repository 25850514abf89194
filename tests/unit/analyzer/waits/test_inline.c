/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs without workers, and checkpoints. The trainer's own file calls show both. */
#include "tests/unit/analyzer/script.h"

#include <fcntl.h>

#include "bpf/metadata.h"

static struct script s; /* too large for the stack */

#define STEPS 10

static void open_read(uint64_t tick)
{
	script_call(&s, TRAINER, tick, tick + 2, SYS_openat, EVENT_FILE_REG, DATA_FILE, 9);
}

static void close_file(uint64_t tick)
{
	script_call(&s, TRAINER, tick, tick + 2, SYS_close, EVENT_FILE_REG, DATA_FILE, 0);
}

/* Adds a batch of 4 samples. Each opens (2), reads for 96, closes (2), then computes for 50. */
static void inline_batch(uint64_t tick)
{
	for (unsigned int i = 0; i < 4; i++) {
		uint64_t sample = tick + 150 * i;

		open_read(sample);
		script_read_file(&s, TRAINER, sample + 2, sample + 98);
		close_file(sample + 98);
	}
}

static void inline_steps(void)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		inline_batch(1000 * i);
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
}

TEST(an_inline_loader_s_reads_are_fetch)
{
	inline_steps();
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(analysis->n_steps, STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	/* The decoding of the last sample has no call at its end, so one median gap stands for it. */
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 4 * 50 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), 400 * STEPS);
	assert_int_equal(analysis->verdict, ANALYSIS_FETCH_BOUND);
}

/* The file calls show when a batch begins and ends. A few stack samples show more or less loading by chance,
 * and do not make it longer. */
TEST(few_samples_do_not_widen_what_calls_show)
{
	static const struct profile_frame frames[] = {{1, FRAME_PYTHON, "dataloader.py", "__next__"},
						      {2, FRAME_PYTHON, "train.py", "main"}};
	static const uint64_t next[] = {1, 2};
	static const struct profile_trace traces[] = {{7, next, 2}};
	static const struct profile_metadata notes = {
	    .frames = frames, .n_frames = 2, .traces = traces, .n_traces = 1, .rate_hz = 50};
	struct analysis_input input = {.root_tgid = TRAINER, .n_cpus = 4, .profile = &notes};

	inline_steps();
	for (unsigned int i = 0; i < STEPS; i++)
		script_sample(&s, TRAINER, 1000 * i + 300, 7); /* each by chance in the 600 of 1000 ticks */
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 4 * 50 * STEPS);
}

/* Imports before the first step look like samples. Only the last four opens are a batch. */
TEST(imports_are_no_data)
{
	inline_steps();
	for (struct event *event = s.events; event < s.events + s.n; event++)
		if (event->type != EVENT_NAME) { /* 2000 ticks later, as space for the imports */
			event->start_ns += 2000 * TICK_NS;
			event->end_ns += 2000 * TICK_NS;
			event->sw.waking_ns += event->type == EVENT_SWITCH ? 2000 * TICK_NS : 0;
		}
	for (unsigned int i = 0; i < 40; i++) {
		open_read(40 * i);
		close_file(40 * i + 10);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->window.begin_ns, at(2000));
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
}

/* A log line or a read of /proc in the middle of computing is not the start of a batch. */
TEST(other_files_are_no_data)
{
	inline_steps();
	for (unsigned int i = 0; i < STEPS; i++) {
		open_read(1000 * i + 780);
		close_file(1000 * i + 785);
	}
	struct analysis *analysis = script_analyse(&s, NULL);
	/* The call comes 180 after the last close. Within the outlier gap of 8 median gaps it would count. */
	assert_in_range(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS, 4 * 110 * STEPS);
	analysis_free(analysis);
	inline_steps();
	for (unsigned int i = 0; i + 1 < STEPS; i++) {
		open_read(1000 * i + 820);
		close_file(1000 * i + 825);
	}
	/* Stretches the steps, so that the stray call is far from the batch that follows. */
	for (size_t k = 0; k < s.n; k++) {
		struct event *event = &s.events[k];
		uint64_t step = event->start_ns > at(0) ? (event->start_ns - at(0)) / (1000 * TICK_NS) : 0;

		event->start_ns += step * 3000 * TICK_NS;
		event->end_ns += step * 3000 * TICK_NS;
		event->sw.waking_ns += event->type == EVENT_SWITCH ? step * 3000 * TICK_NS : 0;
	}
	analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 4 * 50 * STEPS);
	analysis_free(analysis);
}

/* The same batches come from the page cache, with quick calls in one record, and 150 of computing among 400
 * in calls. */
TEST(groups_of_calls)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		struct event *event = script_add(&s, TRAINER, EVENT_CALLS, 1000 * i, 1000 * i + 550);

		event->calls.busy_ns = 400 * TICK_NS;
		event->calls.bytes = 400000;
		event->calls.n_calls = 12;
		event->calls.n_reads = event->calls.n_opens = 4;
		event->calls.file_type = EVENT_FILE_REG;
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 400 * STEPS);
	/* Add a quarter of that for the last sample. */
	assert_in_range(share_ticks(analysis, SHARE_PREP_STALL), 187 * STEPS, 188 * STEPS);
	assert_int_equal(analysis->window.read_bytes, 400000 * STEPS);
}

/* Each file is closed when its sample is decoded, in one group with the next file's open. The last one is
 * closed by itself. */
TEST(files_that_are_closed_after_decoding)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		for (unsigned int k = 0; k < 4; k++) {
			struct event *event =
			    script_add(&s, TRAINER, EVENT_CALLS, 1000 * i + 150 * k, 1000 * i + 150 * k + 10);

			event->calls.n_calls = 4;
			event->calls.n_reads = event->calls.n_opens = 1;
			event->calls.busy_ns = 10 * TICK_NS;
		}
		close_file(1000 * i + 598);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL) + share_ticks(analysis, SHARE_PREP_STALL),
			 600 * STEPS);
}

/* A group claims to have been in calls for longer than it lasted. */
TEST(group_that_contradicts_itself)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		struct event *event = script_add(&s, TRAINER, EVENT_CALLS, 1000 * i, 1000 * i + 550);

		event->calls.busy_ns = UINT32_MAX;
		event->calls.n_calls = event->calls.n_opens = UINT16_MAX;
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 550 * STEPS);
}

/* Adds samples from a server, which are requested with few bytes, waited for, and received. */
static void download(uint64_t tick, int64_t sent, uint8_t source)
{
	struct event *event =
	    script_call(&s, TRAINER, tick, tick + 2, SYS_sendto, EVENT_FILE_SOCK, 900, sent);
	event->call.source = source;
	script_off(&s, TRAINER, tick + 4, tick + 98, tick + 98, 1, TIMER_WOKE);
	event = script_call(&s, TRAINER, tick + 2, tick + 100, SYS_recvfrom, EVENT_FILE_SOCK, 900, 100000);
	event->call.source = source;
}

static struct analysis *downloads_analyse(int64_t sent)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		for (unsigned int k = 0; k < 4; k++)
			download(1000 * i + 150 * k, sent, SOURCE_NETWORK);
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
	return script_analyse(&s, NULL);
}

TEST(downloads_are_fetch)
{
	struct analysis *analysis = downloads_analyse(100);

	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 4 * 50 * STEPS);
	analysis_free(analysis);
	/* A collective sends as much as it receives. */
	analysis = downloads_analyse(100000);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 0);
	analysis_free(analysis);
}

/* The read is recorded as a whole, with its sleep in it, and must not count twice. */
TEST(a_recorded_fault_counts_once)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		for (unsigned int k = 0; k < 4; k++) {
			uint64_t tick = 1000 * i + 150 * k;
			struct event *event =
			    script_off(&s, TRAINER, tick + 5, tick + 90, tick + 95, 0x102, TIMER_WOKE);

			event->flags = EVENT_FLAG_MAJOR_FAULT;
			event = script_add(&s, TRAINER, EVENT_FAULT, tick, tick + 100);
			event->fault.inode = DATA_FILE;
			event->fault.page = k;
		}
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	script_exit(&s, TRAINER, 1000 * STEPS + 500);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 4 * 50 * STEPS);
}

TEST(page_faults_are_fetch)
{
	script_begin(&s);
	for (unsigned int i = 0; i < STEPS; i++) {
		for (unsigned int k = 0; k < 4; k++) {
			uint64_t tick = 1000 * i + 150 * k;
			struct event *event =
			    script_off(&s, TRAINER, tick, tick + 100, tick + 100, 0x102, TIMER_WOKE);

			event->flags = EVENT_FLAG_MAJOR_FAULT;
		}
		script_step(&s, TRAINER, 1000 * i + 800);
	}
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_PREP_STALL), 4 * 50 * STEPS);
}

/* Opens a file, writes 50,000 bytes n_writes times for 20 each, syncs for 100, closes and renames it. Lasts
 * from tick to tick + 12 + 20 * n_writes + 100 + 6. */
static void checkpoint(uint64_t tick, unsigned int n_writes)
{
	struct event *event = script_call(&s, TRAINER, tick, tick + 2, SYS_openat, EVENT_FILE_REG, 90, 30);

	event->call.argument = O_WRONLY | O_CREAT | O_TRUNC;
	tick += 12;
	for (unsigned int i = 0; i < n_writes; i++, tick += 20)
		script_call(&s, TRAINER, tick, tick + 20, SYS_write, EVENT_FILE_REG, 90, 50000)->call.fd = 30;
	script_off(&s, TRAINER, tick + 1, tick + 99, tick + 99, 2, TIMER_WOKE);
	script_call(&s, TRAINER, tick, tick + 100, SYS_fsync, EVENT_FILE_REG, 90, 0)->call.fd = 30;
	script_call(&s, TRAINER, tick + 101, tick + 102, SYS_close, EVENT_FILE_REG, 90, 0)->call.fd = 30;
	script_call(&s, TRAINER, tick + 103, tick + 106, SYS_renameat2, EVENT_FILE_NONE, 0, 0);
}

TEST(a_checkpoint_is_no_data_wait)
{
	inline_steps();
	for (unsigned int i = 0; i < STEPS; i++)
		checkpoint(1000 * i + 820, 2);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), (12 + 40 + 100 + 6) * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_FETCH_STALL), 4 * 100 * STEPS);
	assert_int_equal(share_ticks(analysis, SHARE_DEVICE), (400 - 158) * STEPS);
}

TEST(small_files_are_no_checkpoint)
{
	inline_steps();
	for (unsigned int i = 0; i < STEPS; i++)
		checkpoint(1000 * i + 820,
			   1); /* a log of 50,000 bytes, whose fsync counts, since it delays the step */
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), (100 + 6) * STEPS);
}

/* A file that stays open over the steps, as TensorBoard's does, is not an endless checkpoint. */
TEST(open_log_is_no_checkpoint)
{
	inline_steps();
	struct event *event = script_call(&s, TRAINER, 900, 902, SYS_openat, EVENT_FILE_REG, 91, 31);
	event->call.argument = O_WRONLY | O_CREAT;
	for (unsigned int i = 1; i + 1 < STEPS; i++)
		script_call(&s, TRAINER, 1000 * i + 900, 1000 * i + 910, SYS_write, EVENT_FILE_REG, 91, 20000)
		    ->call.fd = 31;
	script_call(&s, TRAINER, 1000 * STEPS - 10, 1000 * STEPS - 9, SYS_close, EVENT_FILE_REG, 91, 0)
	    ->call.fd = 31;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(share_ticks(analysis, SHARE_CHECKPOINT_STALL), 0);
}

TEST(checkpoints_decide_the_verdict)
{
	static const struct {
		unsigned int n_writes;
		enum analysis_verdict verdict;
	} cases[] = {{0, ANALYSIS_UNCLEAR}, {2, ANALYSIS_CHECKPOINT_BOUND}};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct analysis *analysis;

		script_begin(&s);
		for (unsigned int i = 0; i < STEPS; i++) {
			script_step(&s, TRAINER, 1000 * i + 800);
			if (cases[c].n_writes)
				checkpoint(1000 * i + 820, cases[c].n_writes);
		}
		analysis = script_analyse(&s, NULL);
		assert_int_equal(analysis->job.loader, LOADER_NONE);
		assert_int_equal(analysis->verdict, cases[c].verdict);
		assert_true(analysis->n_actions >= 1);
		analysis_free(analysis);
	}
}
