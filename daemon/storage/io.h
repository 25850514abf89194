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
	/* Returns 0 or a negative errno, such as -EPERM or -ENOSYS: the engine cannot be used here. */
	int (*open)(uv_loop_t *loop, unsigned depth, struct io **ret);
	void (*submit)(struct io *io, struct io_op *op);
	void (*free)(struct io *io);
};

struct io { /* the first member of each engine */
	const struct io_engine *engine;
	uint64_t in_flight;
};

extern const struct io_engine io_engine_uring, io_engine_threads;

/* Makes an io_uring engine if wanted and possible, else one with threads. Returns 0 or a negative errno. */
int io_new(uv_loop_t *loop, bool want_uring, unsigned depth, struct io **ret);
/* Returns 0, or the negative errno that rules io_uring out. */
int io_uring_check(void);
void io_submit(struct io *io, struct io_op *op);
/* Frees the engine; nothing may be in flight. The loop must run once more. Accepts NULL. */
void io_free(struct io *io);
