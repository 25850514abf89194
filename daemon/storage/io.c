/* SPDX-License-Identifier: Apache-2.0 */
#include "io.h"

int io_new(uv_loop_t *loop, bool want_uring, unsigned depth, struct io **ret, int *ret_why)
{
	int why = 0;

	if (want_uring) {
		why = io_uring_new(loop, depth, ret);
		if (why == 0)
			return 0;
	}
	if (ret_why)
		*ret_why = why;
	return io_threads_new(loop, depth, ret);
}

void io_submit(struct io *io, struct io_op *op)
{
	io->in_flight++;
	io->engine->submit(io, op);
}

void io_free(struct io *io)
{
	if (io)
		io->engine->free(io);
}
