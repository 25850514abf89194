/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads files into the page cache by threads, in the order in which they were asked for. Reads only regular
 * files, with a limit per file and a total limit. A thread may hang for ever on a file; nothing here waits
 * for the threads, and they end only with the process.
 */

#include <stdint.h>

#define AHEAD_THREADS    32
#define AHEAD_FILES      4096           /* maximum number of files that wait */
#define AHEAD_FILE_BYTES (16u << 20)    /* maximum number of bytes read of one file */
#define AHEAD_BYTES      (256ull << 20) /* maximum number of bytes read for batches that are not done */
#define AHEAD_BATCHES    256

struct ahead;

struct ahead_counters {
	uint64_t files, bytes;
	uint64_t resident; /* files that were already in the page cache; not included in files and bytes */
	uint64_t failed, left_out;
};

/* Creates a reader. null_fd: /dev/null, open for writing, must outlive the reader. -ENOMEM. */
int ahead_new(int null_fd, struct ahead **ret);
/* Queues a file of a batch; copies the name. Files beyond the limits are left out. */
void ahead_add(struct ahead *a, uint64_t batch, const char *name);
/* Ends a batch: its files that still wait are left out. */
void ahead_done(struct ahead *a, uint64_t batch);
struct ahead_counters ahead_count(struct ahead *a);
