/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/cleanup.h"
#include "lib/fd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TEST(a_file_reads_as_written)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	char data[16] = "";
	size_t done = 0;

	assert_int_equal(fd_write(fd, "01234567", 8), 0);
	assert_int_equal(fd_write_at(fd, "ab", 2, 3), 0);
	assert_int_equal(fd_write(fd, "89", 2), 0); /* at the end of the first write */
	assert_int_equal(fd_read_at(fd, data, 4, 2, &done), 0);
	assert_int_equal(done, 4);
	assert_string_equal(data, "2ab5");
	assert_int_equal(fd_read_at(fd, data, sizeof(data), 8, &done), 0);
	assert_int_equal(done, 2);
	assert_int_equal(fd_read_at(fd, data, sizeof(data), 99, &done), 0);
	assert_int_equal(done, 0);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(fd_read(fd, data, sizeof(data), &done), 0);
	assert_int_equal(done, 10);
	assert_memory_equal(data, "012ab56789", 10);
	close(fd);
}

TEST(errors_leave_the_count_as_it_was)
{
	char data[4];
	size_t done = 7;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_int_equal(fd_read(-1, data, sizeof(data), &done), -EBADF);
	assert_int_equal(fd_read_at(-1, data, sizeof(data), 0, &done), -EBADF);
	assert_int_equal(done, 7);
	assert_int_equal(fd_write(full, data, sizeof(data)), -ENOSPC);
	assert_int_equal(fd_write_at(-1, data, sizeof(data), 0), -EBADF);
	close(full);
}

#define PIPE_BYTES ((size_t)4 << 20)

struct feed {
	int fd;
	pthread_t reader;
	char *data;
};

static void on_signal(int signal)
{
}

/* Interrupts the reader. Its writes are cut by the size of the pipe. */
static void *feed(void *argument)
{
	struct feed *f = argument;

	for (size_t at = 0; at < PIPE_BYTES; at += PIPE_BYTES / 64) {
		usleep(1000); /* so that the reader waits most of the time */
		pthread_kill(f->reader, SIGUSR1);
		if (fd_write(f->fd, f->data + at, PIPE_BYTES / 64) < 0)
			return NULL;
	}
	close(f->fd);
	return f;
}

TEST(pieces_and_signals)
{
	struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART, so read() returns */
	_cleanup_(freep) char *sent = malloc(PIPE_BYTES), *data = malloc(PIPE_BYTES + 1);
	pthread_t thread;
	void *result;
	size_t done;
	int ends[2];

	for (size_t i = 0; i < PIPE_BYTES; i++)
		sent[i] = (char)(i * 31 >> 3);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	sigaction(SIGUSR1, &action, NULL);
	struct feed f = {ends[1], pthread_self(), sent};
	assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
	assert_int_equal(fd_read(ends[0], data, PIPE_BYTES + 1, &done), 0);
	pthread_join(thread, &result);
	assert_non_null(result);
	assert_int_equal(done, PIPE_BYTES);
	assert_memory_equal(data, sent, PIPE_BYTES);
	close(ends[0]);
}
