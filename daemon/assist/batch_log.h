/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Follows the batches of one job from records of its pipes and files: learns which files an index opens, and
 * orders the files of the next batches. Records may be missing, and may hold anything. Pure. */

#include "bpf/index_watch.h"
#include "data_sets.h"
#include "indices.h"
#include "judge_ahead.h"

#define BATCH_LOG_PIPES   64
#define BATCH_LOG_PENDING 64        /* maximum number of batches per pipe that are written and not read */
#define BATCH_LOG_NAMES   (1 << 20) /* maximum bytes of names of the files that a batch opens */
#define BATCH_LOG_PER     16        /* maximum files per sample */

struct written_batch {
	uint64_t id; /* 0: none */
	uint64_t pass;
	uint32_t n;
	uint32_t *indices;
	uint8_t head[INDEX_HEAD_BYTES];
	uint32_t head_bytes;
};

struct worker_pipe {
	uint32_t inode;
	uint64_t used_ns;
	uint64_t pass;       /* pass of the batch written last */
	int64_t last_number; /* number of that batch in its epoch; -1: none */
	struct written_batch pending[BATCH_LOG_PENDING];
	uint32_t first, n_pending;
	struct written_batch now; /* the batch that the pipe's worker prepares now */
	char *names;              /* names of files opened for that batch */
	uint32_t n_names, name_bytes, names_allocated;
	bool overflow;
	struct index_record last; /* the worker's last record: it read indices, or opened a file */
	uint64_t begin_ns;
	double blocked_s; /* time blocked between opening files */
};

struct batch_log_handler {
	/* Reads ahead n files of one sample. Their names follow one another, each with its NUL. */
	void (*ahead)(void *user, uint64_t batch, const char *names, uint32_t n);
	/* Ends the batch: its files that are still queued are no longer needed. */
	void (*done)(void *user, uint64_t batch);
	void *user;
};

struct batch_log {
	struct batch_log_handler handler;
	struct judge_ahead judge;
	struct data_sets sets;
	struct worker_pipe pipes[BATCH_LOG_PIPES];
	uint64_t next_id, epoch_id; /* id of the batch that began the epoch */
	uint32_t in_flight,
	    in_flight_before; /* maximum number of batches in flight in this epoch, and in the previous one */
	uint64_t n_batches, n_samples, n_hits, n_misses;
};

void batch_log_record(struct batch_log *log, const struct index_record *r, const void *bytes);
void batch_log_free(struct batch_log *log);
