/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads chunk files, in one process per dataset (fork_server.h). Storage that hangs blocks only that
 * dataset's reader: not the daemon's loop, its workers, its exit, or another dataset. A reader is started
 * with the first chunk, and ends after 10 seconds with nothing to read.
 *
 * The daemon sends an order for a chunk with descriptors of the folder and of the segment's memory. The
 * reader opens and checks the file, reads it with many reads in flight (io.h), writes the data to that
 * memory, and reports. Until it has reported or ended, the memory belongs to the reader, and stays charged to
 * the user who asked. In addition, a reader has READER_OWN_BYTES of buffers. While it reads compressed
 * chunks, it also has the head of each, and memory for one block per process that decompresses.
 *
 * The reader asks the daemon for processes without rights that decompress blocks (unpack.h). Sizes are
 * bounded by those in the chunk's head, whose hash is in the snapshot, and the decompressed data is verified
 * like all data that is read.
 *
 * Forking a reader and allocating its buffers takes time, for which a job's first batch would wait. So the
 * daemon can start a spare reader before it is known which dataset needs it; there is at most one. It holds
 * no user's data, and exits like others if it is not used.
 *
 * A caller that already has the chunk, handed over at a restart (handover.h), sends the stamp that its file
 * had. A file that still has this stamp, and may still be read, is not read again.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/storage/access.h"
#include "lib/error.h"
#include "fork_server.h"

#define READER_NAME_BYTES   48
#define READER_ORIGIN_BYTES 4352 /* size of an origin: a path and the name below it */
#define READER_MAX_ORDERS   4    /* orders per reader at one time: large chunks keep a disk busy */
#define READER_OWN_BYTES    (24u << 20)
#define READER_MAX_RANGES   64
#define READER_LATE_MS      30000

/* A part of a file, in whole pages. */
struct reader_range {
	uint64_t offset, bytes;
};

/* The id of a report by which the reader asks for a process that decompresses. The daemon answers with the
 * same id and that process's socket, or without a descriptor if none can be started. */
#define READER_UNPACKER UINT64_C(0)

/* Message to the reader, with descriptors of the folder and the memory. Before the first one, the daemon
 * sends a bool: use_uring. */
struct reader_order {
	uint64_t id;        /* number from 1 on */
	uint64_t bytes;     /* size of the chunk in memory, which is also its file's size unless compressed */
	uint32_t uid;       /* user for whom the process reads; shown in its title */
	bool is_compressed; /* the file is shorter than `bytes` (dataset/blocks.h) */
	uint32_t payload_offset;     /* compressed chunk: size of its head */
	uint64_t head_xxh3;          /* compressed chunk: hash that its head must have */
	struct access_rights rights; /* the file's rights must not be stricter than these */
	bool only_check;             /* only checks whether the file may be read, whatever its stamp */
	bool is_known; /* the caller already has the contents of a file with the stamp `known` */
	struct access_stamp known;
	uint32_t n_ranges;                             /* 0: the whole chunk is read */
	struct reader_range ranges[READER_MAX_RANGES]; /* ranges to read; elsewhere the memory has holes */
	char name[READER_NAME_BYTES];
	char origin[READER_ORIGIN_BYTES]; /* name of the chunk in messages */
};

struct reader_report {
	uint64_t id;
	int32_t result; /* 0 or a negative errno; -EXDEV: something is mounted over the file */
	bool buffered;  /* the file was opened without O_DIRECT */
	bool unchanged; /* the file still has the stamp `known`, and was not read; false with only_check */
	/* Identity of the file, except that the length is the chunk's length in memory. Copies are stored
	 * under it. */
	struct access_stamp stamp;
	uint64_t read_bytes; /* compressed chunk: bytes read from its file */
	uint64_t cpu_ns;     /* compressed chunk: CPU time of decompression */
	struct error error;
};

/* A chunk to be read. The caller keeps the job allocated until done(), which runs on the loop thread and is
 * never called from within readers_submit(). */
struct reader_job {
	struct reader_order order; /* the module sets id */
	void (*done)(struct reader_job *job);
	int result;
	bool buffered, unchanged;
	uint64_t read_bytes;       /* bytes read; 0: as many as ordered */
	uint64_t cpu_ns;           /* CPU time of decompression, in other processes */
	struct access_stamp stamp; /* identity of the file, from before it was read */
	struct error error;
	/* private to the module */
	struct reader_job *next;
};

struct reader_process;

struct readers {
	uv_loop_t *loop;
	const struct fork_server *fork_server; /* borrowed */
	bool use_uring;
	uint64_t late_ms; /* silence of a reader after which a line is logged; 0: READER_LATE_MS */
	uint32_t n, max;  /* number of existing readers, and its limit */
	struct reader_process *first, *spare;
	void (*on_end)(void *user); /* a reader has ended: another may be started */
	void *user;
};

/* Sends the order to the reader in *slot. If that is NULL, a reader is started for the user uid; *slot
 * becomes NULL again when it has ended. -EAGAIN: not now (on_end() reports when). */
int readers_submit(struct readers *r, struct reader_process **slot, uint32_t uid, struct reader_job *job,
		   int folder_fd, int memory_fd);
/* Starts the spare reader, ahead of a read. Does nothing if there already is one, or at the limit. */
void readers_prepare(struct readers *r);
/* Returns true if another reader is available: a spare one, or one below the limit. */
bool readers_have_space(const struct readers *r);
/* Lets the reader of this slot end; afterwards the slot may be freed. */
void reader_let_go(struct reader_process **slot);
/* Returns the number of readers started for this user. */
uint32_t readers_of(const struct readers *r, uint32_t uid);
/* Abandons all readers: done() will not be called. The loop must run once more. */
void readers_close(struct readers *r);

/* Runs the helper, which serves orders until the end of the socket. Returns its exit status. */
int reader_run(int fd);
