/* SPDX-License-Identifier: Apache-2.0 */
#include "io.h"

int io_new(uv_loop_t *loop, bool want_uring, unsigned depth, struct io **ret)
{
	if (want_uring && io_engine_uring.open(loop, depth, ret) == 0)
		return 0;
	return io_engine_threads.open(loop, depth, ret);
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
