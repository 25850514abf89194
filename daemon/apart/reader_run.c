/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's side of reader.h: one dataset's chunks, each opened, checked, and read in large pieces side by
 * side. Whatever blocks here holds up nobody else. */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"

#define IO_DEPTH 32
/* Large enough for full bandwidth, small enough that a few of one chunk run side by side. */
#define PIECE_BYTES (2u << 20)
#define MAX_PIECES  64

struct chunk;

struct piece {
	struct io_op op;
	struct chunk *chunk;
};

struct reading {
	int fd;
	uv_loop_t loop;
	uv_poll_t poll;
	struct io *io;
};

struct chunk {
	struct reading *reading;
	struct reader_order order;
	struct reader_report report;
	int folder_fd, memory_fd, fd;
	uint8_t *memory;
	uint32_t n_pending;
	struct piece open;
	struct piece pieces[MAX_PIECES];
};

/* There are never more reports than orders, so send() blocks only while the daemon is stopped. */
static void chunk_report(struct chunk *c)
{
	ssize_t n;

	if (c->memory)
		munmap(c->memory, c->order.bytes);
	closep(&c->memory_fd);
	closep(&c->folder_fd);
	closep(&c->fd);
	do
		n = send(c->reading->fd, &c->report, sizeof(c->report), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	free(c);
}

static void on_piece(struct io_op *op)
{
	struct chunk *c = ((struct piece *)op)->chunk;
	struct reader_report *report = &c->report;

	if (op->result > 0 && (uint32_t)op->result < op->bytes && report->result == 0) {
		/* A short read: go on after it. */
		op->buffer = (uint8_t *)op->buffer + op->result;
		op->offset += (uint32_t)op->result;
		op->bytes -= (uint32_t)op->result;
		io_submit(c->reading->io, op);
		return;
	}
	if (op->result == 0 && report->result == 0)
		report->result = error_set(&report->error, -EBADMSG, "%s: truncated at byte %llu",
					   c->order.origin, (unsigned long long)op->offset);
	if (op->result < 0 && report->result == 0)
		report->result = error_errno(&report->error, op->result, "%s: cannot read at %llu",
					     c->order.origin, (unsigned long long)op->offset);
	if (--c->n_pending == 0)
		chunk_report(c);
}

static void chunk_read(struct chunk *c)
{
	uint64_t bytes = c->order.bytes, piece = PIECE_BYTES;

	while ((bytes + piece - 1) / piece > MAX_PIECES)
		piece *= 2;
	c->n_pending = (uint32_t)((bytes + piece - 1) / piece);
	for (uint32_t i = 0, n = c->n_pending; i < n; i++) {
		uint64_t offset = i * piece, left = bytes - offset;

		c->pieces[i].chunk = c;
		c->pieces[i].op = (struct io_op){.kind = IO_READ,
						 .fd = c->fd,
						 .buffer = c->memory + offset,
						 .bytes = (uint32_t)(left < piece ? left : piece),
						 .offset = offset,
						 .done = on_piece};
		io_submit(c->reading->io, &c->pieces[i].op);
	}
}

static int check_opened(struct chunk *c)
{
	struct error *err = &c->report.error;
	const char *origin = c->order.origin;
	struct access_rights rights;
	struct stat st;
	int r;

	if (fstat(c->fd, &st) < 0)
		return error_errno(err, -errno, "%s: cannot look at it", origin);
	if (!S_ISREG(st.st_mode))
		return error_set(err, -EBADMSG, "%s: is not a regular file", origin);
	r = access_rights_get(c->fd, &st, origin, &rights, err);
	if (r < 0)
		return r;
	if (!access_is_no_stricter(&rights, ACCESS_READ, &c->order.rights))
		return access_stricter_error(err, origin, &rights, ACCESS_READ, &c->order.rights);
	if ((uint64_t)st.st_size != c->order.bytes)
		return error_set(err, -EBADMSG, "%s: has %lld bytes instead of %llu: truncated or replaced",
				 origin, (long long)st.st_size, (unsigned long long)c->order.bytes);
	c->report.stamp = access_stamp(&st);
	c->report.unchanged = c->order.is_known && access_stamp_equal(&c->report.stamp, &c->order.known);
	return 0;
}

static int map_memory(struct chunk *c)
{
	void *memory = mmap(NULL, c->order.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->memory_fd, 0);

	if (memory == MAP_FAILED)
		return error_errno(&c->report.error, -errno, "%s: cannot map memory", c->order.origin);
	c->memory = memory;
	return 0;
}

static void chunk_open(struct chunk *c);

static void on_open(struct io_op *op)
{
	struct chunk *c = ((struct piece *)op)->chunk;
	struct reader_report *report = &c->report;

	/* Some file systems do not know O_DIRECT: the page cache is used then. */
	if (op->result == -EINVAL && !report->buffered) {
		report->buffered = true;
		chunk_open(c);
		return;
	}
	if (op->result < 0) {
		report->result = access_open_error(&report->error, op->result, c->order.origin);
	} else {
		c->fd = op->result;
		report->result = check_opened(c);
	}
	if (report->result == 0 && !report->unchanged)
		report->result = map_memory(c);
	if (report->result < 0 || report->unchanged)
		chunk_report(c);
	else
		chunk_read(c);
}

static void chunk_open(struct chunk *c)
{
	c->open.chunk = c;
	c->open.op = (struct io_op){
	    .kind = IO_OPEN,
	    .fd = c->folder_fd,
	    .path = c->order.name,
	    /* O_NONBLOCK: a pipe in the chunk's place must not hold us up. */
	    .how = access_how((uint64_t)(O_RDONLY | O_NONBLOCK | (c->report.buffered ? 0 : O_DIRECT))),
	    .done = on_open};
	io_submit(c->reading->io, &c->open.op);
}

/* Returns 1 for an order; 0: there is none now; negative: the daemon is gone. */
static int receive_order(int fd, struct chunk *c)
{
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;
	int n = fd_message_receive(fd, &c->order, sizeof(c->order), MSG_DONTWAIT, fds, &n_fds);

	if (n == -EAGAIN)
		return 0;
	if (n != sizeof(c->order) || n_fds != 2)
		return -ECONNRESET;
	c->folder_fd = fds[0];
	c->memory_fd = fds[1];
	return 1;
}

static void on_order(uv_poll_t *poll, int status, int events)
{
	struct reading *r = poll->data;
	struct chunk *c = calloc(1, sizeof(*c));
	int got;

	(void)status;
	(void)events;
	if (!c)
		_exit(1);
	c->fd = -EBADF;
	c->reading = r;
	got = receive_order(r->fd, c);
	if (got < 0)
		_exit(0); /* nobody waits for the reads under way any more */
	if (got == 0) {
		free(c);
		return;
	}
	c->report.id = c->order.id;
	chunk_open(c);
}

int reader_run(int fd, bool use_uring)
{
	struct reading r = {.fd = fd};

	if (uv_loop_init(&r.loop) < 0 || io_new(&r.loop, use_uring, IO_DEPTH, &r.io, NULL) < 0 ||
	    uv_poll_init(&r.loop, &r.poll, fd) < 0)
		return 1;
	r.poll.data = &r;
	uv_poll_start(&r.poll, UV_READABLE, on_order);
	uv_run(&r.loop, UV_RUN_DEFAULT);
	return 0;
}
