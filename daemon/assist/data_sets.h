/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Through which of a job's data sets a DataLoader goes. Indices begin at 0 in each of them, and nothing says
 * which one is meant: training, validation, or one that the job made again. So each pass, an iteration from
 * its batch 0 on, is learnt by itself until a batch of it opens the files of a set that is known. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

#include "file_table.h"

#define DATA_PASSES 8 /* that go on at a time */

struct data_pass {
	uint64_t id;   /* from 1; 0: none */
	uint64_t seen; /* its first batches that were written, a bit each */
	bool begun;    /* a batch is done */
	int set;       /* where it is learnt; -1: nothing was */
	bool settled;  /* set was known before the pass */
	bool is_not[FILE_TABLE_SETS];
};

struct data_sets {
	struct file_table table;
	uint32_t per_sample[FILE_TABLE_SETS]; /* files; 0: there is no such set */
	struct data_pass passes[DATA_PASSES]; /* by id modulo their number */
	uint64_t n_passes;
};

/* A batch whose files are known now: per_sample names for each index, one behind the other. */
struct data_batch {
	const uint32_t *indices;
	uint32_t n, per_sample;
	const char *names;
};

/* A batch is written to a pipe whose last one was `before`, of pass `id`; before < 0: to a new pipe. Returns
 * the batch's pass. */
uint64_t data_sets_written(struct data_sets *s, uint64_t id, int64_t before, uint32_t number);
/* The set by which a pass's batches are foretold, or -1. Before one is done that is the only one that it can
 * be, if there is only one. */
int data_sets_guess(const struct data_sets *s, uint64_t id);
/* In which set a batch is to be learnt, or -ENOSPC: it is of none of those known, and there are too many.
 * *id: its pass, and another one if nothing was heard of that for long. *n_wrong: how many of its samples
 * were foretold as other files, of a set that it turns out not to be. */
int data_sets_settle(struct data_sets *s, uint64_t *id, const struct data_batch *b, uint32_t *n_wrong);
/* Bytes of a sample's names. */
uint32_t data_names_bytes(const char *names, uint32_t per_sample);
