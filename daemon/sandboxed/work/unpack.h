/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Making blocks of compressed chunks plain (dataset/blocks.h), in processes of their own
 * (sandboxed/fork_server.h). They are bytes that users bring, libzstd is large, and the reader (reader.h) has
 * the right to read everybody's files: so it gives runs of blocks to processes that can compute, see what it
 * has read of this dataset, and write into a space that each has for itself, and nothing else
 * (lib/sandbox.h). What they make is believed as little as storage is: the reader copies it on from the
 * space, and the daemon verifies the chunk.
 *
 * A process does one run at a time, for one thread of the reader, which waits for it. One that ends is
 * replaced, and the run tried once more; one that takes too long is ended: either costs the run's chunk.
 * Processes are had from the daemon, as the reader asks for them, and end with the reader.
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/blocks.h"

/* What comes out of a run, and of how many blocks, at most. */
#define UNPACK_SPACE_BYTES CHUNK_BLOCK_MAX_BYTES
#define UNPACK_MAX_BLOCKS  (CHUNK_BLOCK_MAX_BYTES / CHUNK_BLOCK_MIN_BYTES)

/* Blocks that lie one behind the other, and come out so. */
struct unpack_run {
	uint64_t offset; /* in the memory that the processes may read */
	uint32_t n;
	uint32_t stored[UNPACK_MAX_BLOCKS], plain[UNPACK_MAX_BLOCKS];
};

struct unpackers;
struct unpacker;

/* For so many threads. memory_fd: for reading only, of so many bytes, of a fixed size; borrowed. ask() has
 * the daemon start a process, whose socket comes to unpackers_add(), or -EBADF if it cannot be had. It is
 * called by any thread. cpu_limit_ns: of a run, in CPU time. -ENOMEM. */
struct unpackers_options {
	int memory_fd;
	uint64_t memory_bytes;
	uint32_t n_threads;
	uint64_t cpu_limit_ns;
	void (*ask)(void *user);
	void *user;
};

int unpackers_new(const struct unpackers_options *options, struct unpackers **ret);
void unpackers_add(struct unpackers *us, int fd);
/* No thread may be at work. Accepts NULL. */
void unpackers_free(struct unpackers *us);

/* Begins with *k NULL; the caller keeps what it becomes for its next run, and gives it back at last.
 * *ret_plain is valid until then; the process can still write to it. CPU time is added to *cpu_ns. Any
 * thread; waits. -EBADMSG: a block is damaged, or takes too long, or ends the processes that are to make it
 * plain; -ETIMEDOUT: nothing comes, and no CPU time is used; -EAGAIN: there is no process; -ENOMEM. */
int unpackers_run(struct unpackers *us, struct unpacker **k, const struct unpack_run *run,
		  const uint8_t **ret_plain, uint64_t *cpu_ns);
void unpackers_give_back(struct unpackers *us, struct unpacker *k); /* accepts NULL */

/* The helper: serves until the end of the socket. Returns its exit status. */
int unpack_serve(int fd);
