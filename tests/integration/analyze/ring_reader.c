/* SPDX-License-Identifier: Apache-2.0 */

/* Reads one file by io_uring, for Python's ctypes: one read at a time, like a loader without prefetch. */

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN 4096

enum ring_mode {
	RING_PLAIN = 0,
	RING_SQPOLL = 1, /* a kernel thread submits */
	RING_ASYNC = 2,  /* IOSQE_ASYNC: worker threads of the kernel read */
};

struct ring_reader {
	struct io_uring ring;
	enum ring_mode mode;
	int fd;
	char *buffer;
};

struct ring_reader *ring_reader_open(const char *path, int mode, int direct);
int64_t ring_reader_read(struct ring_reader *reader, uint64_t offset, uint32_t size, char *to);
void ring_reader_close(struct ring_reader *reader);

struct ring_reader *ring_reader_open(const char *path, int mode, int direct)
{
	struct ring_reader *reader = calloc(1, sizeof(*reader));
	struct io_uring_params params = {0};

	if (!reader)
		return NULL;
	reader->mode = (enum ring_mode)mode;
	if (mode == RING_SQPOLL) {
		params.flags = IORING_SETUP_SQPOLL;
		params.sq_thread_idle = 50;
	}
	reader->fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
	if (reader->fd < 0 || io_uring_queue_init_params(8, &reader->ring, &params) < 0) {
		if (reader->fd >= 0)
			close(reader->fd);
		free(reader);
		return NULL;
	}
	return reader;
}

int64_t ring_reader_read(struct ring_reader *reader, uint64_t offset, uint32_t size, char *to)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&reader->ring);
	struct io_uring_cqe *cqe;
	int64_t result;
	int r;

	if (!reader->buffer && posix_memalign((void **)&reader->buffer, ALIGN, size))
		return -ENOMEM;
	if (!sqe)
		return -EBUSY;
	io_uring_prep_read(sqe, reader->fd, reader->buffer, size, offset);
	if (reader->mode == RING_ASYNC)
		sqe->flags |= IOSQE_ASYNC;
	r = io_uring_submit_and_wait(&reader->ring, 1);
	if (r >= 0)
		r = io_uring_wait_cqe(&reader->ring, &cqe);
	if (r < 0)
		return r;
	result = cqe->res;
	io_uring_cqe_seen(&reader->ring, cqe);
	if (result > 0)
		memcpy(to, reader->buffer, (size_t)result);
	return result;
}

void ring_reader_close(struct ring_reader *reader)
{
	if (!reader)
		return;
	io_uring_queue_exit(&reader->ring);
	close(reader->fd);
	free(reader->buffer);
	free(reader);
}
