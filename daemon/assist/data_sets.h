/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds out which of a job's data sets a DataLoader iterates over. Indices begin at 0 in each data set, and
 * nothing identifies the data set: training, validation, or one that the job made again. So each pass (one
 * iteration, from batch 0 on) is learnt as a new set until one of its batches opens the files of a known set.
 * Its memory is bounded, whatever the input. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

#define DATA_SETS     4
#define DATA_INDICES  (1u << 24)                  /* maximum index + 1 of one set */
#define DATA_ALL_SETS (DATA_INDICES + (1u << 22)) /* maximum number of indices of all sets */
#define DATA_BYTES    (64u << 20)                 /* maximum bytes of names of all sets */

struct data_set {
	uint32_t per_sample; /* files per sample; 0: no such set */
	uint32_t *at;        /* offset of an index's names in data_sets.names, plus 1; 0: unknown */
	uint32_t n_at;
	uint32_t n; /* indices known */
};

#define DATA_PASSES 8 /* maximum number of concurrent passes */

struct data_pass {
	uint64_t id;   /* ids start at 1; 0: none */
	uint64_t seen; /* bit i: a batch with number i modulo 64 was written */
	bool begun;    /* at least one batch of the pass is done */
	int set;       /* set in which the pass is learnt; -1: nothing learnt yet */
	bool settled;  /* the set was known before the pass */
	bool is_not[DATA_SETS];
};

struct data_sets {
	struct data_set sets[DATA_SETS];
	char *names; /* each with its NUL */
	uint32_t used, allocated;
	uint32_t n_known;                     /* indices known, of all sets */
	struct data_pass passes[DATA_PASSES]; /* indexed by id modulo DATA_PASSES */
	uint64_t n_passes;
};

/* A batch that is done, so its files are known: per_sample names for each index, one after another. */
struct data_batch {
	const uint32_t *indices;
	uint32_t n, per_sample;
	const char *names;
};

/* Takes a batch that is written to a pipe. before, id: number and pass of the pipe's last batch; before < 0:
 * the pipe is new. Returns the batch's pass. */
uint64_t data_sets_written(struct data_sets *s, uint64_t id, int64_t before, uint32_t number);
/* Returns the set that predicts the files of a pass, or -1. Before a batch of the pass is done, that is the
 * only set that it can be, if there is only one. */
int data_sets_guess(const struct data_sets *s, uint64_t id);
/* Returns the set in which to learn a batch, or -ENOSPC: it belongs to no known set, and there are too
 * many. *id: the batch's pass; replaced by a new pass if that one was forgotten. *n_wrong: number of its
 * samples whose files were predicted wrongly, from the wrong data set. */
int data_sets_settle(struct data_sets *s, uint64_t *id, const struct data_batch *b, uint32_t *n_wrong);

enum data_learnt {
	DATA_NEW,
	DATA_SAME,
	DATA_OTHER, /* the index is known to open other files */
};

/* Learns the names of a sample, which are at *names, unless the index is already known. Advances *names to
 * the next sample. Returns an enum data_learnt, or -ERANGE: no space. */
int data_sets_learn(struct data_sets *s, int set, uint32_t index, const char **names);
/* Returns the index's first name, or NULL. */
const char *data_sets_find(const struct data_sets *s, int set, uint32_t index);
void data_sets_free(struct data_sets *s);
