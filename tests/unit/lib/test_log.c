/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/log.h"

/* Reads all text written to standard error since the last call. */
static void written(int read_fd, char *buffer, size_t size)
{
	ssize_t n = read(read_fd, buffer, size - 1);

	assert_true(n >= 0);
	buffer[n] = '\0';
}

static int catch_errors(int *ret_old)
{
	int fds[2];

	*ret_old = dup(STDERR_FILENO);
	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	return fds[0];
}

TEST(a_message_is_one_line)
{
	char text[2048], name[1200];
	int old, fd = catch_errors(&old);

	unsetenv("JOURNAL_STREAM");
	log_init("test", LOG_LEVEL_INFO);
	log_error("cannot read %s", "a\ntest: error: forged\x1b[2J");
	written(fd, text, sizeof(text));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	dup2(old, STDERR_FILENO);
	assert_string_equal(text, "test: error: cannot read a\\x0atest: error: forged\\x1b[2J\n");
	fd = catch_errors(&old);
	log_warning("%s", name);
	written(fd, text, sizeof(text));
	dup2(old, STDERR_FILENO);
	close(old);
	close(fd);
	assert_int_equal(strcspn(text, "\n"), strlen(text) - 1);
	assert_true(strlen(text) > 1000);
}

TEST(a_burst_of_messages_is_limited)
{
	struct log_limit limit = {0};
	uint64_t left_out = 0, now_ns = 12345;

	for (int i = 0; i < LOG_BURST; i++)
		assert_true(log_limit_take(&limit, now_ns, &left_out));
	for (int i = 0; i < 1000; i++)
		assert_false(log_limit_take(&limit, now_ns + LOG_REFILL_NS - 1, &left_out));
	assert_int_equal(left_out, 0);
	assert_true(log_limit_take(&limit, now_ns + LOG_REFILL_NS, &left_out));
	assert_int_equal(left_out, 1000);
	assert_false(log_limit_take(&limit, now_ns + LOG_REFILL_NS, &left_out));
	/* The limit is at its maximum again, and not above it. */
	now_ns += 1000 * LOG_REFILL_NS;
	for (int i = 0; i < LOG_BURST; i++)
		assert_true(log_limit_take(&limit, now_ns, &left_out));
	assert_false(log_limit_take(&limit, now_ns, &left_out));
}

TEST(an_event_is_one_line)
{
	const struct log_field fields[] = {{"job", "3"}, {"account", ""}, {"program", "a\nb"}};
	char said[256];
	int old, fd = catch_errors(&old);

	log_init("test", LOG_LEVEL_INFO);
	log_event("job_begin", "job begins:", fields, 3);
	dup2(old, STDERR_FILENO);
	close(old);
	written(fd, said, sizeof(said));
	close(fd);
	assert_string_equal(said, "test: job begins: job=3 program=a\\x0ab\n");
}

/* The log is a pipe that nobody reads. A daemon does not wait for it. */
TEST(a_log_nobody_reads_blocks_nothing)
{
	char text[65536 + 4096];
	int old, fd = catch_errors(&old);

	log_init("test", LOG_LEVEL_INFO);
	log_never_wait();
	for (int i = 0; i < 10000; i++)
		log_info("a line of a daemon that goes on: %d", i);
	written(fd, text, sizeof(text));
	assert_null(strstr(text, ": 9999\n"));
	assert_null(strstr(text, "left out"));
	log_info("the next");
	written(fd, text, sizeof(text));
	log_info("and one more");
	written(fd, text + strlen(text), sizeof(text) - strlen(text));
	dup2(old, STDERR_FILENO);
	close(old);
	close(fd);
	assert_non_null(
	    strstr(text, " lines left out: nobody read the log\ntest: the next\ntest: and one more\n"));
}
