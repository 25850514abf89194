/* SPDX-License-Identifier: Apache-2.0 */
/* The io_uring engine. Completions raise an eventfd that the loop polls. */
#include "io.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

struct uring {
	struct io io;
	struct io_uring ring;
	unsigned depth;
	unsigned in_ring;
	int event_fd;
	uv_poll_t poll;
	struct io_op *waiting, **waiting_tail;
};

static void uring_prepare(struct io_uring_sqe *sqe, struct io_op *op)
{
	switch (op->kind) {
	case IO_OPEN: io_uring_prep_openat2(sqe, op->fd, op->path, &op->how); break;
	case IO_READ: io_uring_prep_read(sqe, op->fd, op->buffer, op->bytes, op->offset); break;
	}
	io_uring_sqe_set_data(sqe, op);
}

/* Moves waiting operations into the ring while it has space. */
static void uring_pump(struct uring *u)
{
	bool any = false;

	while (u->waiting && u->in_ring < u->depth) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
		struct io_op *op = u->waiting;

		if (!sqe)
			break;
		u->waiting = op->next;
		if (!u->waiting)
			u->waiting_tail = &u->waiting;
		uring_prepare(sqe, op);
		u->in_ring++;
		any = true;
	}
	if (any)
		io_uring_submit(&u->ring);
}

static void uring_submit(struct io *io, struct io_op *op)
{
	struct uring *u = (struct uring *)io;

	op->next = NULL;
	*u->waiting_tail = op;
	u->waiting_tail = &op->next;
	uring_pump(u);
}

static void on_completion(uv_poll_t *poll, int status, int events)
{
	struct uring *u = poll->data;
	struct io_uring_cqe *cqe;
	uint64_t count;

	if (read(u->event_fd, &count, sizeof(count)) < 0) {
		/* EAGAIN: woken twice for one event */
	}
	while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
		struct io_op *op = io_uring_cqe_get_data(cqe);

		op->result = cqe->res;
		io_uring_cqe_seen(&u->ring, cqe);
		u->in_ring--;
		u->io.in_flight--;
		op->done(op);
	}
	uring_pump(u);
}

static void on_closed(uv_handle_t *handle)
{
	struct uring *u = handle->data;

	io_uring_queue_exit(&u->ring);
	close(u->event_fd);
	free(u);
}

static void uring_free(struct io *io)
{
	struct uring *u = (struct uring *)io;

	uv_close((uv_handle_t *)&u->poll, on_closed);
}

/* Kernels before 5.6 have the ring but not these operations. */
static bool has_operations(struct io_uring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool ok = probe && io_uring_opcode_supported(probe, IORING_OP_OPENAT2) &&
		  io_uring_opcode_supported(probe, IORING_OP_READ);

	io_uring_free_probe(probe);
	return ok;
}

/* Makes a ring that can only open and read. A system call filter keeps its owner from everything else, but
 * rings bypass that filter (lib/sandbox.h). Before Linux 5.10 rings cannot be limited. */
static int ring_new(unsigned depth, struct io_uring *ring)
{
	int r = io_uring_queue_init(depth, ring, IORING_SETUP_R_DISABLED);

	return r == -EINVAL ? io_uring_queue_init(depth, ring, 0) : r;
}

static int ring_limit(struct io_uring *ring)
{
	struct io_uring_restriction allowed[] = {
	    {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_OPENAT2},
	    {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ}};

	if (!(ring->flags & IORING_SETUP_R_DISABLED))
		return 0;
	/* liburing has functions for this, but some releases lack them. */
	if (syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, allowed,
		    sizeof(allowed) / sizeof(allowed[0])) < 0 ||
	    syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
		return -errno;
	return 0;
}

static int uring_open(uv_loop_t *loop, unsigned depth, struct io **ret)
{
	struct uring *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	u->io.engine = &io_engine_uring;
	u->depth = depth;
	u->waiting_tail = &u->waiting;
	r = ring_new(depth, &u->ring);
	if (r < 0) {
		free(u);
		return r;
	}
	u->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (u->event_fd < 0)
		r = -errno;
	else if (!has_operations(&u->ring))
		r = -ENOSYS;
	else
		r = io_uring_register_eventfd(&u->ring, u->event_fd);
	if (r == 0)
		r = ring_limit(&u->ring);
	if (r == 0)
		r = uv_poll_init(loop, &u->poll, u->event_fd);
	if (r < 0) {
		io_uring_queue_exit(&u->ring);
		if (u->event_fd >= 0)
			close(u->event_fd);
		free(u);
		return r;
	}
	u->poll.data = u;
	uv_poll_start(&u->poll, UV_READABLE, on_completion);
	*ret = &u->io;
	return 0;
}

const struct io_engine io_engine_uring = {
    .name = "io_uring", .open = uring_open, .submit = uring_submit, .free = uring_free};

int io_uring_check(void)
{
	struct io_uring ring;
	int r = io_uring_queue_init(1, &ring, 0);

	if (r < 0)
		return r;
	r = has_operations(&ring) ? 0 : -ENOSYS;
	io_uring_queue_exit(&ring);
	return r;
}
