/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/assist/batch_log.h"
#include "lib/clock.h"

#define BATCH   8
#define TRAINER 7
#define MS      UINT64_C(1000000)

/* ---- pickles ------------------------------------------------------------------------------------------- */

/* Writes (number, [index, ...]) as Python pickles it. */
static size_t pickle(uint8_t *to, uint32_t number, const uint32_t *indices, size_t n)
{
	uint8_t *p = to;

	p += sprintf((char *)p, "\x80\x04\x95") + 8;
	memset(p - 8, 0, 8);
	*p++ = 'J';
	memcpy(p, &number, 4);
	p += 4;
	*p++ = ']';
	*p++ = 0x94;
	*p++ = '(';
	for (size_t i = 0; i < n; i++, p += 4) {
		*p++ = 'J';
		memcpy(p, &indices[i], 4);
	}
	memcpy(p, "e\x86\x94.", 4);
	return (size_t)(p + 4 - to);
}

TEST(python_s_pickles_are_read)
{
	/* pickle.dumps((3, [5, 300, 70000])), (0, [9]), and protocol 5 */
	static const uint8_t three[] =
	    "\x80\x04\x95\x14\0\0\0\0\0\0\0K\x03]\x94(K\x05M,\x01Jp\x11\x01\0e\x86\x94.";
	static const uint8_t one[] = "\x80\x05\x95\x0a\0\0\0\0\0\0\0K\0]\x94K\x09"
				     "a\x86\x94.";
	uint32_t got[3], number;

	assert_int_equal(indices_parse(three, sizeof(three) - 1, got, 3, &number), 3);
	assert_int_equal(got[0], 5);
	assert_int_equal(got[1], 300);
	assert_int_equal(got[2], 70000);
	assert_int_equal(number, 3);
	assert_int_equal(indices_parse(three, sizeof(three) - 1, got, 2, &number), -ERANGE);
	assert_int_equal(indices_parse(one, sizeof(one) - 1, got, 3, &number), 1);
	assert_int_equal(got[0], 9);
	for (size_t n = 0; n < sizeof(three) - 1; n++)
		assert_true(indices_parse(three, n, got, 3, &number) < 0);
}

TEST(other_pickles_are_not)
{
	static const uint8_t negative[] = "\x80\x04\x95\x0a\0\0\0\0\0\0\0K\0]\x94J\xff\xff\xff\xff"
					  "a\x86\x94.";
	static const uint8_t text[] = "\x80\x04\x95\x0a\0\0\0\0\0\0\0K\0]\x94\x8c\x01"
				      "aa\x86\x94.";
	static const uint8_t empty[] = "\x80\x04\x95\x0a\0\0\0\0\0\0\0K\0]\x94\x86\x94.";
	uint32_t got[4], number;

	assert_int_equal(indices_parse(negative, sizeof(negative) - 1, got, 4, &number), -ERANGE);
	assert_int_equal(indices_parse(text, sizeof(text) - 1, got, 4, &number), -EBADMSG);
	assert_int_equal(indices_parse(empty, sizeof(empty) - 1, got, 4, &number), -EBADMSG);
}

/* ---- a job --------------------------------------------------------------------------------------------- */

struct job {
	struct batch_log log;
	uint64_t now_ns, exec_ns;
	uint32_t number, n_ahead, n_done, seed;
	char last[64];
	uint64_t file_ns, ahead_file_ns, work_ns; /* per file: not read ahead, read ahead, CPU time */
	uint64_t step_ns;                         /* the trainer's time per batch, while its worker waits */
	bool ahead;                               /* the last batch was read ahead */
	uint32_t n_sleeps;
	bool bookkeeping_lags; /* CPU time does not advance yet */
};

static void on_ahead(void *user, uint64_t batch, const char *names, uint32_t n)
{
	struct job *j = user;

	j->n_ahead += n;
	j->ahead = true;
	snprintf(j->last, sizeof(j->last), "%s", names);
}

static void on_done(void *user, uint64_t batch)
{
	((struct job *)user)->n_done++;
}

static void record(struct job *j, uint16_t type, const void *bytes, size_t n, size_t length)
{
	const struct index_record r = {.at_ns = j->now_ns,
				       .exec_ns = j->exec_ns,
				       .start_ns = j->now_ns,
				       .n_sleeps = j->n_sleeps,
				       .trainer = TRAINER,
				       .pipe = 9,
				       .length = (uint32_t)length,
				       .type = type,
				       .bytes = (uint16_t)n};

	batch_log_record(&j->log, &r, bytes);
}

/* Gives a batch to a worker. The files that it opens have the batch's numbers plus `shift`. */
static void batch(struct job *j, uint32_t first, uint32_t shift)
{
	uint32_t indices[BATCH];
	uint8_t bytes[256];
	char name[32];

	for (uint32_t i = 0; i < BATCH; i++)
		indices[i] = first + i;
	size_t n = pickle(bytes, j->number++, indices, BATCH);
	j->ahead = false;
	record(j, INDEX_WRITE, bytes, n, n);
	record(j, INDEX_READ, bytes, n < INDEX_HEAD_BYTES ? n : INDEX_HEAD_BYTES, n);
	for (uint32_t i = 0; i < BATCH; i++) {
		n = (size_t)snprintf(name, sizeof(name), "/data/%u", first + i + shift) + 1;
		record(j, INDEX_OPEN, "/usr/lib/x.py", sizeof("/usr/lib/x.py"), 0);
		record(j, INDEX_OPEN, name, n, 0);
		j->now_ns += j->work_ns + (j->ahead ? j->ahead_file_ns : j->file_ns);
		j->exec_ns += j->bookkeeping_lags ? 0 : j->work_ns;
		j->n_sleeps += j->file_ns > 0;
	}
	j->now_ns += j->step_ns;
	j->n_sleeps += j->step_ns > 0;
}

static struct job *job_new(uint64_t file_ns, uint64_t ahead_file_ns, uint64_t work_ns)
{
	struct job *j = calloc(1, sizeof(*j));

	assert_non_null(j);
	j->log.handler = (struct batch_log_handler){.ahead = on_ahead, .done = on_done, .user = j};
	j->now_ns = MS;
	j->file_ns = file_ns;
	j->ahead_file_ns = ahead_file_ns;
	j->work_ns = work_ns;
	return j;
}

static void job_free(struct job *j)
{
	batch_log_free(&j->log);
	free(j);
}

static void epochs(struct job *j, uint32_t n, uint32_t shift)
{
	for (uint32_t e = 0; e < n; e++, j->number = 0)
		for (uint32_t b = 0; b < 40; b++)
			batch(j, b * BATCH, e * shift);
}

TEST(what_comes_next_is_ordered)
{
	struct job *j = job_new(5 * MS, MS / 10, MS / 10);

	epochs(j, 1, 0);
	assert_int_equal(j->log.judge.state, ASSIST_LEARNS);
	assert_int_equal(j->n_ahead, 0);
	epochs(j, 2, 0);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	assert_int_equal(j->log.figures.misses, 0);
	batch(j, 16, 0);
	assert_string_equal(j->last, "/data/23");
	assert_int_equal(j->log.figures.known, 40 * BATCH);
	job_free(j);
}

TEST(it_stops_where_nothing_is_waited_for)
{
	struct job *j = job_new(MS / 20, MS / 20, 5 * MS);

	epochs(j, 1, 0);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	assert_non_null(strstr(j->log.judge.why, "nothing to gain"));
	epochs(j, 2, 0);
	assert_int_equal(j->n_ahead, 0);
	/* The job is looked at again after a minute, then after two. */
	for (uint32_t minutes = 1; minutes <= 2; minutes++) {
		batch_log_turn(&j->log, j->now_ns, 0, 0);
		j->now_ns += minutes * 60 * NS_PER_S;
		batch_log_turn(&j->log, j->now_ns - 1, 0, 0);
		assert_int_equal(j->log.judge.state, ASSIST_RESTS);
		batch_log_turn(&j->log, j->now_ns, 0, 0);
		assert_int_equal(j->log.judge.state, ASSIST_LOOKS);
		epochs(j, 1, 0);
		assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	}
	job_free(j);
}

/* CPU time that the scheduler has not yet counted looks like waiting. A worker that did not sleep did not
 * wait. */
TEST(late_bookkeeping_is_no_waiting)
{
	struct job *j = job_new(0, 0, MS);

	j->bookkeeping_lags = true;
	epochs(j, 2, 0);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	assert_non_null(strstr(j->log.judge.why, "wait for files 0 %"));
	job_free(j);
}

TEST(it_stops_where_the_trainer_is_waited_for)
{
	struct job *j = job_new(MS, MS / 10, MS / 10);

	j->step_ns = 3 * BATCH * MS;
	epochs(j, 2, 0);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	assert_non_null(strstr(j->log.judge.why, "wait for the trainer"));
	assert_int_equal(j->n_ahead, 0);
	job_free(j);
}

TEST(it_stops_where_files_are_in_memory)
{
	struct job *j = job_new(5 * MS, MS / 10, MS / 10);

	epochs(j, 2, 0);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	batch_log_turn(&j->log, j->now_ns, 100, 0);
	batch_log_turn(&j->log, j->now_ns, 200, 100);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	batch_log_turn(&j->log, j->now_ns, 200, 100);
	batch_log_turn(&j->log, j->now_ns, 205, 500);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	assert_non_null(strstr(j->log.judge.why, "in memory"));
	job_free(j);
}

/* The assistance helped. Later, files take as long as without it, so it tries again and then rests. */
TEST(it_stops_where_it_no_longer_helps)
{
	struct job *j = job_new(5 * MS, MS / 10, MS);

	epochs(j, 3, 0);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	j->ahead_file_ns = j->file_ns;
	epochs(j, 20, 0);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	job_free(j);
}

TEST(epochs_may_be_too_short)
{
	struct job *j = job_new(5 * MS, MS / 10, MS);

	for (uint32_t e = 0; e < 100; e++, j->number = 0)
		for (uint32_t b = 0; b < 3; b++)
			batch(j, b * BATCH, 0);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	assert_non_null(strstr(j->log.judge.why, "too short"));
	job_free(j);
}

TEST(it_stops_where_it_does_not_help)
{
	struct job *j = job_new(5 * MS, 5 * MS, MS);

	epochs(j, 12, 0);
	assert_int_equal(j->log.judge.state, ASSIST_RESTS);
	assert_non_null(strstr(j->log.judge.why, "not worth it"));
	job_free(j);
}

TEST(another_file_each_time_ends_it)
{
	struct job *j = job_new(5 * MS, MS, MS);
	uint32_t before;

	epochs(j, DATA_SETS, 1);
	assert_int_not_equal(j->log.judge.state, ASSIST_STOPPED);
	assert_int_equal(j->n_ahead,
			 /* batches that were written before the second epoch's first batch was done */
			 2 * BATCH);
	j->number = 0;
	batch(j, 0, 1000);
	batch(j, BATCH, 1000);
	assert_int_equal(j->log.judge.state, ASSIST_STOPPED);
	assert_non_null(strstr(j->log.judge.why, "opens different files"));
	assert_int_equal(j->log.figures.misses, BATCH);
	before = j->n_ahead;
	epochs(j, 1, 0);
	assert_int_equal(j->n_ahead, before);
	job_free(j);
}

/* The first batch opens the files of its indices, the next batches do not. */
TEST(lies_in_the_middle_of_an_epoch_end_it)
{
	struct job *j = job_new(5 * MS, MS / 10, MS / 10);

	epochs(j, 3, 0);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	uint32_t before = j->n_ahead;
	for (uint32_t b = 0; b < 40; b++)
		batch(j, b * BATCH, b ? 1000 : 0);
	assert_int_equal(j->log.judge.state, ASSIST_STOPPED);
	assert_non_null(strstr(j->log.judge.why, " did)"));
	assert_in_range(j->n_ahead - before, BATCH, 10 * BATCH);
	job_free(j);
}

static void pass(struct job *j, uint32_t n, uint32_t shift)
{
	j->number = 0;
	for (uint32_t b = 0; b < n; b++)
		batch(j, b * BATCH, shift);
}

TEST(training_and_validation_are_both_helped)
{
	struct job *j = job_new(5 * MS, MS / 10, MS / 10);

	pass(j, 2, 1000); /* as Lightning does before it trains */
	for (uint32_t e = 0; e < 4; e++) {
		pass(j, 40, 0);
		pass(j, 10, 1000);
	}
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	assert_string_equal(j->last, "/data/1079");
	assert_int_equal(j->log.figures.known, 50 * BATCH);
	assert_in_range(j->log.figures.misses, 0, BATCH);
	batch(j, 0, 1000);
	assert_string_equal(j->last, "/data/1007");
	job_free(j);
}

TEST(another_data_set_is_learnt_anew)
{
	struct job *j = job_new(5 * MS, MS / 10, MS / 10);

	for (uint32_t e = 0; e < 3; e++)
		pass(j, 80, 0);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	uint32_t before = j->n_ahead;
	pass(j, 80, 1000);
	assert_int_equal(j->log.judge.state, ASSIST_LEARNS);
	assert_non_null(strstr(j->log.judge.why, "not known yet"));
	assert_int_equal(j->n_ahead - before, 2 * BATCH);
	pass(j, 80, 1000);
	assert_int_equal(j->log.judge.state, ASSIST_HELPS);
	assert_string_equal(j->last, "/data/1639");
	assert_int_equal(j->log.figures.misses, BATCH);
	job_free(j);
}

TEST(samples_that_are_no_files_end_it)
{
	struct job *j = job_new(5 * MS, MS, MS);
	const uint32_t indices[2] = {1, 2};
	uint8_t bytes[64];
	size_t n;

	for (uint32_t i = 0; i < 40; i++) {
		n = pickle(bytes, i, indices, 2);
		record(j, INDEX_WRITE, bytes, n, n);
		record(j, INDEX_READ, bytes, n, n);
	}
	assert_int_equal(j->log.judge.state, ASSIST_STOPPED);
	assert_non_null(strstr(j->log.judge.why, "not open one file per sample"));
	job_free(j);
}

/* Records may be missing or made up. Nothing breaks, and no file is read ahead that was never opened. */
TEST(records_may_be_anything)
{
	struct job *j = job_new(5 * MS, MS, MS);
	uint8_t bytes[512];

	srand(1);
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t indices[BATCH];
		struct index_record r = {.at_ns = (uint64_t)rand() * 1000,
					 .trainer = TRAINER,
					 .pipe = (uint32_t)rand() % 100,
					 .type = (uint16_t)(rand() % 6)};
		size_t n;

		for (uint32_t k = 0; k < BATCH; k++)
			indices[k] = (uint32_t)rand();
		n = pickle(bytes, i, indices, BATCH);
		if (r.type == INDEX_OPEN)
			memset(bytes, rand() % 3 ? 'a' : 0, n);
		r.bytes = (uint16_t)(r.type == INDEX_READ ? INDEX_HEAD_BYTES : (uint32_t)rand() % (n + 1));
		r.length = (uint32_t)n;
		batch_log_record(&j->log, &r, bytes);
	}
	assert_int_equal(j->n_ahead, 0);
	job_free(j);
}
