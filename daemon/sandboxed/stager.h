/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Stores chunks in a folder on a local disk. All access to this disk is in a separate process
 * (fork_server.h), so a disk that hangs blocks only that process.
 *
 * The process has slots, each with a buffer for one chunk and, in effect, a thread; a slot does one thing at
 * a time. Storing a chunk takes two steps, and so does loading one:
 *
 *	take   copies memory to the buffer           fetch  reads a file into the buffer
 *	write  writes the buffer to a file           give   copies the buffer to memory
 *
 * So the caller's memory is used only while it is copied, never for as long as the disk takes. A caller that
 * stops waiting for a fetch can read elsewhere, and a caller whose memory changed during the copy can skip
 * the write.
 *
 * A file is written without the page cache under a temporary name, and renamed when it is complete. The next
 * start removes files that are left under temporary names. Writes are not flushed (no fsync): callers verify
 * what they read. Writes and removals have the lowest I/O priority. The folder belongs to the daemon's user,
 * no other user may use it, and it is locked as long as a process uses it.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "lib/error.h"
#include "fork_server.h"

#define STAGER_SLOTS       8
#define STAGER_WRITE_SLOTS 2 /* number of slots for take, write and remove: the first ones */
#define STAGER_MAX_BYTES   (UINT64_C(64) << 20)
#define STAGER_NAME_BYTES  256

/* File sizes are multiples of this, as reads and writes without the page cache require. */
#define STAGER_BLOCK_BYTES UINT64_C(4096)
static inline uint64_t stager_file_bytes(uint64_t bytes)
{
	return (bytes + STAGER_BLOCK_BYTES - 1) / STAGER_BLOCK_BYTES * STAGER_BLOCK_BYTES;
}

enum stager_verb {
	STAGER_OPEN, /* opens the folder: the first order */
	STAGER_TAKE,
	STAGER_WRITE,
	STAGER_FETCH,
	STAGER_GIVE,
	STAGER_REMOVE,
	STAGER_LISTED, /* a report only: a file was there at the start */
};

/* Message to the process. TAKE and GIVE carry a descriptor of the memory. */
struct stager_order {
	uint32_t verb, slot;
	uint64_t bytes;
	char name[PATH_MAX];
};

struct stager_report {
	uint32_t verb, slot;
	int32_t result;
	uint64_t bytes;    /* opened: space on the disk that is left for us */
	int64_t written_s; /* listed: time when the file was written */
	char name[STAGER_NAME_BYTES];
	struct error error;
};

struct stager_job;
typedef void stager_done(struct stager_job *job, int result, const struct error *err);

/* A job that occupies a slot. The caller owns it and keeps it until done() or stager_forget(). */
struct stager_job {
	uint32_t slot;
	stager_done *done; /* callback of the order in progress; never called before stager_order() returns */
};

struct stager_handler {
	void (*listed)(void *user, const char *name, uint64_t bytes, int64_t written_s);
	void (*opened)(void *user, uint64_t available_bytes);
	/* An order was completed or failed: a slot may be free. */
	void (*changed)(void *user);
	/* The process has ended; err says why, if the process reported a reason. All done() have been
	 * called. */
	void (*ended)(void *user, const struct error *err);
	void *user;
};

struct stager;

int stager_new(uv_loop_t *loop, const struct fork_server *fork_server, const char *folder,
	       const struct stager_handler *handler, struct stager **ret);
/* Abandons the process, which ends as soon as it is no longer blocked. No handler and no done() is called any
 * more. The loop must run once more. Accepts NULL. Returns NULL. */
struct stager *stager_free(struct stager *s);

/* Takes a free slot for the job, one for writes or one for reads. -EAGAIN: no slot is free. */
int stager_begin(struct stager *s, bool writes, struct stager_job *job);
/* Releases the job's slot. The job must have no order in progress. */
void stager_finish(struct stager *s, struct stager_job *job);
/* Stops waiting for the job's order: done() will not be called. The slot becomes free when the order ends.
 * Must not be called during a take or give. */
void stager_forget(struct stager *s, struct stager_job *job);

/* Sends an order to the job's slot. name is only for write, fetch and remove; memory_fd only for take and
 * give, else negative. -EAGAIN: try again later. */
int stager_order(struct stager *s, struct stager_job *job, enum stager_verb verb, const char *name,
		 uint64_t bytes, int memory_fd, stager_done *done);

/* Runs the helper, which serves orders until the end of the socket. Returns its exit status. */
int stager_run(int fd);
