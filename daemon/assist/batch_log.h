/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The batches of one job, from records of its pipes and files: what an index opens is learnt, and what comes
 * next is ordered. Records may be missing, and may be anything. Pure.
 */

#include "bpf/index_watch.h"
#include "data_sets.h"
#include "indices.h"
#include "judge_ahead.h"

#define BATCH_LOG_PIPES   64
#define BATCH_LOG_PENDING 64        /* batches written and not read, a pipe */
#define BATCH_LOG_NAMES   (1 << 20) /* bytes of names that a batch opens */
#define BATCH_LOG_PER     16        /* files a sample */

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
	uint64_t pass;       /* of the batch written last, */
	int64_t last_number; /* whose number this is; -1: there is none */
	struct written_batch pending[BATCH_LOG_PENDING];
	uint32_t first, n_pending;
	struct written_batch now; /* what its worker makes */
	char *names;              /* opened for it */
	uint32_t n_names, name_bytes, names_allocated;
	bool overflow;
	struct index_record last; /* of its worker: reading, or opening a file */
	uint64_t begin_ns;
	double blocked_s; /* between opening files */
};

struct batch_log_handler {
	/* n names, one behind the other, of one sample. */
	void (*ahead)(void *user, uint64_t batch, const char *names, uint32_t n);
	/* What is left of the batch is no longer wanted. */
	void (*done)(void *user, uint64_t batch);
	void *user;
};

struct batch_log {
	struct batch_log_handler handler;
	struct judge_ahead judge;
	struct data_sets sets;
	struct worker_pipe pipes[BATCH_LOG_PIPES];
	uint64_t next_id, epoch_id;           /* of the batch that began the epoch */
	uint32_t in_flight, in_flight_before; /* most in this epoch, and in the one before */
	uint64_t n_batches, n_samples, n_hits, n_misses;
};

void batch_log_record(struct batch_log *log, const struct index_record *r, const void *bytes);
void batch_log_free(struct batch_log *log);
