/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "history/history.h"

static char path[256], damaged[272];

static int begin(void **state)
{
	if (make_folder(state) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/h.db", (const char *)*state);
	snprintf(damaged, sizeof(damaged), "%s.damaged", path);
	return 0;
}

static struct history *open_history(char notice[256])
{
	const struct history_options options = {
	    .path = path, .max_bytes = HISTORY_MIN_BYTES, .max_age_s = 3600ull * 24 * 365 * 100};
	struct error err = ERROR_INIT;
	struct history *h = NULL;

	if (history_open(&options, &h, notice, &err) < 0)
		fail_msg("%s", err.text);
	return h;
}

static struct history_entry make_entry(uint64_t id)
{
	struct history_entry e = {.at_ms = 1000 + id,
				  .uid = 7,
				  .applied = id % 2,
				  .decision = {.id = id,
					       .job = 3,
					       .knob = TUNER_DAEMON_WORKERS,
					       .rule = TUNER_RULE_STALL,
					       .old_value = id,
					       .new_value = id + 1,
					       .rate_before = 100,
					       .rate_expected = __builtin_nan(""),
					       .wait_before = .5,
					       .wait_expected = 0}};

	strcpy(e.job_name, "train.py");
	strcpy(e.decision.reason, "because");
	return e;
}

struct seen {
	uint64_t n, n_verdicts, last;
};

static void on_entry(void *user, struct history_entry *e)
{
	struct seen *seen = user;

	seen->n++;
	assert_true(e->decision.id > seen->last);
	seen->last = e->decision.id;
	assert_string_equal(e->job_name, "train.py");
	assert_int_equal(e->uid, 7);
	assert_int_equal(e->applied, e->decision.id % 2);
	assert_int_equal(e->decision.rule, TUNER_RULE_STALL);
	assert_true(e->decision.rate_expected != e->decision.rate_expected);
	assert_string_equal(e->sample ? e->sample : "", e->decision.id == 1 ? "{\"a\": 1}" : "");
	seen->n_verdicts += e->has_verdict;
	if (e->has_verdict)
		assert_int_equal(e->verdict.outcome, TUNER_UNDONE);
	free(e->sample);
}

TEST_WITH(a_history_reads_back_as_written, begin, remove_folder)
{
	char notice[256];
	struct history *h = open_history(notice);
	struct tuner_verdict verdict = {.decision = 2, .outcome = TUNER_UNDONE};
	struct seen seen = {0};
	void *data;
	size_t size;

	assert_int_equal(history_load_state(h, "k", &data, &size, NULL), -ENOENT);
	assert_int_equal(history_start(h, NULL), 0);
	for (uint64_t id = 1; id <= 3; id++) {
		struct history_entry e = make_entry(id);

		e.sample = id == 1 ? (char[]){"{\"a\": 1}"} : NULL;
		history_add_entry(h, &e);
	}
	history_add_verdict(h, 2000, &verdict);
	history_set_state(h, "k", "one", 3);
	history_set_state(h, "k", "two!", 4);
	history_close(h);
	h = open_history(notice);
	assert_string_equal(notice, "");
	assert_int_equal(history_load_entries(h, 2, on_entry, &seen, NULL), 0);
	assert_int_equal(seen.n, 2); /* the newest */
	assert_int_equal(seen.last, 3);
	assert_int_equal(seen.n_verdicts, 1);
	seen = (struct seen){0};
	assert_int_equal(history_load_entries(h, 10, on_entry, &seen, NULL), 0);
	assert_int_equal(seen.n, 3);
	assert_int_equal(history_load_state(h, "k", &data, &size, NULL), 0);
	assert_int_equal(size, 4);
	assert_memory_equal(data, "two!", 4);
	free(data);
	history_close(h);
}

static int on_round(void *user, const struct history_round *round)
{
	uint64_t *n = user;

	if (round->ended) {
		assert_int_equal(*round->ended, *n ? 5 : 0);
		assert_int_equal(round->at_ms, 77);
		return 0;
	}
	assert_int_equal(round->n_samples, 2);
	assert_int_equal(round->samples[1].job, 5);
	assert_int_equal(round->config->prefetch_chunks_max, *n < 2 ? 4 : 9);
	assert_int_equal(round->now_ns, 100 + *n);
	++*n;
	return 0;
}

TEST_WITH(rounds_are_kept_with_their_samples, begin, remove_folder)
{
	struct stall_sample samples[2] = {stall_sample_unknown(), stall_sample_unknown()};
	struct stall_node node = stall_node_unknown();
	struct tuner_config config = tuner_config_default();
	uint64_t n = 0, n_foreign = 1;
	char notice[256];
	struct history *h = open_history(notice);

	samples[1].job = 5;
	assert_int_equal(history_start(h, NULL), 0);
	for (uint64_t i = 0; i < 3; i++) {
		const struct history_round round = {.at_ms = 1,
						    .now_ns = 100 + i,
						    .config = &config,
						    .node = &node,
						    .samples = samples,
						    .n_samples = 2};

		config.prefetch_chunks_max = i < 2 ? 4 : 9;
		history_add_end(h, 77, i ? 5 : 0);
		history_add_round(h, &round);
	}
	history_close(h);
	assert_int_equal(history_open_read(path, &h, NULL), 0);
	assert_int_equal(history_load_rounds(h, on_round, &n, &n_foreign, NULL), 0);
	assert_int_equal(n, 3);
	assert_int_equal(n_foreign, 0);
	history_close(h);
}

TEST_WITH(a_full_history_drops_the_oldest, begin, remove_folder)
{
	struct stall_sample samples[TUNER_MAX_JOBS];
	struct stall_node node = stall_node_unknown();
	struct tuner_config config = tuner_config_default();
	struct history_status status;
	char notice[256];
	struct history *h = open_history(notice);
	struct stat st;

	memset(samples, 1, sizeof(samples));
	assert_int_equal(history_start(h, NULL), 0);
	for (uint64_t i = 0; i < 300; i++) {
		const struct history_round round = {.at_ms = i,
						    .now_ns = i,
						    .config = &config,
						    .node = &node,
						    .samples = samples,
						    .n_samples = TUNER_MAX_JOBS};

		history_add_round(h, &round);
		if (i % 5 == 4) {
			history_set_state(h, "k", &i, sizeof(i)); /* writes all queued data */
			do {
				usleep(2000);
				history_status_get(h, &status);
			} while (status.n_written + status.n_dropped < (i + 1) / 5 * 6);
		}
	}
	assert_string_equal(status.error, "");
	assert_int_equal(status.n_dropped, 0);
	history_close(h);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= (off_t)HISTORY_MIN_BYTES);
}

/* Makes a history and damages all of it behind the file's head. */
static void damage(void)
{
	char notice[256], garbage[4096];

	history_close(open_history(notice));
	memset(garbage, 0xaa, sizeof(garbage));
	int fd = open(path, O_WRONLY);
	assert_true(fd >= 0 &&
		    pwrite(fd, garbage, sizeof(garbage) - 100, 100) == (ssize_t)sizeof(garbage) - 100);
	close(fd);
}

TEST_WITH(a_damaged_history_is_set_aside, begin, remove_folder)
{
	const struct history_options options = {.path = path, .max_bytes = HISTORY_MIN_BYTES};
	struct error err = ERROR_INIT;
	char notice[256];

	damage();
	struct history *h = open_history(notice);
	assert_non_null(strstr(notice, "is damaged"));
	assert_int_equal(access(damaged, F_OK), 0);
	history_close(h);
	damage();
	assert_int_equal(history_open(&options, &h, notice, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "examine both"));
}

/* The first page is unchanged. */
TEST_WITH(damage_within_a_history_is_found, begin, remove_folder)
{
	char notice[256], garbage[4096];
	struct stat st;

	history_close(open_history(notice));
	memset(garbage, 0x55, sizeof(garbage));
	assert_int_equal(stat(path, &st), 0);
	int fd = open(path, O_WRONLY);
	for (off_t at = 4096; at < st.st_size; at += 4096)
		assert_int_equal(pwrite(fd, garbage, sizeof(garbage), at), sizeof(garbage));
	close(fd);
	history_close(open_history(notice));
	assert_non_null(strstr(notice, "is damaged"));
	assert_int_equal(access(damaged, F_OK), 0);
}

TEST_WITH(a_second_or_unreachable_history_is_refused, begin, remove_folder)
{
	const struct history_options options = {.path = path, .max_bytes = HISTORY_MIN_BYTES};
	struct history_options nowhere = options;
	struct error err = ERROR_INIT;
	char notice[256], command[160];
	struct history *h = open_history(notice), *other;

	assert_int_equal(history_open(&options, &other, notice, &err), -EBUSY);
	history_close(h);
	nowhere.path = "/nowhere/at/all.db";
	assert_int_equal(history_open(&nowhere, &other, notice, &err), -ENOENT);
	assert_int_equal(history_open_read("/nowhere/at/all.db", &other, &err), -ENOENT);
	/* SQLite would follow files that others place next to the database. */
	assert_int_equal(chmod((const char *)*state, 0777), 0);
	assert_int_equal(history_open(&options, &other, notice, &err), -EPERM);
	assert_non_null(strstr(err.text, "others can change"));
	assert_int_equal(chmod((const char *)*state, 0700), 0);
	unlink(path);
	/* A file that is no history stays as it is. */
	snprintf(command, sizeof(command), "seq 1000 > %s", path);
	assert_int_equal(system(command), 0);
	assert_int_equal(history_open(&options, &other, notice, &err), -EEXIST);
	assert_int_equal(access(damaged, F_OK), -1);
	unlink(path);
	snprintf(command, sizeof(command), "sqlite3 %s 'create table t(x)'", path);
	if (system(command) != 0)
		return; /* this machine has no such program, and the rest of the test has run */
	assert_int_equal(history_open(&options, &other, notice, &err), -EEXIST);
	assert_int_equal(history_open_read(path, &other, &err), -EEXIST);
}
