/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A folder on a local disk where chunks are kept, in a process of its own (fork_server.h) that does all that
 * touches this disk: one that hangs holds up that process and nobody else.
 *
 * The process has slots, each with a buffer for one chunk and, in effect, a thread; a slot does one thing at
 * a time. A chunk goes to the disk in two steps, and comes from there in two:
 *
 *	take   copies memory to the buffer           fetch  reads a file into the buffer
 *	write  writes the buffer to a file           give   copies the buffer to memory
 *
 * So the caller's memory is used only while it is copied, never for as long as the disk takes: whoever no
 * longer wants to wait for a fetch goes elsewhere, and whoever finds that the memory changed while it was
 * taken writes nothing.
 *
 * Files: written without the page cache under another name, which the next start removes, and renamed when
 * whole. Nothing waits for the disk's own cache: what is read is verified by whoever wanted it. Writing and
 * removing come last to the disk. The folder is the daemon's user's and nobody else's, and locked as long as
 * a process uses it.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "lib/error.h"
#include "fork_server.h"

#define STAGER_SLOTS       8
#define STAGER_WRITE_SLOTS 2 /* of these: the first ones, for take, write and remove */
#define STAGER_MAX_BYTES   (UINT64_C(64) << 20)
#define STAGER_NAME_BYTES  256

/* Files are whole blocks, as reads and writes without the page cache have to be. */
#define STAGER_BLOCK_BYTES UINT64_C(4096)
static inline uint64_t stager_file_bytes(uint64_t bytes)
{
	return (bytes + STAGER_BLOCK_BYTES - 1) / STAGER_BLOCK_BYTES * STAGER_BLOCK_BYTES;
}

enum stager_verb {
	STAGER_OPEN, /* the folder: the first order */
	STAGER_TAKE,
	STAGER_WRITE,
	STAGER_FETCH,
	STAGER_GIVE,
	STAGER_REMOVE,
	STAGER_LISTED, /* a report only: a file was there at the start */
};

/* What goes over the socket; with a descriptor of the memory to take or give. */
struct stager_order {
	uint32_t verb, slot;
	uint64_t bytes;
	char name[PATH_MAX];
};

struct stager_report {
	uint32_t verb, slot;
	int32_t result;
	uint64_t bytes;    /* opened: that the disk has left for us */
	int64_t written_s; /* listed: when */
	char name[STAGER_NAME_BYTES];
	struct error error;
};

struct stager_job;
typedef void stager_done(struct stager_job *job, int result, const struct error *err);

/* Something that a slot does. The caller's, until done() or stager_forget(). */
struct stager_job {
	uint32_t slot;
	stager_done *done; /* of the order under way; never called from within the call that gave it */
};

struct stager_handler {
	void (*listed)(void *user, const char *name, uint64_t bytes, int64_t written_s);
	void (*opened)(void *user, uint64_t available_bytes);
	/* An order was carried out, or failed: a slot may be free. */
	void (*changed)(void *user);
	/* The process has ended; err says why, if it said so. All jobs were told. */
	void (*ended)(void *user, const struct error *err);
	void *user;
};

struct stager;

int stager_new(uv_loop_t *loop, const struct fork_server *fork_server, const char *folder,
	       const struct stager_handler *handler, struct stager **ret);
/* Leaves the process to itself, which ends when what it waits for does. No handler is called any more, nor
 * any done(). The loop must run once more. Accepts NULL. */
struct stager *stager_free(struct stager *s);

/* Takes a free slot for the job: one for writes, or one for reads. -EAGAIN: none is free. */
int stager_begin(struct stager *s, bool writes, struct stager_job *job);
/* Gives the job's slot back; no order of it is under way. */
void stager_finish(struct stager *s, struct stager_job *job);
/* The caller no longer waits; done() will not be called. The slot comes free when what it does ends. Not
 * while memory is being taken or given. */
void stager_forget(struct stager *s, struct stager_job *job);

/* Each gives an order to the job's slot. -EAGAIN: not now. name: for write, fetch and remove; memory_fd: for
 * take and give, else negative. */
int stager_order(struct stager *s, struct stager_job *job, enum stager_verb verb, const char *name,
		 uint64_t bytes, int memory_fd, stager_done *done);

/* The helper: serves orders until the end of the socket. Returns its exit status. */
int stager_run(int fd);
