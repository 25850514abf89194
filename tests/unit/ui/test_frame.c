/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui/feed/feed.h"
#include "ui/view/frame.h"
#include "ui/view/model.h"

#define ESCAPE 27

static struct model model;
static struct screen *screen;

static struct job_sample *add_job(struct top_sample *sample, const char *name, double fetch,
				  double steps_per_s)
{
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	snprintf(job->id, sizeof(job->id), "id-%s", name);
	snprintf(job->name, sizeof(job->name), "%s", name);
	snprintf(job->user, sizeof(job->user), "me");
	snprintf(job->state, sizeof(job->state), "running");
	job->pid = 100 + sample->n_jobs;
	if (isfinite(fetch)) {
		memset(job->share, 0, sizeof(job->share));
		job->share[SHARE_FETCH_STALL] = fetch;
		job->share[SHARE_DEVICE] = 1 - fetch;
	}
	job->steps_per_s = steps_per_s;
	return job;
}

static struct top_sample *three_jobs(double time_s)
{
	struct top_sample *sample = sample_new();

	sample->time_s = time_s;
	sample->interval_s = 1;
	add_job(sample, "slow.py", 0.8, 1);
	add_job(sample, "unknown.py", NAN, NAN);
	add_job(sample, "fast.py", 0.1, 100);
	return sample;
}

static int set_up(void **state)
{
	model_init(&model, (struct charset){.unicode = true}, 1);
	screen = screen_new(24, 80, model.charset);
	assert_int_equal(model_take(&model, three_jobs(1000)), 0);
	return 0;
}

static int tear_down(void **state)
{
	model_destroy(&model);
	screen = screen_free(screen);
	return 0;
}

/* Returns the row, from row `from` on, that holds this text; -1: none. */
static int row_of(const char *text, int from)
{
	for (int y = from; y < screen->rows; y++) {
		char *line = screen_line(screen, y);
		bool found = strstr(line, text) != NULL;

		free(line);
		if (found)
			return y;
	}
	return -1;
}

static int draw_and_find(const char *text, int from)
{
	frame_draw(&model, screen);
	return row_of(text, from);
}

static void press(const char *keys)
{
	for (; *keys; keys++)
		model_key(&model, (unsigned char)*keys);
}

TEST_WITH(jobs_are_sorted_by_stall, set_up, tear_down)
{
	int head = draw_and_find("STEP/S", 0), slow, unknown, fast;

	assert_true(head > 0);
	slow = row_of("slow.py", head);
	fast = row_of("fast.py", head);
	unknown = row_of("unknown.py", head);
	/* The order is by stall. An unknown stall comes last, and shows as unknown. */
	assert_true(slow == head + 1 && fast == head + 2 && unknown == head + 3);
	assert_int_equal(row_of("N/A", unknown), unknown);
	assert_true(row_of("[FFFF", 0) > 0);
}

TEST_WITH(a_column_sorts_both_ways, set_up, tear_down)
{
	model_sort_by(&model, VIEW_JOBS, "steps");
	int head = draw_and_find("STEP/S", 0);
	assert_int_equal(row_of("fast.py", head), head + 1);
	press("I");
	head = draw_and_find("STEP/S", 0);
	assert_int_equal(row_of("slow.py", head), head + 1);
	assert_int_equal(row_of("unknown.py", head), head + 3);
	assert_int_equal(model_sort_by(&model, VIEW_JOBS, "nonsense"), -1);
	assert_int_equal(model_sort_by(&model, VIEW_JOBS, "STEP/S"), 0);
	press(">");
	assert_true(draw_and_find("sorted by", 0) > 0);
}

/* The cursor stays on its job while the order changes. */
TEST_WITH(cursor_goes_with_the_job, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);

	frame_draw(&model, screen);
	press("j");
	assert_string_equal(model_selected(&model)->name, "fast.py");
	next->jobs[2].share[SHARE_FETCH_STALL] = 0.95;
	model_take(&model, next);
	frame_draw(&model, screen);
	assert_string_equal(model_selected(&model)->name, "fast.py");
	assert_int_equal(model.cursor[VIEW_JOBS], 0);
	press("jjjjjjjj");
	assert_string_equal(model_selected(&model)->name, "unknown.py");
	press("kkkkkkkk");
	assert_string_equal(model_selected(&model)->name, "fast.py");
}

TEST_WITH(filter_and_search, set_up, tear_down)
{
	press("\\SLO");
	int head = draw_and_find("STEP/S", 0);
	assert_true(row_of("slow.py", head) > 0);
	assert_int_equal(row_of("fast.py", head), -1);
	assert_true(row_of("Filter: SLO", 0) == screen->rows - 1);
	press("\n");
	assert_true(draw_and_find("Filter:", 0) < 0);
	press("\\");
	model_key(&model, ESCAPE);
	head = draw_and_find("STEP/S", 0);
	assert_true(row_of("fast.py", head) > 0);
	press("/unkn\n");
	frame_draw(&model, screen);
	assert_string_equal(model_selected(&model)->name, "unknown.py");
	press("/nobody\n");
	assert_true(draw_and_find("not found", 0) > 0);
	press("\\zzz\n");
	assert_true(draw_and_find("nothing matches the filter", 0) > 0);
}

TEST_WITH(an_exited_job_stays_for_seconds, set_up, tear_down)
{
	struct top_sample *next;

	for (int i = 1; i <= MODEL_EXITED_S + 3; i++) {
		int head, row;

		next = three_jobs(1000 + i);
		next->n_jobs = 1;
		model_take(&model, next);
		head = draw_and_find("STEP/S", 0);
		row = row_of("fast.py", head);
		assert_int_equal(row > 0, i <= MODEL_EXITED_S + 1);
		if (row > 0)
			assert_int_equal(screen->cells[row * screen->cols].style, STYLE_DIM);
	}
	/* A job that comes back is alive again. */
	model_take(&model, three_jobs(1020));
	assert_string_equal(sample_job(model.sample, "id-fast.py")->state, "running");
}

TEST_WITH(views_and_overlays, set_up, tear_down)
{
	static const char *const seen[VIEW_COUNT] = {"STEP/S",       "QUEUE", "FILE OR FOLDER",
						     "MOST TIME IN", "KNOB",  "BPF programs"};

	for (int i = 0; i < VIEW_COUNT; i++) {
		assert_int_equal(model.view, i);
		assert_true(draw_and_find(seen[i], 3) > 0);
		press("\t");
	}
	assert_int_equal(model.view, VIEW_JOBS);
	press("h");
	assert_true(draw_and_find("Keys", 0) > 0);
	for (int i = 0; i < 100; i++)
		press("j");
	assert_true(draw_and_find("LAST DECISION", 0) > 0);
	model_key(&model, ESCAPE);
	assert_int_equal(model.overlay, OVERLAY_NONE);
	assert_int_equal(model_key(&model, '\n'), MODEL_REFRESH);
	assert_true(model_wants(&model) & FEED_WANT_HOPS);
	assert_true(draw_and_find("fetch 80", 0) > 0);
	assert_int_equal(model_key(&model, ESCAPE), MODEL_REDRAW);
	assert_int_equal(model_key(&model, ESCAPE), MODEL_QUIT);
	assert_int_equal(model_key(&model, 'q'), MODEL_QUIT);
}

/* The sources of the chunks of a job on several nodes fit into 80 columns. Other jobs show none of them. */
TEST_WITH(tiers_of_a_job, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);
	struct job_sample *job = &next->jobs[0];

	frame_draw(&model, screen);
	model_key(&model, '\n');
	assert_int_equal(draw_and_find("other nodes", 0), -1);
	job->served.n_reached = 4;
	job->served.n_members = 5;
	job->served.n_troubled = 2;
	strcpy(job->served.troubled, "n4 slow (21.5 ms), n5 unreachable");
	job->served.memory_chunks_per_s = 100;
	job->served.memory_bytes_per_s = 400 << 20;
	job->served.node_chunks_per_s = 40;
	job->served.node_bytes_per_s = 100 << 20;
	job->served.node_latency_s = 0.006;
	job->served.storage_chunks_per_s = 9;
	job->served.storage_latency_s = 0.08;
	model_take(&model, next);
	int head = draw_and_find("from          chunks/s   bytes/s   a chunk", 0);
	assert_true(head > 0);
	assert_int_equal(row_of("memory             100      400M", 0), head + 1);
	assert_int_equal(row_of("other nodes         40      100M     6.0ms", 0), head + 2);
	assert_int_equal(row_of("storage            9.0       N/A      80ms", 0), head + 3);
	assert_int_equal(row_of("4 of 5 nodes reached: n4 slow (21.5 ms), n5 unreachable", 0), head + 4);
}

TEST_WITH(only_what_is_looked_at_is_asked_for, set_up, tear_down)
{
	assert_int_equal(model_wants(&model), 0);
	press("2");
	assert_int_equal(model_wants(&model), FEED_WANT_WORKERS);
	press("H");
	assert_int_equal(model_wants(&model), FEED_WANT_WORKERS | FEED_WANT_THREADS);
	press("H3");
	assert_int_equal(model_wants(&model), FEED_WANT_DEVICES);
	press("4");
	assert_int_equal(model_wants(&model), FEED_WANT_GPUS);
}

TEST_WITH(decision_and_problems_are_shown, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);

	strcpy(next->jobs[0].served.decision, "prefetch-chunks 4 -> 9");
	strcpy(next->jobs[0].served.why, "a chunk takes 80 ms");
	next->jobs[0].served.decision_age_s = 12;
	strcpy(next->daemon.state, "away");
	strcpy(next->daemon.problem, "dieseld went away");
	next->self.n_lost = 5;
	model_take(&model, next);
	assert_true(
	    draw_and_find("slow.py: decision 12.0s ago: prefetch-chunks 4 -> 9: a chunk takes 80 ms", 0) > 0);
	assert_int_equal(row_of("LOST 5", 0), 0);
	press("5");
	assert_true(draw_and_find("dieseld went away", 3) > 0);
}

TEST_WITH(a_daemon_s_unusual_socket_is_shown, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);

	strcpy(next->daemon.state, "up");
	strcpy(next->daemon.version, "0.1.0");
	strcpy(next->daemon.socket, "/run/diesel/dieseld.sock");
	model_take(&model, next);
	screen_free(screen);
	screen = screen_new(24, 160, model.charset);
	assert_int_equal(draw_and_find("dieseld 0.1.0", 0), 1);
	assert_int_equal(row_of("/run/diesel", 0), -1);
	strcpy(next->daemon.socket, "/tmp/d.sock");
	assert_int_equal(draw_and_find("at /tmp/d.sock", 0), 1);
}

TEST_WITH(a_missing_gpu_is_explained, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);

	strcpy(next->host.gpus, "there is no driver");
	model_take(&model, next);
	press("4");
	assert_true(draw_and_find("no GPU is known: there is no driver", 3) > 0);
	next = three_jobs(1002);
	struct gpu_sample_row *gpu = sample_add(next, SAMPLE_GPUS);
	strcpy(gpu->name, "H200");
	strcpy(gpu->jobs, "slow.py");
	gpu->index = 0;
	gpu->busy_ratio = 0.37;
	next->jobs[0].gpu_wait = 0.12;
	strcpy(next->jobs[0].gpu_call, "cuStreamSynchronize");
	model_take(&model, next);
	assert_true(draw_and_find("37", 3) == row_of("H200", 3));
	assert_int_equal(row_of("cuStreamSynchronize", 3), row_of("slow.py", row_of("H200", 3) + 1));
	assert_int_equal(row_of("no GPU is known", 3), -1);
	/* An unknown value is not 0. */
	assert_int_equal(row_of("N/A", row_of("unknown.py", 3)), row_of("unknown.py", 3));
}

/* In a wait with many short pieces, the long piece is visible at any height of the screen. */
TEST_WITH(the_long_piece_of_a_chain_is_seen, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);

	for (int i = 0; i < 60; i++) {
		struct hop_sample *hop = sample_add(next, SAMPLE_HOPS);

		strcpy(hop->job, "id-slow.py");
		strcpy(hop->role, "trainer");
		strcpy(hop->what, i == 40 ? "reading photo.jpg" : "taking over the batch");
		hop->tid = 100;
		hop->begin_s = i < 40 ? 1.01 - i * 1e-4 : 0.003;
		hop->length_s = i == 40 ? 1 : 1e-4;
	}
	model_take(&model, next);
	frame_draw(&model, screen);
	model_key(&model, '\n');
	assert_true(draw_and_find("reading photo.jpg", 8) > 0);
	assert_true(row_of("40 short pieces", 8) == row_of("reading photo.jpg", 8) - 1);
	assert_true(row_of("19 short pieces", 8) == row_of("reading photo.jpg", 8) + 1);
}

TEST_WITH(a_tree_has_workers_below_their_parents, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);
	static const uint64_t pids[][2] = {{20, 10}, {10, 1}, {30, 20}, {21, 10}, {7, 8}, {8, 7}};

	for (size_t i = 0; i < 6; i++) {
		struct worker_sample *worker = sample_add(next, SAMPLE_WORKERS);

		worker->pid = pids[i][0];
		worker->parent_pid =
		    pids[i][1]; /* the last two are each other's parent, as in a damaged file */
		snprintf(worker->role, sizeof(worker->role), "p%d", (int)pids[i][0]);
	}
	model_take(&model, next);
	press("t");
	assert_int_equal(model.view, VIEW_WORKERS);
	frame_draw(&model, screen);
	assert_int_equal(row_of("p20", 3), row_of("p10", 3) + 1);
	assert_int_equal(row_of("  p30", 3), row_of("p20", 3) + 1);
	assert_true(row_of("p7", 3) > 0 && row_of("p8", 3) > 0);
	press("t");
	assert_false(model.tree);
}

TEST_WITH(keys_of_a_replay, set_up, tear_down)
{
	assert_int_equal(model_key(&model, MODEL_KEY_RIGHT), MODEL_NOTHING);
	model.is_replay = true;
	assert_int_equal(model_key(&model, MODEL_KEY_RIGHT), MODEL_FORWARD);
	assert_int_equal(model_key(&model, 't'), MODEL_FORWARD);
	assert_int_equal(model_key(&model, 'T'), MODEL_BACKWARD);
	assert_int_equal(model_key(&model, 'r'), MODEL_FIRST);
	assert_int_equal(model_key(&model, 'Z'), MODEL_LAST);
	press("b14:03");
	assert_true(draw_and_find("14:03", 0) == screen->rows - 1);
	assert_int_equal(model_key(&model, '\n'), MODEL_JUMP);
	assert_string_equal(model.input, "14:03");
	press(" ");
	assert_true(model.paused);
	assert_true(draw_and_find("REPLAY", 0) == 0);
}

TEST_WITH(the_interval_has_limits, set_up, tear_down)
{
	for (int i = 0; i < 20; i++)
		press("+");
	assert_float_equal(model.interval_s, MODEL_INTERVAL_MAX, 0);
	for (int i = 0; i < 40; i++)
		press("-");
	assert_float_equal(model.interval_s, MODEL_INTERVAL_MIN, 0);
}

/* For any size and state, drawing stays within the screen (ASan checks) and reports a screen that is too
 * small. */
TEST_WITH(a_screen_of_any_size_is_drawn_within, set_up, tear_down)
{
	for (int rows = 1; rows < 40; rows += rows < 12 ? 1 : 9)
		for (int cols = 1; cols < 260; cols += cols < 90 ? 7 : 83) {
			screen_free(screen);
			screen = screen_new(rows, cols, model.charset);
			for (int view = 0; view < VIEW_COUNT; view++)
				for (int overlay = 0; overlay <= OVERLAY_DETAIL; overlay++) {
					model.view = (enum view)view;
					model.overlay = (enum overlay)overlay;
					frame_draw(&model, screen);
				}
		}
	screen_free(screen);
	screen = screen_new(3, 50, model.charset);
	assert_int_equal(draw_and_find("50x3 is too small", 0), 0);
}

TEST_WITH(a_frame_without_samples_waits_for_the_first, set_up, tear_down)
{
	model_destroy(&model);
	model_init(&model, (struct charset){.unicode = true}, 1);
	assert_true(draw_and_find("first sample", 0) > 0);
	press("jk\t\n/x\n\\y\n>I2t ");
	frame_draw(&model, screen);
	model_take(&model, sample_new());
	model.view = VIEW_JOBS;
	model.filter[0] = '\0';
	assert_true(draw_and_find("no training job", 0) > 0);
}

TEST_WITH(an_ascii_screen_is_ascii_only, set_up, tear_down)
{
	struct top_sample *next = three_jobs(1001);

	strcpy(next->jobs[0].name, "训练\033[31m.py");
	model.charset = (struct charset){false, false};
	model_take(&model, next);
	for (int view = 0; view < VIEW_COUNT; view++) {
		model.view = (enum view)view;
		frame_draw(&model, screen);
		for (int i = 0; i < screen->rows * screen->cols; i++)
			assert_in_range(screen->cells[i].base, 0x20, 0x7e);
	}
}

int main(void)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	return run_unit_tests(NULL, NULL);
}
