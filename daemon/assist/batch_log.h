/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Follows the batches of one job from records of its pipes and files: learns which files an index opens, and
 * orders the files of the next batches. Records may be missing, and may hold anything. Pure. */

#include "assist.h"
#include "bpf/index_watch.h"
#include "data_sets.h"
#include "indices.h"

#include <stdbool.h>
#include <stdint.h>

#define JUDGE_BATCHES 512 /* batches remembered: twice as many as may be in flight */

struct judge_mean {
	uint32_t n;
	double sum, squares, least, most;
};

/* A turn: consecutive batches that are all read ahead, or all not. */
struct judge_turn {
	uint32_t id, n;   /* n: number of batches of the turn written so far */
	uint32_t n_whole; /* number of earlier turns that were not cut short */
};

struct judge_slot {
	uint32_t number, turn, at; /* at: position of the batch in its turn */
	bool valid, ordered;
};

struct judge_ahead {
	enum assist_state state;
	bool observe; /* true: only measures what workers wait for, then rests */
	uint32_t n_looked;
	double wall_s, blocked_s, idle_s; /* sums over the n_looked batches */
	struct judge_turn turn;
	struct judge_slot slots[JUDGE_BATCHES]; /* indexed by number modulo JUDGE_BATCHES */
	struct {
		uint32_t turn, from; /* the turn being measured, and its first measured batch */
		uint64_t from_ns;    /* time of that batch; 0: it has not arrived yet */
	} measured;
	uint32_t n_cut;                         /* number of consecutive turns without a measurement */
	uint32_t n_unknown;                     /* number of consecutive batches with unknown files */
	struct judge_mean with, without, since; /* seconds per batch in turns with and without reading ahead,
						   and since it was found to help */
	uint64_t n_read, n_resident;            /* counts of read and of resident files when counting began */
	bool counted;
	uint32_t n_same, n_other;        /* right and wrong predictions since they were last judged */
	uint64_t rest_ns, rest_until_ns; /* length and end of the rest; until 0: it does not rest */
	uint32_t n_odd; /* number of consecutive batches whose files do not match the indices */
	char why[200];
};

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
	struct assist_figures figures; /* except those of files */
};

void batch_log_record(struct batch_log *log, const struct index_record *r, const void *bytes);
/* Call at least once a second. n_read, n_resident: how many files so far had to be read, and how many were
 * already in memory. */
void batch_log_turn(struct batch_log *log, uint64_t now_ns, uint64_t n_read, uint64_t n_resident);
void batch_log_free(struct batch_log *log);
