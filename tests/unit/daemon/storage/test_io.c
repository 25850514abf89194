/* SPDX-License-Identifier: Apache-2.0 */
/* Tests both engines through the same calls. */
#include "tests/support_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/storage/io.h"

#define FILE_BYTES (1u << 20)
#define PIECE      (64u << 10)
#define N_PIECES   (FILE_BYTES / PIECE)

static uint32_t n_done;

static void on_done(struct io_op *op)
{
	n_done++;
}

static void finish(uv_loop_t *loop, struct io *io, struct io_op *ops, uint32_t n)
{
	n_done = 0;
	for (uint32_t i = 0; i < n; i++) {
		ops[i].done = on_done;
		io_submit(io, &ops[i]);
	}
	assert_int_equal(n_done, 0); /* completion never happens within the submission */
	loop_until_count(loop, &n_done, n);
	assert_int_equal(io->in_flight, 0);
}

static void make_file(char *path, uint8_t *content)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	for (uint32_t i = 0; i < FILE_BYTES; i++)
		content[i] = (uint8_t)(i * 7 + i / 1000);
	assert_int_equal(write(fd, content, FILE_BYTES), FILE_BYTES);
	close(fd);
}

static void test_engine(bool uring)
{
	static uint8_t content[FILE_BYTES], buffer[FILE_BYTES];
	char path[] = "/tmp/diesel-io-XXXXXX";
	struct io_op open_op = {
	    .kind = IO_OPEN, .fd = AT_FDCWD, .path = path, .how = {.flags = O_RDONLY | O_CLOEXEC}};
	struct io_op missing = {
	    .kind = IO_OPEN, .fd = AT_FDCWD, .path = "/nonexistent/x", .how = {.flags = O_RDONLY}};
	struct io_op reads[N_PIECES + 1];
	uv_loop_t loop;
	struct io *io;

	assert_int_equal(uv_loop_init(&loop), 0);
	/* Fewer reads are in flight than submitted, and the rest waits inside. */
	int r = (uring ? io_engine_uring : io_engine_threads).open(&loop, 4, &io);
	if (uring && r < 0) {
		print_message("io_uring is not available here: %s\n", strerror(-r));
		uv_loop_close(&loop);
		skip();
	}
	assert_int_equal(r, 0);
	assert_string_equal(io->engine->name, uring ? "io_uring" : "threads");
	make_file(path, content);
	finish(&loop, io, &missing, 1);
	assert_int_equal(missing.result, -ENOENT);
	finish(&loop, io, &open_op, 1);
	assert_true(open_op.result >= 0);
	memset(buffer, 0, sizeof(buffer));
	for (uint32_t i = 0; i < N_PIECES; i++)
		reads[i] = (struct io_op){.kind = IO_READ,
					  .fd = open_op.result,
					  .buffer = buffer + i * PIECE,
					  .bytes = PIECE,
					  .offset = i * PIECE};
	/* A read at the end of the file gives nothing. */
	reads[N_PIECES] = (struct io_op){
	    .kind = IO_READ, .fd = open_op.result, .buffer = &r, .bytes = 4, .offset = FILE_BYTES};
	finish(&loop, io, reads, N_PIECES + 1);
	for (uint32_t i = 0; i < N_PIECES; i++)
		assert_int_equal(reads[i].result, PIECE);
	assert_int_equal(reads[N_PIECES].result, 0);
	assert_memory_equal(buffer, content, FILE_BYTES);
	close(open_op.result);
	unlink(path);
	io_free(io);
	loop_end(&loop);
}

TEST(io_uring_reads_and_writes)
{
	test_engine(true);
}

TEST(threads_read_and_write)
{
	test_engine(false);
}

TEST(threads_are_used_where_io_uring_is_not_wanted)
{
	uv_loop_t loop;
	struct io *io;

	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(io_new(&loop, false, 4, &io), 0);
	assert_string_equal(io->engine->name, "threads");
	io_free(io);
	loop_end(&loop);
}
