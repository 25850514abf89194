/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ui/feed/feed.h"
#include "lib/error.h"
#include "ui/replay/top_recording.h"
#include "ui/state/sample.h"

#define N_RECORDS 5

static char path[] = "/tmp/diesel-test-reel-XXXXXX";

static void write_record(struct top_recording_writer *writer, double time_s, uint64_t n_steps)
{
	struct top_sample *sample = sample_new();
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	sample->time_s = time_s;
	job->n_steps = n_steps;
	assert_int_equal(top_recording_write(writer, sample, NULL), 0);
	sample_free(sample);
}

/* Writes records at 1000, 1001, ... s, each with that many steps. */
static void write_records(int first, int n)
{
	struct top_recording_writer *writer;

	assert_int_equal(top_recording_create(path, &writer, NULL), 0);
	for (int i = first; i < first + n; i++)
		write_record(writer, 1000 + i, (uint64_t)i);
	top_recording_writer_close(writer);
}

static int open_feed(struct feed **ret_feed, struct error *err)
{
	return feed_replay_open(&(struct replay_options){.path = path}, ret_feed, err);
}

static off_t size_of_file(void)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void patch(off_t at, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
	close(fd);
}

static int set_up(void **state)
{
	unlink(path);
	write_records(0, N_RECORDS);
	return 0;
}

static int tear_down(void **state)
{
	unlink(path);
	return 0;
}

/* Returns how many records can be read, and how many were skipped. */
static size_t readable(size_t *ret_skipped)
{
	struct top_sample *sample;
	struct feed *feed;
	size_t n = 0;
	int r;

	assert_int_equal(open_feed(&feed, NULL), 0);
	while ((r = feed->ops->sample(feed, 0, 0, &sample, NULL)) == 0) {
		assert_float_equal(sample->time_s, 1000 + (double)sample->jobs[0].n_steps, 0);
		sample_free(sample);
		n++;
	}
	assert_int_equal(r, -ENODATA);
	*ret_skipped = feed->ops->n_skipped(feed);
	feed_close(feed);
	return n;
}

static uint64_t steps_of_next(struct feed *feed)
{
	struct top_sample *sample;

	if (feed->ops->sample(feed, 0, 0, &sample, NULL) == -ENODATA)
		return 99;
	uint64_t n = sample->jobs[0].n_steps;
	sample_free(sample);
	return n;
}

TEST_WITH(there_and_back, set_up, tear_down)
{
	static const struct {
		const char *time;
		uint64_t record;
	} cases[] = {{"+2.5", 2}, {"-995", 0}, {"+100000000", N_RECORDS + 1}};
	size_t skipped;
	struct feed *feed;

	assert_int_equal(readable(&skipped), N_RECORDS);
	assert_int_equal(skipped, 0);
	write_records(N_RECORDS, 2); /* continues the same file */
	assert_int_equal(readable(&skipped), N_RECORDS + 2);
	assert_int_equal(open_feed(&feed, NULL), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(feed->ops->seek(feed, FEED_SEEK_FIRST, NULL, NULL), 0);
		assert_int_equal(feed->ops->seek(feed, FEED_SEEK_TIME, cases[i].time, NULL), 0);
		assert_int_equal(steps_of_next(feed), cases[i].record);
	}
	feed_close(feed);
}

TEST_WITH(a_cut_top_recording_loses_the_torn_record, set_up, tear_down)
{
	off_t whole = size_of_file();

	for (off_t size = whole - 1; size > 0; size -= 7) {
		struct feed *feed;
		size_t skipped, n;

		assert_int_equal(truncate(path, size), 0);
		if (open_feed(&feed, NULL)) /* no record is complete */
			continue;
		feed_close(feed);
		n = readable(&skipped);
		assert_true(n < N_RECORDS);
		assert_true(skipped <= 1);
		assert_true(n + skipped >= 1);
	}
	/* A recording continues after a torn record. */
	unlink(path);
	write_records(0, 3);
	assert_int_equal(truncate(path, size_of_file() - 10), 0);
	write_records(3, 2);
	{
		size_t skipped;

		assert_int_equal(readable(&skipped), 4);
		assert_int_equal(skipped, 1);
	}
}

TEST_WITH(a_flipped_bit_costs_one_record, set_up, tear_down)
{
	off_t size = size_of_file();

	for (off_t at = 0; at < size; at += 3) {
		size_t skipped = 0, n;
		uint8_t byte, flipped;
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		close(fd);
		flipped = byte ^ (uint8_t)(1 << at % 8);
		patch(at, &flipped, 1);
		n = readable(&skipped);
		assert_int_equal(n + skipped, N_RECORDS);
		assert_true(skipped <= 1);
		if (n == N_RECORDS) /* zstd ignores some bits, and then the record is the same */
			assert_int_equal(skipped, 0);
		patch(at, &byte, 1);
	}
}

TEST_WITH(a_foreign_file_is_no_reel, set_up, tear_down)
{
	struct feed *feed;
	struct top_recording_writer *writer;
	struct error err = ERROR_INIT;

	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(open_feed(&feed, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "empty"));
	patch(0, "#!/bin/sh\necho hello\n", 21);
	assert_int_equal(open_feed(&feed, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "not a recording"));
	assert_int_equal(top_recording_create(path, &writer, &err), -EEXIST);
	assert_int_equal(size_of_file(), 21);
	assert_int_equal(feed_replay_open(&(struct replay_options){.path = "/tmp"}, &feed, &err), -EINVAL);
	assert_int_equal(feed_replay_open(&(struct replay_options){.path = "/nonexistent/reel"}, &feed, &err),
			 -ENOENT);
	assert_int_equal(top_recording_create("/nonexistent/reel", &writer, &err), -ENOENT);
}

TEST_WITH(newer_records_are_skipped, set_up, tear_down)
{
	struct top_recording_header header;
	struct feed *feed;
	struct error err = ERROR_INIT;
	size_t skipped;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	close(fd);
	header.version = TOP_RECORDING_VERSION + 1;
	header.header_checksum = top_recording_header_sum(&header);
	patch(0, &header, sizeof(header));
	assert_int_equal(readable(&skipped), N_RECORDS - 1);
	assert_int_equal(skipped, 1);
	assert_int_equal(truncate(path, (off_t)(sizeof(header) + header.stored_bytes)), 0);
	assert_int_equal(open_feed(&feed, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "newer"));
}

TEST_WITH(a_device_is_no_place_for_a_reel, set_up, tear_down)
{
	struct top_recording_writer *writer;
	struct top_sample *sample = sample_new();
	struct error err = ERROR_INIT;

	if (access("/dev/full", W_OK))
		skip();
	/* /dev/full is not a regular file, so it cannot hold a recording. */
	assert_int_equal(top_recording_create("/dev/full", &writer, &err), -EINVAL);
	sample_free(sample);
}

TEST_WITH(a_replay_ends_at_the_last_record, set_up, tear_down)
{
	struct feed *feed;
	struct error err = ERROR_INIT;

	assert_int_equal(open_feed(&feed, &err), 0);
	for (uint64_t i = 0; i < N_RECORDS; i++)
		assert_int_equal(steps_of_next(feed), i);
	assert_int_equal(steps_of_next(feed), 99);
	assert_int_equal(feed->ops->seek(feed, FEED_SEEK_BACK, NULL, &err), 0);
	assert_int_equal(steps_of_next(feed), 3);
	feed->ops->seek(feed, FEED_SEEK_FIRST, NULL, &err);
	assert_int_equal(steps_of_next(feed), 0);
	feed->ops->seek(feed, FEED_SEEK_BACK, NULL, &err);
	assert_int_equal(steps_of_next(feed), 0);
	feed->ops->seek(feed, FEED_SEEK_LAST, NULL, &err);
	assert_int_equal(steps_of_next(feed), 4);
	assert_int_equal(feed->ops->seek(feed, FEED_SEEK_TIME, "-2", &err), 0);
	assert_int_equal(steps_of_next(feed), 2);
	assert_int_equal(feed->ops->seek(feed, FEED_SEEK_TIME, "yesterday", &err), -EINVAL);
	assert_int_equal(steps_of_next(feed), 3);
	assert_int_equal(feed->ops->seek(feed, FEED_SEEK_REWIND, "2", &err), 2);
	assert_int_equal(steps_of_next(feed), 2);
	assert_int_equal(feed->ops->seek(feed, FEED_SEEK_REWIND, "100", &err), 3);
	assert_int_equal(steps_of_next(feed), 0);
	feed_close(feed);
	assert_int_equal(
	    feed_replay_open(&(struct replay_options){path, "1970-01-01T00:16:41", NULL}, &feed, &err), 0);
	assert_int_equal(steps_of_next(feed), 1);
	feed_close(feed);
	assert_int_equal(feed_replay_open(&(struct replay_options){path, NULL, "+2"}, &feed, &err), 0);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(steps_of_next(feed), i);
	assert_int_equal(steps_of_next(feed), 99);
	feed_close(feed);
	assert_int_equal(feed_replay_open(&(struct replay_options){path, "x", NULL}, &feed, &err), -EINVAL);
}

/* Each recording begins at the time that relative times count from. The record at the expected time is number
 * 2. */
TEST_WITH(times_are_absolute_or_relative, set_up, tear_down)
{
	static const struct {
		const char *text;
		double base_s, time_s;
	} good[] = {
	    {"14:03", 86400 * 3 + 5, 86400 * 3 + 14 * 3600 + 180},
	    {"14:03:22", 0, 14 * 3600 + 180 + 22},
	    {"1970-01-02T00:00", 0, 86400},
	    {"1970-01-02 00:00:01", 0, 86401},
	    {"+60", 100, 160},
	    {"-60.5", 100, 39.5},
	};
	static const char *const bad[] = {"",           "14",    "14:",    "14:3x",
					  "25:00",      "14:60", "14:03:", "14:03:2 ",
					  "+",          "-x",    "+1e99",  "1970-13-01T00:00",
					  "1970-01-01", "now"};
	struct feed *feed;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const double times_s[] = {good[i].base_s, good[i].time_s - 0.25, good[i].time_s,
					  good[i].time_s + 0.25};
		struct top_recording_writer *writer;

		unlink(path);
		assert_int_equal(top_recording_create(path, &writer, NULL), 0);
		for (size_t k = 0; k < 4; k++)
			write_record(writer, times_s[k], k);
		top_recording_writer_close(writer);
		assert_int_equal(open_feed(&feed, NULL), 0);
		assert_int_equal(feed->ops->seek(feed, FEED_SEEK_TIME, good[i].text, NULL), 0);
		assert_int_equal(steps_of_next(feed), 2);
		feed_close(feed);
	}
	assert_int_equal(open_feed(&feed, NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(feed->ops->seek(feed, FEED_SEEK_TIME, bad[i], NULL), -EINVAL);
	feed_close(feed);
}

int main(void)
{
	setenv("TZ", "UTC", 1);
	close(mkstemp(path));
	return run_unit_tests(NULL, NULL);
}
