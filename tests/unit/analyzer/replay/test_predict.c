/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/script.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct script s; /* too large for the stack */

#define WORKERS_MAX 4
#define PREFETCH    2
#define HANDOVER    30
#define STEPS       60
#define QUICK       20
#define READ_BYTES  100000 /* bytes that script_read_file() reads */

/* A simulated DataLoader. Batch i is made by worker i % n, and was requested when batch i - 2 n was taken. */
struct loader {
	unsigned int n_workers, n_steps;
	uint64_t read, compute, device; /* ticks */
	uint64_t start;                 /* ticks until the workers are there */
	unsigned int epoch;             /* steps of an epoch, with workers that stay; 0: one epoch */
	unsigned int quick;             /* one of this many batches is read without a sleep; 0: none */
	bool fresh;                     /* each epoch has workers of its own, which take as long to start */
	bool locked; /* workers compute with the interpreter lock, which a hand-over needs */
};

/* Returns the worker's number in the script. */
static unsigned int worker_of(const struct loader *loader, unsigned int epoch, unsigned int w)
{
	return loader->fresh ? epoch * loader->n_workers + w : w;
}

/* Gives each loader a result pipe of its own. */
static void result_pipe_set(size_t first, unsigned int epoch)
{
	for (size_t i = first; i < s.n; i++)
		if (s.events[i].type == EVENT_SYSCALL && s.events[i].call.inode == RESULT_PIPE)
			s.events[i].call.inode = RESULT_PIPE + epoch;
}

static void workers_start(const struct loader *loader, unsigned int epoch, uint64_t now, uint64_t *free_at)
{
	for (unsigned int w = 0; w < loader->n_workers; w++) {
		uint32_t n = worker_of(loader, epoch, w);

		free_at[w] = now + loader->start;
		script_fork(&s, TRAINER, WORKER + 10 * n, now);
		script_fork(&s, WORKER + 10 * n, FEEDER + 10 * n, now + 1);
	}
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool is_quick(const struct loader *loader, unsigned int i)
{
	return loader->quick && i % loader->quick == loader->quick - 1;
}

static uint64_t read_ticks(const struct loader *loader, unsigned int i)
{
	return is_quick(loader, i) ? QUICK : loader->read;
}

static void worker_batch(const struct loader *loader, unsigned int i, unsigned int w, uint64_t idle,
			 uint64_t begin)
{
	uint32_t tid = WORKER + 10 * w;

	if (begin > idle + 8) {
		script_off(&s, tid, idle + 2, begin - 6, begin - 6, 1, REQUESTER);
		script_call(&s, tid, idle + 1, begin - 5, SYS_poll, EVENT_FILE_FIFO, INDEX_PIPE + w, 1);
	}
	script_call(&s, tid, begin - 4, begin - 3, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE + w, 4);
	script_call(&s, tid, begin - 2, begin, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE + w, 60);
	if (is_quick(loader, i))
		script_call(&s, tid, begin + 1, begin + 1 + QUICK, SYS_read, EVENT_FILE_REG, DATA_FILE,
			    READ_BYTES);
	else if (loader->read)
		script_read_file(&s, tid, begin + 1, begin + 1 + loader->read);
}

/* Returns when batch i, which was ready at `ready`, is handed over. end: when its worker could continue. */
static uint64_t handed_over(const struct loader *loader, unsigned int i, unsigned int w, uint64_t ready,
			    uint64_t end, const uint64_t *sent)
{
	uint64_t handed = ready + HANDOVER, next_end;
	unsigned int next = i + loader->n_workers;

	if (!loader->locked)
		return handed;
	next_end = later(end + 10, sent[next]) + 1 + read_ticks(loader, next) + loader->compute;
	if (next < loader->n_steps && next_end > ready)
		handed = next_end + HANDOVER;
	script_off(&s, TRAINER, ready + 11, handed - 4, handed - 4, 1, FEEDER + 10 * w);
	script_off(&s, FEEDER + 10 * w, s.last_tick[FEEDER + 10 * w] + 2, handed - 11, handed - 11, 1,
		   WORKER + 10 * w);
	script_call(&s, FEEDER + 10 * w, handed - 10, handed - 8, SYS_sendto, EVENT_FILE_SOCK, 77, 1);
	return handed;
}

/* Returns the ticks from the first wait to the end of the last step. */
static uint64_t loader_run(const struct loader *loader)
{
	uint64_t free_at[WORKERS_MAX], sent[STEPS + 2 * WORKERS_MAX + 1] = {0}, now = 0, begin;

	script_begin(&s);
	for (unsigned int i = 0; i < loader->n_steps; i++) {
		unsigned int epoch = loader->epoch ? loader->epoch : loader->n_steps;
		unsigned int w = i % epoch % loader->n_workers, next = i + PREFETCH * loader->n_workers;
		unsigned int n = worker_of(loader, i / epoch, w);
		uint64_t end, ready, handed;
		size_t first = s.n;

		if (!i || (loader->fresh && i % epoch == 0))
			workers_start(loader, i / epoch, now, free_at);
		begin = later(free_at[w] + 10, sent[i]);
		worker_batch(loader, i, n, free_at[w], begin);
		end = begin + 1 + read_ticks(loader, i) + loader->compute;
		free_at[w] = end;
		script_give_result(&s, n, end + 1, end + 3);
		ready = later(now + 1, end + 4);
		handed = handed_over(loader, i, n, ready, end, sent);
		script_next(&s, n, now, ready, handed);
		script_request(&s, n, handed - 3);
		if (loader->fresh)
			result_pipe_set(first, i / epoch);
		now = handed + loader->device;
		if (next / epoch == i / epoch)
			sent[next] = handed;
		for (unsigned int k = 1; i % epoch == epoch - 1 && k <= PREFETCH * loader->n_workers; k++)
			sent[i + k] = now;
		script_step(&s, TRAINER, now - 1);
		/* Every worker waits for one more index. */
		for (unsigned int k = 0; k < loader->n_workers; k++)
			if (i + 1 == loader->n_steps || (loader->fresh && i % epoch == epoch - 1))
				script_call(&s, WORKER + 10 * worker_of(loader, i / epoch, k), free_at[k] + 1,
					    now + 1000, SYS_poll, EVENT_FILE_FIFO,
					    INDEX_PIPE + worker_of(loader, i / epoch, k), 0);
	}
	script_exit(&s, TRAINER, now + 2000);
	return now;
}

static const struct what_if_grid *asked; /* NULL: no grid */

static struct analysis *analyse(const struct loader *loader, const struct what_if_question *question,
				uint64_t *ret_ticks)
{
	struct analysis_input input = {
	    .root_tgid = TRAINER, .n_cpus = 16, .what_if = question, .grid = asked};

	*ret_ticks = loader_run(loader);
	return script_analyse(&s, &input);
}

static double wait_ratio(const struct analysis *analysis)
{
	return analysis_share_ratio(analysis, SHARE_FETCH_STALL) +
	       analysis_share_ratio(analysis, SHARE_PREP_STALL);
}

static void check_fetch(const struct loader *loader)
{
	struct loader free = *loader;
	uint64_t ticks, free_ticks;
	double truth, found;

	free.read = 0;
	free_ticks = loader_run(&free);
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(loader, NULL, &ticks);
	assert_int_equal(analysis->job.method, METHOD_REPLAY);
	truth = fmin(1 - (double)free_ticks / (double)ticks, wait_ratio(analysis));
	found = analysis_share_ratio(analysis, SHARE_FETCH_STALL);
	if (fabs(found - truth) > 0.02)
		fail_msg("%u workers, read %u, compute %u, device %u: fetch %.3f, truth %.3f",
			 loader->n_workers, (unsigned)loader->read, (unsigned)loader->compute,
			 (unsigned)loader->device, found, truth);
	assert_non_null(analysis->predictions);
	if (fabs(analysis->predictions->recorded_step_s / analysis->predictions->replayed_step_s - 1) > 0.03)
		fail_msg("%u workers, read %u, compute %u, device %u: %.5f s a step, replayed %.5f",
			 loader->n_workers, (unsigned)loader->read, (unsigned)loader->compute,
			 (unsigned)loader->device, analysis->predictions->recorded_step_s,
			 analysis->predictions->replayed_step_s);
}

/* Compares with the measurements of three runs, for every overlap of reading, computing and training. */
TEST(fetch_is_what_free_reading_saves)
{
	static const uint64_t reads[] = {100, 800, 3000}, computes[] = {50, 700}, devices[] = {60, 400, 1500};

	for (unsigned int w = 1; w <= WORKERS_MAX; w *= 2)
		for (size_t i = 0; i < 18; i++)
			check_fetch(&(struct loader){.n_workers = w,
						     .n_steps = STEPS,
						     .read = reads[i % 3],
						     .compute = computes[i / 3 % 2],
						     .device = devices[i / 6]});
}

/* With persistent workers, each epoch begins with an empty pipeline. */
TEST(epochs_of_persistent_workers)
{
	for (unsigned int w = 1; w <= WORKERS_MAX; w *= 2)
		check_fetch(&(struct loader){.n_workers = w,
					     .n_steps = STEPS,
					     .epoch = 11,
					     .read = 1500,
					     .compute = 300,
					     .device = 1900 / w});
}

static double predicted(const struct loader *loader, const struct what_if_question *question)
{
	uint64_t ticks;
	struct analysis *analysis = analyse(loader, question, &ticks);
	double speedup;

	assert_non_null(analysis->predictions);
	assert_non_null(analysis->predictions->answer);
	speedup = analysis->predictions->answer->speedup.value;
	assert_true(analysis->predictions->answer->speedup.low <= speedup &&
		    speedup <= analysis->predictions->answer->speedup.high);
	analysis_free(analysis);
	return speedup;
}

static void check_speedup(double found, double truth)
{
	if (fabs(found / truth - 1) > 0.04)
		fail_msg("predicted %.3f, truth %.3f", found, truth);
}

/* Each cell is the answer to the question about it, with the better number of workers. */
TEST(a_grid_has_the_answers_of_its_cells)
{
	const struct loader here = {
	    .n_workers = 2, .n_steps = STEPS, .read = 1500, .compute = 500, .device = 300};
	const double cores[] = {1, 4}, ratios[] = {0.5, 1, NAN};
	const struct what_if_grid grid = {cores, ratios, 2, 3, 1};
	struct what_if_question question = WHAT_IF_NOTHING;
	struct what_if_cell cells[6];
	struct analysis *analysis;
	uint64_t ticks;
	double per_s;

	asked = &grid;
	analysis = analyse(&here, NULL, &ticks);
	asked = NULL;
	assert_non_null(analysis->predictions);
	assert_non_null(analysis->predictions->cells);
	assert_true(analysis->predictions->waits_known);
	assert_true(analysis->predictions->foreign_ratio < 0.01);
	memcpy(cells, analysis->predictions->cells, sizeof(cells));
	per_s = 1 / analysis->predictions->recorded_step_s;
	analysis_free(analysis);
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 3; k++) {
			question.n_cores = cores[i];
			question.cache_ratio = ratios[k];
			question.n_workers = cells[i * 3 + k].n_workers;
			assert_float_equal(cells[i * 3 + k].steps_per_s, predicted(&here, &question) * per_s,
					   per_s / 100);
			assert_true(cells[i * 3 + k].n_workers == 2 ||
				    (i == 1 && cells[i * 3 + k].n_workers == 4));
		}
	assert_true(cells[1].steps_per_s > 1.5 * cells[2].steps_per_s); /* in memory, and from storage */
	assert_true(cells[5].n_workers == 4);
}

#define OTHER_PROCESS 900

/* Another process of the job has one of two cores, which the replay would give to workers. */
TEST(what_if_promises_no_more_than_the_advice)
{
	const struct loader here = {.n_workers = 1, .n_steps = STEPS, .compute = 1500, .device = 600};
	struct what_if_question question = WHAT_IF_NOTHING;
	struct analysis_input input = {.root_tgid = TRAINER, .n_cpus = 2, .what_if = &question};
	double speedup[2];

	question.n_workers = 4;
	for (int busy = 0; busy < 2; busy++) {
		uint64_t ticks = loader_run(&here);

		if (busy) {
			script_fork(&s, TRAINER, OTHER_PROCESS, 0);
			script_exit(&s, OTHER_PROCESS, ticks + 1500);
		}
		_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);

		if (!analysis->predictions)
			fail_msg("%d: %s", busy, analysis->no_predictions);
		speedup[busy] = analysis->predictions->answer->speedup.value;
		for (size_t i = 0; i < analysis->n_actions; i++)
			if (strstr(analysis->actions[i].text, "instead of 1"))
				assert_true(analysis->actions[i].gain.value <= speedup[busy] + 1e-9);
	}
	assert_true(speedup[0] > 1.3);
	assert_true(speedup[1] < 1.1);
}

/* Compares with the changed job itself. */
TEST(what_if_meets_the_changed_job)
{
	const struct loader here = {
	    .n_workers = 2, .n_steps = STEPS, .read = 1500, .compute = 500, .device = 300};
	struct loader other = here;
	struct what_if_question question = WHAT_IF_NOTHING;
	double ticks = (double)loader_run(&here);

	question.n_workers = 4;
	other.n_workers = 4;
	check_speedup(predicted(&here, &question), ticks / (double)loader_run(&other));
	question.n_workers = 1;
	other.n_workers = 1;
	check_speedup(predicted(&here, &question), ticks / (double)loader_run(&other));
	other = here;
	question = WHAT_IF_NOTHING;
	question.device_factor = 0.25;
	other.device = 1200;
	check_speedup(predicted(&here, &question), ticks / (double)loader_run(&other));
	other = here;
	question = WHAT_IF_NOTHING;
	question.cache_ratio = 1;
	other.read = 0;
	check_speedup(predicted(&here, &question), ticks / (double)loader_run(&other));
	question = WHAT_IF_NOTHING;
	check_speedup(predicted(&here, &question), 1);
}

/* Each of n nodes needs only its share of the dataset. Its memory holds n times as much of that share as of
 * the dataset, and no chunk of it crosses the link. */
TEST(nodes_need_their_own_lanes_alone)
{
	const struct loader here = {
	    .n_workers = 2, .n_steps = STEPS, .read = 1500, .compute = 100, .device = 300};
	struct loader other = here;
	struct what_if_question question = WHAT_IF_NOTHING, share = WHAT_IF_NOTHING;

	question.n_nodes = 4;
	check_speedup(predicted(&here, &question), 1); /* nothing was cached, so each node reads its part */
	question.cache_ratio = 0.25;
	other.read = 0;
	check_speedup(predicted(&here, &question), (double)loader_run(&here) / (double)loader_run(&other));
	question.n_nodes = 2;
	share.cache_ratio = 0.5;
	assert_true(predicted(&here, &question) == predicted(&here, &share));
	question.n_nodes = 10000; /* never more than the whole share */
	share.cache_ratio = 1;
	assert_true(predicted(&here, &question) == predicted(&here, &share));
}

/* A worker that computes all the time hands over between two batches. With less to compute, it is as quick as
 * any. */
TEST(handing_over_next_to_a_worker_that_always_computes)
{
	const struct loader here = {
	    .n_workers = 1, .n_steps = STEPS, .compute = 900, .device = 400, .locked = true};
	struct loader other = here;
	struct what_if_question question = WHAT_IF_NOTHING;
	double ticks = (double)loader_run(&here);

	question.sample_factor = 0.5;
	other.compute = 450;
	check_speedup(predicted(&here, &question), ticks / (double)loader_run(&other));
}

/* Compares workers that start again for each epoch with the same job with persistent workers. */
static void check_persistent(const struct loader *fresh, double found)
{
	struct loader stay = *fresh;
	double ticks = (double)(loader_run(fresh) - fresh->start);

	stay.fresh = false;
	check_speedup(found, ticks / (double)(loader_run(&stay) - fresh->start));
}

static const struct analysis_action *action_with(const struct analysis *analysis, const char *words)
{
	for (size_t i = 0; i < analysis->n_actions; i++)
		if (strstr(analysis->actions[i].text, words))
			return &analysis->actions[i];
	return NULL;
}

TEST(workers_that_start_anew_each_epoch)
{
	struct loader loader = {.n_workers = 2,
				.n_steps = STEPS,
				.epoch = 12,
				.compute = 300,
				.device = 400,
				.start = 4000,
				.fresh = true};
	uint64_t ticks;
	struct analysis *analysis = analyse(&loader, NULL, &ticks);

	assert_int_equal(analysis->workers.n, 10);
	assert_int_equal(analysis->workers.n_at_once, 2);
	assert_non_null(analysis->predictions);
	check_persistent(&loader, analysis->predictions->persistent_speedup.value);
	const struct analysis_action *action = action_with(analysis, "persistent_workers=True");
	assert_ptr_equal(action, &analysis->actions[0]);
	assert_true(action->gain.value == analysis->predictions->persistent_speedup.value);
	analysis_free(analysis);
	/* The advice is not given to a job whose workers stay. */
	loader.fresh = false;
	analysis = analyse(&loader, NULL, &ticks);
	assert_non_null(analysis->predictions);
	assert_true(isnan(analysis->predictions->persistent_speedup.value));
	assert_null(action_with(analysis, "persistent_workers"));
	analysis_free(analysis);
}

TEST(least_that_removes_the_stall)
{
	const struct loader loader = {
	    .n_workers = 2, .n_steps = STEPS, .read = 2000, .compute = 100, .device = 600};
	uint64_t ticks;
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(&loader, NULL, &ticks);
	const struct predictions *predictions = analysis->predictions;

	assert_non_null(predictions);
	/* At 2130 ticks per batch and 630 per step, four workers keep up, and three do not. */
	if (predictions->workers_needed.value != 4)
		fail_msg("%g workers", predictions->workers_needed.value);
	/* Two workers keep up with 1260 ticks per batch. */
	if (!(predictions->cache_ratio_needed.value > 0.35 && predictions->cache_ratio_needed.value < 0.95))
		fail_msg("%g in memory", predictions->cache_ratio_needed.value);
	assert_true(predictions->storage_factor_needed.value > 1.5 &&
		    predictions->storage_factor_needed.value < 2.1);
	for (size_t i = 0; i < WHAT_IF_AXES; i++) {
		const struct what_if_curve *curve = &predictions->curves[i];

		assert_in_range(curve->n_points, 3, 12);
		for (size_t k = 0; k < curve->n_points; k++) {
			const struct what_if_point *point = &curve->points[k];

			assert_true(fabs(point->device + point->fetch_stall + point->prep_stall - 1) < 1e-6);
			assert_true(!k || point->x > point[-1].x);
			assert_true(point->x != curve->here || fabs(point->speedup.value - 1) < 0.01);
		}
	}
	/* The device's own limit is 600 ticks per step. */
	assert_true(fabs(predictions->device_rate.value * 600 * TICK_NS / 1e9 - 1) < 0.05);
}

/* Returns the share of reads from memory, where the kernel counted the bytes of read_batches batches as read
 * from disk. */
static double cached_ratio(double read_batches)
{
	const struct loader loader = {
	    .n_workers = 2, .n_steps = STEPS, .read = 1000, .compute = 100, .device = 100, .quick = 4};
	struct analysis_input input = {.root_tgid = TRAINER, .n_cpus = 16};
	uint64_t ticks = loader_run(&loader);

	if (!isnan(read_batches))
		script_add(&s, TRAINER, EVENT_PAGES, 2, ticks)->pages.missed_pages =
		    (uint32_t)(read_batches * READ_BYTES / 4096);
	struct analysis *analysis = script_analyse(&s, &input);
	assert_non_null(analysis->predictions);
	double ratio = analysis->predictions->curves[WHAT_IF_CACHE].here;
	analysis_free(analysis);
	return ratio;
}

TEST(a_quick_disk_is_no_cache)
{
	assert_true(fabs(cached_ratio(NAN) - 0.25) < 0.02);
	assert_true(fabs(cached_ratio(0.75 * STEPS) - 0.25) < 0.02);
	assert_true(cached_ratio(STEPS) < 0.02);
	/* The kernel counted more bytes than the job read. */
	assert_true(cached_ratio(3 * STEPS) < 0.02);
}

TEST(start_is_no_verdict)
{
	/* A loader that keeps up, but takes long to start. */
	const struct loader loader = {
	    .n_workers = 2, .n_steps = 30, .read = 100, .compute = 100, .device = 600, .start = 20000};
	uint64_t ticks;
	_cleanup_(analysis_freep) struct analysis *analysis = analyse(&loader, NULL, &ticks);

	assert_true(wait_ratio(analysis) > 0.4);
	assert_int_equal(analysis->steady.n_warmup_steps, 1);
	assert_true(analysis->steady.warmup_ns > 20000 * TICK_NS);
	assert_true(analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
			analysis_steady_ratio(analysis, SHARE_PREP_STALL) <
		    0.1);
	assert_int_equal(analysis->verdict, ANALYSIS_DEVICE_BOUND);
}

TEST(losses_forbid_predictions)
{
	const struct loader loader = {
	    .n_workers = 2, .n_steps = 30, .read = 1000, .compute = 100, .device = 100};
	const struct analysis_loss loss = {0, UINT64_MAX, 500};
	struct analysis_input input = {.root_tgid = TRAINER, .n_cpus = 16, .losses = &loss, .n_losses = 1};

	loader_run(&loader);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_null(analysis->predictions);
	assert_string_equal(analysis->no_predictions, "too many records were lost");
}

/* The batches were not all seen, so the method is the critical path, and the report says why. */
TEST(missing_batches_leave_the_walk)
{
	const struct loader loader = {
	    .n_workers = 2, .n_steps = STEPS, .read = 1000, .compute = 500, .device = 100};
	struct analysis_input input = {.root_tgid = TRAINER, .n_cpus = 16};
	size_t n = 0;

	loader_run(&loader);
	/* Only the first few batches of each worker have an index. */
	for (size_t i = 0; i < s.n; i++)
		if (!(s.events[i].type == EVENT_SYSCALL && s.events[i].call.nr == SYS_read &&
		      s.events[i].call.inode >= INDEX_PIPE &&
		      s.events[i].call.inode < INDEX_PIPE + WORKERS_MAX && s.events[i].start_ns > at(12000)))
			s.events[n++] = s.events[i];
	s.n = n;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_int_equal(analysis->job.method, METHOD_WALK);
	assert_null(analysis->predictions);
	assert_true(analysis->no_predictions[0]);
	assert_true(strstr(analysis->note, "wake-up chains"));
}

/* The advice to record a served job again is not given, since that would give the same result. */
TEST(a_served_job_says_why_not)
{
	script_begin(&s);
	for (uint64_t i = 0; i < STEPS; i++) {
		script_mark(&s, TRAINER, 1000 * i, MARK_NEXT_BEGIN, 0);
		script_mark(&s, TRAINER, 1000 * i + 300, MARK_NEXT_END, 0);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, TRAINER, 1000 * STEPS);
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, NULL);
	assert_int_equal(analysis->job.loader, LOADER_DIESEL);
	assert_null(analysis->predictions);
	assert_non_null(strstr(analysis->no_predictions, "dieseld serves this job"));
	assert_non_null(strstr(analysis->no_predictions, "what-if jobs.json")); /* the sentence is complete */
}

/* The trainer makes its batches with the threads of a library, as tokenizers do. A worker would use one
 * thread, and so gain less than it would if the trainer's sleep took no core. */
TEST(threads_that_help_the_trainer)
{
	struct what_if_question question = WHAT_IF_NOTHING;
	struct analysis_input input = {.root_tgid = TRAINER, .n_cpus = 2, .what_if = &question};

	script_begin(&s);
	for (uint32_t helper = TRAINER + 2; helper <= TRAINER + 3; helper++)
		script_fork(&s, TRAINER, helper, 0);
	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t now = 2000 * i;

		script_mark(&s, TRAINER, now, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
		script_off(&s, TRAINER, now + 100, now + 900, now + 900, 0x1, TRAINER + 2);
		script_mark(&s, TRAINER, now + 1000, MARK_BATCH_END, MARK_BATCH_INLINE);
		script_step(&s, TRAINER, now + 1990);
		for (uint32_t helper = TRAINER + 2; helper <= TRAINER + 3; helper++)
			script_off(&s, helper, s.last_tick[helper] + (i ? 800 : 1), now + 100, now + 100, 0x1,
				   TRAINER);
	}
	script_exit(&s, TRAINER, 2000 * STEPS + 500);
	question.n_workers = 1;
	_cleanup_(analysis_freep) struct analysis *analysis = script_analyse(&s, &input);
	assert_int_equal(analysis->job.loader, LOADER_INLINE);
	assert_non_null(analysis->predictions);
	assert_non_null(analysis->predictions->answer);
	assert_in_range(analysis->predictions->answer->speedup.low * 1800, 1500, 2000);
	assert_in_range(analysis->predictions->answer->speedup.high * 1800, 2000, 2200);
	for (size_t i = 0; i < analysis->n_actions; i++)
		assert_true(analysis->actions[i].gain.value < 1.5);
}
