/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether reading ahead is worth it, by what batches took their workers: first, whether these wait at all;
 * then batches with and without reading ahead in turns, until the difference is clear. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

enum assist_state {
	ASSIST_LOOKS,   /* do workers wait for files? */
	ASSIST_LEARNS,  /* they do; which files an index opens is learnt */
	ASSIST_TRIES,   /* batches with and without, in turns */
	ASSIST_HELPS,   /* it reads ahead */
	ASSIST_RESTS,   /* nothing to gain, for now */
	ASSIST_STOPPED, /* for good: what the job does is not understood */
	ASSIST_N_STATES,
};

const char *assist_state_name(enum assist_state state);

/* A batch, from the worker's reading its indices to its opening the last file, per file but the last. */
struct batch_time {
	double wall_s, blocked_s;
	bool known;   /* all its files were known when its indices were written */
	bool ordered; /* and were read ahead */
};

struct judge_mean {
	uint32_t n;
	double sum, squares;
};

struct judge_ahead {
	enum assist_state state;
	uint32_t n_looked, n_turns;
	double wall_s, blocked_s; /* of those looked at */
	struct judge_mean with, without, since;
	uint32_t n_same, n_other; /* predictions that were right and wrong, lately */
	uint32_t n_odd;           /* batches in a row whose files do not match the indices */
	char why[200];
};

/* Returns true if the batch whose indices were just written is to be read ahead. */
bool judge_ahead_order(struct judge_ahead *j, bool known);
void judge_ahead_batch(struct judge_ahead *j, const struct batch_time *t);
/* A known index opened the same files again, or others. */
void judge_ahead_prediction(struct judge_ahead *j, bool same);
/* A batch of n indices opened that many files, which does or does not fit. */
void judge_ahead_fit(struct judge_ahead *j, bool fits, uint32_t n_files, uint32_t n_indices);
/* After a rest. */
void judge_ahead_again(struct judge_ahead *j);
