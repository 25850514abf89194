/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files are read into the page cache by threads, in the order in which they were asked for. Only regular
 * files are, so much of each, and so much at a time. The threads may hang for ever; nothing here waits for
 * them, and ending the process is how they end.
 */

#include <stdint.h>

#define AHEAD_THREADS    32
#define AHEAD_FILES      4096           /* that wait */
#define AHEAD_FILE_BYTES (16u << 20)    /* of one file */
#define AHEAD_BYTES      (256ull << 20) /* of batches that are not done */
#define AHEAD_BATCHES    256

struct ahead;

struct ahead_counters {
	uint64_t files, bytes;
	uint64_t resident; /* files that were in the page cache already: not counted above */
	uint64_t failed, left_out;
};

/* null_fd: /dev/null, for writing; lasts as long. */
int ahead_new(int null_fd, struct ahead **ret);
/* The name is copied. What is too much is left out. */
void ahead_add(struct ahead *a, uint64_t batch, const char *name);
/* Leaves out what still waits of this batch. */
void ahead_done(struct ahead *a, uint64_t batch);
struct ahead_counters ahead_count(struct ahead *a);
