/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Opens and reads chunk files, `depth` operations at a time: by io_uring where the kernel permits it
 * (io_uring.c), else by a few threads (io_threads.c).
 *
 * An operation is the caller's memory and must live until done(), which runs on the loop's thread, never
 * from within io_submit().
 */

#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct io;

enum io_kind {
	IO_OPEN, /* openat2(dir_fd, path, how) -> descriptor */
	IO_READ, /* pread(fd, buffer, bytes, offset) -> bytes read, maybe fewer */
};

struct io_op {
	enum io_kind kind;
	int fd; /* the file; for IO_OPEN its directory */
	const char *path;
	struct open_how how;
	void *buffer;
	uint32_t bytes;
	uint64_t offset;
	int result; /* result, or a negative errno */
	void (*done)(struct io_op *op);
	struct io_op *next;
};

struct io_engine {
	const char *name;
	void (*submit)(struct io *io, struct io_op *op);
	void (*free)(struct io *io);
};

struct io { /* the first member of each engine */
	const struct io_engine *engine;
	uint64_t in_flight;
};

/* Makes an io_uring engine. Returns 0, or -EPERM, -ENOSYS, -ENOMEM...: io_uring cannot be used here. */
int io_uring_new(uv_loop_t *loop, unsigned depth, struct io **ret);
int io_threads_new(uv_loop_t *loop, unsigned depth, struct io **ret);

/* Makes an io_uring engine if wanted and possible, else one with threads. With threads, *ret_why (may be
 * NULL) is the errno that ruled io_uring out, or 0 if it was not wanted. */
int io_new(uv_loop_t *loop, bool want_uring, unsigned depth, struct io **ret, int *ret_why);
/* Returns 0, or the negative errno that rules io_uring out. */
int io_uring_check(void);
void io_submit(struct io *io, struct io_op *op);
/* Frees the engine; nothing may be in flight. The loop must run once more. Accepts NULL. */
void io_free(struct io *io);
