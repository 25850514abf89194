/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decompresses blocks of chunks (dataset/blocks.h) in sandboxed processes (sandboxed/fork_server.h). The
 * blocks are bytes that users bring, libzstd is large, and the reader (reader.h) has the right to read
 * everybody's files. So the reader gives runs of blocks to processes that can only compute, see what it has
 * read of this dataset, and write to an output buffer of their own (lib/sandbox.h). Their output is trusted
 * no more than storage is: the reader copies it out of the buffer, and the daemon verifies the chunk.
 *
 * A process does one run at a time, for one thread of the reader, which waits for it. If a process ends, it
 * is replaced and the run is tried once more. If a run takes too long, its process is ended and the chunk
 * fails; so does a chunk whose run ended two processes. The daemon starts processes when the reader asks for
 * them; they end with the reader.
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/blocks.h"

/* Maximum output of a run, in bytes and in blocks. */
#define UNPACK_SPACE_BYTES CHUNK_BLOCK_MAX_BYTES
#define UNPACK_MAX_BLOCKS  (CHUNK_BLOCK_MAX_BYTES / CHUNK_BLOCK_MIN_BYTES)

/* Consecutive blocks; their output is consecutive too. */
struct unpack_run {
	uint64_t offset; /* start in the memory that the processes may read */
	uint32_t n;
	uint32_t stored[UNPACK_MAX_BLOCKS], plain[UNPACK_MAX_BLOCKS];
};

struct unpackers;
struct unpacker;

/* memory_fd: memory of the fixed size memory_bytes, for reading only; borrowed. n_threads: threads that call
 * unpackers_run(). cpu_limit_ns: CPU time limit of a run. ask(): asks the daemon to start a process; the
 * process's socket must be passed to unpackers_add(), or -EBADF if it cannot be started. ask() is called on
 * any thread. */
struct unpackers_options {
	int memory_fd;
	uint64_t memory_bytes;
	uint32_t n_threads;
	uint64_t cpu_limit_ns;
	void (*ask)(void *user);
	void *user;
};

/* Creates the unpackers of a reader. 0 or -ENOMEM. */
int unpackers_new(const struct unpackers_options *options, struct unpackers **ret);
void unpackers_add(struct unpackers *us, int fd);
/* No thread may be in unpackers_run(). Accepts NULL. */
void unpackers_free(struct unpackers *us);

/* Decompresses a run. *k is NULL at first; the caller keeps it for its next run, and returns it in the
 * end. *ret_plain is valid until then, but the process can still write to it. CPU time is added to
 * *cpu_ns. Any thread; blocks. -EBADMSG: a block is damaged, takes too long, or crashes the processes that
 * decompress it; -ETIMEDOUT: no answer, although no CPU time is used; -EAGAIN: no process; -ENOMEM. */
int unpackers_run(struct unpackers *us, struct unpacker **k, const struct unpack_run *run,
		  const uint8_t **ret_plain, uint64_t *cpu_ns);
void unpackers_give_back(struct unpackers *us, struct unpacker *k); /* accepts NULL */

/* Main function of the helper: serves runs until the end of the socket. Returns its exit status. */
int unpack_serve(int fd);
