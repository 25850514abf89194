/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analyzer/input.h"
#include "analyzer/recording.h"
#include "bpf/event.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "analyzer/trace/recording_metadata.h"

#define N_EVENTS 50000

static char path[256];

static int setup(void **state)
{
	if (make_folder(state) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/s.db", (const char *)*state);
	return 0;
}

/* Returns events as in a real stream: four threads, nearly in order, with stragglers across blobs. */
static struct event event_at(uint64_t i)
{
	uint64_t shuffled = i ^ (i % 97 == 0 ? 0xfff : 0x7);

	return (struct event){.start_ns = shuffled,
			      .end_ns = shuffled * 10,
			      .tid = 100 + (uint32_t)(shuffled % 4),
			      .type = shuffled % 2 ? EVENT_SWITCH : EVENT_SYSCALL};
}

static void record(bool finish)
{
	struct error err = ERROR_INIT;
	struct recording *recording;

	assert_int_equal(recording_create(path, &recording, &err), 0);
	for (uint64_t i = 0; i < N_EVENTS; i++) {
		struct event event = event_at(i);

		assert_int_equal(recording_append(recording, &event, &err), 0);
	}
	assert_int_equal(recording_set_text(recording, RECORDING_COMMAND, "python3 train.py 'x'", &err), 0);
	assert_int_equal(recording_set_u64(recording, RECORDING_START_NS, UINT64_MAX, &err), 0);
	if (finish)
		assert_int_equal(recording_finish(recording, &err), 0);
	recording_close(recording);
}

/* Returns how many events come, and asserts that they are sorted. */
static size_t count(struct recording *recording, const struct recording_filter *filter, uint64_t *ret_sum)
{
	struct recording_cursor *cursor;
	const struct event *event;
	uint64_t last_ns = 0, sum = 0;
	size_t n = 0;
	int r;

	assert_int_equal(recording_cursor_open(recording, filter, &cursor, NULL), 0);
	while ((r = recording_cursor_next(cursor, &event)) > 0) {
		assert_true(event->end_ns >= last_ns);
		last_ns = event->end_ns;
		sum += event->start_ns;
		n++;
	}
	assert_int_equal(r, 0);
	recording_cursor_close(cursor);
	if (ret_sum)
		*ret_sum = sum;
	return n;
}

TEST(a_recording_reads_back_as_written)
{
	_cleanup_(freep) char *command = NULL;
	struct error err = ERROR_INIT;
	uint64_t value, sum, expected = 0;
	struct recording *recording;

	record(true);
	for (uint64_t i = 0; i < N_EVENTS; i++)
		expected += event_at(i).start_ns;
	assert_int_equal(recording_open(path, &recording, &err), 0);
	assert_true(recording_complete(recording));
	assert_int_equal(count(recording, NULL, &sum), N_EVENTS);
	assert_int_equal(sum, expected);
	assert_int_equal(recording_get_text(recording, RECORDING_COMMAND, &command), 0);
	assert_string_equal(command, "python3 train.py 'x'");
	assert_int_equal(recording_get_u64(recording, RECORDING_START_NS, &value), 0);
	assert_true(value == UINT64_MAX);
	assert_int_equal(recording_get_u64(recording, RECORDING_COMMAND, &value), -EBADMSG);
	assert_int_equal(recording_get_u64(recording, "nothing", &value), -ENOENT);
	assert_true(recording_complete(recording));
	recording_close(recording);
}

TEST(filters_choose_threads_and_types)
{
	const struct recording_filter thread = {.tid = 102};
	const struct recording_filter switches = {.type_mask = 1 << EVENT_SWITCH};
	const struct recording_filter neither = {.tid = 102, .type_mask = 1 << EVENT_STEP};
	struct recording *recording;
	size_t n = 0;

	record(true);
	for (uint64_t i = 0; i < N_EVENTS; i++)
		n += event_at(i).tid == 102;
	assert_int_equal(recording_open(path, &recording, NULL), 0);
	assert_int_equal(count(recording, &thread, NULL), n);
	assert_int_equal(
	    count(recording, &switches, NULL) +
		count(recording, &(struct recording_filter){.type_mask = 1 << EVENT_SYSCALL}, NULL),
	    N_EVENTS);
	assert_int_equal(count(recording, &neither, NULL), 0);
	recording_close(recording);
}

TEST(unfinished_is_incomplete)
{
	struct recording *recording;

	record(false);
	assert_int_equal(recording_open(path, &recording, NULL), 0);
	assert_false(recording_complete(recording));
	/* The last blob was not full, so it was still in memory. */
	assert_int_equal(count(recording, NULL, NULL),
			 N_EVENTS / RECORDING_BLOB_EVENTS * RECORDING_BLOB_EVENTS);
	recording_close(recording);
}

TEST(a_truncated_recording_says_so)
{
	struct stat whole;
	size_t most = 0;

	record(true);
	assert_int_equal(stat(path, &whole), 0);
	for (off_t length = whole.st_size - 1; length > 0; length = length * 4 / 5) {
		struct error err = ERROR_INIT;
		struct recording *recording;
		size_t n;
		int r;

		assert_int_equal(truncate(path, length), 0);
		r = recording_open(path, &recording, &err);
		if (r < 0) {
			assert_non_null(strstr(err.text, path));
			continue;
		}
		n = count(recording, NULL, NULL);
		if (length < whole.st_size * 9 / 10 && n > most)
			most = n;
		assert_false(recording_complete(recording));
		recording_close(recording);
	}
	assert_true(most >= N_EVENTS / 2);
	unlink(path);
}

static void flip(long at, int mask)
{
	FILE *file = fopen(path, "r+");

	fseek(file, at, SEEK_SET);
	int byte = fgetc(file);
	fseek(file, at, SEEK_SET);
	fputc(byte ^ mask, file);
	fclose(file);
}

TEST(flipped_bytes_crash_nothing)
{
	struct stat whole;

	record(true);
	assert_int_equal(stat(path, &whole), 0);
	srandom(7);
	for (int i = 0; i < 200; i++) {
		long at = random() % whole.st_size;
		struct recording_cursor *cursor;
		const struct event *event;
		struct recording *recording;

		flip(at, 0xff);
		if (!recording_open(path, &recording, NULL)) {
			if (!recording_cursor_open(recording, NULL, &cursor, NULL)) {
				uint64_t last_ns = 0;

				while (recording_cursor_next(cursor, &event) > 0) {
					assert_true(event->end_ns >= last_ns);
					last_ns = event->end_ns;
				}
				recording_cursor_close(cursor);
			}
			recording_close(recording);
		}
		flip(at, 0xff);
	}
}

TEST(a_foreign_file_is_no_recording)
{
	struct error err = ERROR_INIT;
	struct recording *recording;

	unlink(path);
	assert_int_equal(recording_open(path, &recording, &err), -ENOENT);
	assert_non_null(strstr(err.text, "s.db"));
	write_text(*state, "s.db", "my thesis");
	assert_int_equal(recording_open(path, &recording, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "not a recording"));
	/* and the file is not overwritten, either */
	assert_int_equal(recording_create(path, &recording, &err), -EEXIST);
	char *text = read_text(*state, "s.db");
	assert_string_equal(text, "my thesis");
	free(text);
	write_text(*state, "s.db", "");
	assert_int_equal(recording_open(path, &recording, &err), -EBADMSG);
	unlink(path);
}

/* user_version is the big-endian number at offset 60 of the header. */
TEST(a_recording_of_another_version_is_refused)
{
	struct error err = ERROR_INIT;
	struct recording *recording;

	record(true);
	flip(63, 0x40);
	assert_int_equal(recording_open(path, &recording, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "or record again"));
	assert_int_equal(recording_create(path, &recording, &err), 0);
	recording_close(recording);
}

TEST(an_unwritable_path_is_named)
{
	struct error err = ERROR_INIT;
	struct recording *recording;

	assert_int_equal(recording_create("/dev/full", &recording, &err), -EEXIST);
	assert_int_equal(recording_create("/nonexistent/s.db", &recording, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/s.db"));
}

/* A list that lives on has each inode once, and does not grow for ever. */
TEST(paths_that_change)
{
	struct recording_paths paths = {0};
	char metadata[64];

	for (uint64_t inode = 1; inode <= 100; inode++) {
		for (int again = 0; again < 3; again++) {
			struct places_path head = {.inode = inode, .device = 8};
			int n = snprintf(metadata + sizeof(head), sizeof(metadata) - sizeof(head), "/f%d.%d",
					 (int)inode, again);

			memcpy(metadata, &head, sizeof(head));
			assert_int_equal(
			    recording_paths_update(&paths, metadata, sizeof(head) + (size_t)n, 10), 0);
			assert_in_range(paths.n, 1, 10);
		}
	}
	assert_int_equal(paths.items[paths.n - 1].inode, 100);
	assert_string_equal(paths.items[paths.n - 1].path, "/f100.2");
	for (size_t i = 1; i < paths.n; i++)
		assert_int_equal(paths.items[i].inode, paths.items[i - 1].inode + 1);
	assert_int_equal(recording_paths_update(&paths, metadata, 3, 10), 0);
	recording_paths_free(&paths);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
