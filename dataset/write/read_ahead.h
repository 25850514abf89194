/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads the files of a source ahead of the caller with several threads, and returns them in the requested
 * order. Files that were read and not yet released stay within a byte budget, which a single file may exceed.
 *
 * Thread-safety: one thread calls; the threads that read are the module's own.
 */

#include "dataset/pack.h"
#include "source.h"

struct read_ahead;

struct read_item {
	const struct source_file *file;
	int result; /* 0, or why the file could not be read: -ESTALE when it changed while it was read */
	unsigned char *data;
	size_t bytes;
	size_t source_bytes; /* length of the file if it was passed to `rewrite`, else 0 */
	int rewritten;       /* result of `rewrite` */
	struct error note;   /* of `rewrite`; of a sample that cannot be read, why */
	uint32_t mode;
	uint64_t mtime_ns;
};

struct read_ahead_options {
	unsigned n_threads;
	uint64_t budget_bytes;
	uint64_t max_bytes;     /* a file longer than this is not read; its result is -EFBIG */
	pack_rewriter *rewrite; /* NULL: none. The budget counts files with their original length */
};

/* Starts the threads. source and order, which lists n file numbers, are borrowed. 0 or -errno. */
int read_ahead_new(const struct pack_source *source, const uint64_t *order, size_t n,
		   const struct read_ahead_options *options, struct read_ahead **ret);
void read_ahead_free(struct read_ahead *ra);

/* Waits for the next file. Call it at most n times. The data is valid until the next call. */
struct read_item read_ahead_next(struct read_ahead *ra);
