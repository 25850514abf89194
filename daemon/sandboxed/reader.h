/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reading chunk files, in a process for each dataset (fork_server.h). Storage that hangs holds up that
 * dataset's reader and nobody else: not the daemon's loop, its workers, its end, or another dataset. A reader
 * is started with the first chunk, and ends after some seconds with nothing to read.
 *
 * The daemon sends an order for a chunk with descriptors of the folder and of the segment's memory; the
 * reader opens and checks the file, reads it with many reads in flight (io.h), writes what came to that
 * memory, and reports. Until it has reported or ended, the memory belongs to it: it stays counted for the
 * user who asked. A reader has READER_OWN_BYTES of buffers beside that, and, while it reads compressed
 * chunks, the head of each and a space of a block for each process that decompresses.
 *
 * Compressed chunks are made plain by processes of the reader's that have no rights (unpack.h), for which it
 * asks the daemon. Sizes are bounded by those in the chunk's head, which the snapshot vouches for, and what
 * comes out is verified like all that is read.
 *
 * Forking one and getting memory for its buffers takes time, for which a job's first batch would wait. So one
 * can be started before it is known who reads with it: the spare one, of which there is at most one. It has
 * nothing of anybody's, and ends like others if nobody wants it.
 *
 * A caller that has the chunk already, carried over a restart (handover.h), sends the stamp that its file
 * had: a file that still has this stamp, and may still be read, is not read again.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/storage/access.h"
#include "lib/error.h"
#include "fork_server.h"

#define READER_NAME_BYTES   48
#define READER_ORIGIN_BYTES 4352 /* a path and the name below it */
#define READER_MAX_ORDERS   4    /* of a reader at one time: large chunks keep a disk busy */
#define READER_OWN_BYTES    (24u << 20)
#define READER_MAX_RANGES   64
#define READER_LATE_MS      30000

/* A part of a file, in whole pages. */
struct reader_range {
	uint64_t offset, bytes;
};

/* Instead of a number: the reader wants a process that decompresses; the daemon sends its socket, or no
 * descriptor where none can be had. */
#define READER_UNPACKER UINT64_C(0)

/* What goes over the socket, behind a bool, use_uring; with descriptors of the folder and the memory. */
struct reader_order {
	uint64_t id;                 /* from 1 on */
	uint64_t bytes;              /* of the chunk in memory, and of its file, if that is not compressed */
	uint32_t uid;                /* for whom: the process says so in its title */
	bool is_compressed;          /* then the file is shorter (dataset/blocks.h) */
	uint32_t payload_offset;     /* of a compressed chunk: */
	uint64_t head_xxh3;          /* that its head must have */
	struct access_rights rights; /* that the file must not be stricter than */
	bool only_check;             /* it is not read, whatever its stamp: may it be? */
	bool is_known;               /* the caller already has what a file with the stamp `known` holds */
	struct access_stamp known;
	uint32_t n_ranges;                             /* 0: all of it is read */
	struct reader_range ranges[READER_MAX_RANGES]; /* what is read; elsewhere the memory has holes */
	char name[READER_NAME_BYTES];
	char origin[READER_ORIGIN_BYTES]; /* for texts */
};

struct reader_report {
	uint64_t id;
	int32_t result; /* 0 or a negative errno; -EXDEV: something is mounted over the file */
	bool buffered;  /* it was opened without O_DIRECT */
	bool unchanged; /* the file has the stamp `known`, and was not read; always false with only_check */
	/* Of the file, but for its length, which is that of the chunk in memory: as which its copies are
	 * kept. */
	struct access_stamp stamp;
	uint64_t read_bytes; /* of a compressed chunk: what was read of its file */
	uint64_t cpu_ns;     /* the same: that decompressing it took */
	struct error error;
};

/* A chunk to be read. The caller keeps its memory until done(), which runs on the loop's thread and never
 * from within readers_submit(). */
struct reader_job {
	struct reader_order order; /* id is the module's */
	void (*done)(struct reader_job *job);
	int result;
	bool buffered, unchanged;
	uint64_t read_bytes;       /* 0: as many as were ordered */
	uint64_t cpu_ns;           /* that decompressing took, in other processes */
	struct access_stamp stamp; /* of the file, from before it was read */
	struct error error;
	/* the module's */
	struct reader_job *next;
};

struct reader_process;

struct readers {
	uv_loop_t *loop;
	const struct fork_server *fork_server; /* borrowed */
	bool use_uring;
	uint64_t
	    late_ms; /* a line is logged of a reader that reports nothing for so long; 0: READER_LATE_MS */
	uint32_t n, max; /* readers that live */
	struct reader_process *first, *spare;
	void (*on_end)(void *user); /* a reader has ended: there is space for another */
	void *user;
};

/* Sends the order to the reader in *slot. If that is NULL, a reader is started for the user uid; *slot
 * becomes NULL again when it has ended. -EAGAIN: not now (on_end() tells when). */
int readers_submit(struct readers *r, struct reader_process **slot, uint32_t uid, struct reader_job *job,
		   int folder_fd, int memory_fd);
/* Starts the spare reader, unless there is one or there is no space for it: somebody is about to read. */
void readers_prepare(struct readers *r);
/* Returns true if one more may be had. */
bool readers_have_space(const struct readers *r);
/* Lets the reader of this slot end; afterwards the slot may go. */
void reader_let_go(struct reader_process **slot);
/* How many of the readers were started for this user. */
uint32_t readers_of(const struct readers *r, uint32_t uid);
/* Leaves all readers to themselves: no done() is called any more. The loop must run once more. */
void readers_close(struct readers *r);

/* The helper: serves orders until the end of the socket. Returns its exit status. */
int reader_run(int fd);
