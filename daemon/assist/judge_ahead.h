/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Judges whether reading ahead pays off. First it checks how workers spend their time: workers that hardly
 * wait for files, or mostly wait for the trainer, have nothing to gain. Then it alternates turns of batches
 * with and without reading ahead, and compares the job's time per batch, until the difference is clear, or
 * clearly absent. Pure.
 *
 * A batch is written when the trainer has taken another one, the oldest of those in flight. So the times when
 * batches are written show how long the trainer took for each, except at the end of an epoch.
 */

#include <stdbool.h>
#include <stdint.h>

#define JUDGE_BATCHES 512 /* batches remembered: twice as many as may be in flight */

enum assist_state {
	ASSIST_LOOKS,  /* measures what workers wait for */
	ASSIST_LEARNS, /* workers wait for files: learns which files an index opens, also in a new data set */
	ASSIST_TRIES,  /* measures turns of batches with and without reading ahead */
	ASSIST_HELPS,  /* reading ahead helps, and continues */
	ASSIST_RESTS,  /* nothing to gain, for now */
	ASSIST_STOPPED, /* final state: the job does not open files as this module assumes */
	ASSIST_N_STATES,
};

const char *assist_state_name(enum assist_state state);

/* A worker's time from reading one batch's indices to reading the next one's. */
struct worker_time {
	double wall_s;
	double blocked_s; /* part of wall_s: asleep between opening files */
	double idle_s;    /* part of wall_s: asleep after the last file, beyond the time to read a file */
};

/* A batch that the trainer's process has written to a worker. */
struct batch_written {
	uint64_t at_ns;
	uint32_t number;    /* number in its epoch, from 0 */
	uint32_t in_flight; /* largest number so far of batches that were written and not yet taken by the
			       trainer */
	bool known;         /* the files of the batch are known */
};

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
	uint32_t n_same, n_other; /* right and wrong predictions since they were last judged */
	uint32_t n_odd;           /* number of consecutive batches whose files do not match the indices */
	char why[200];
};

/* Returns true if the batch that was just written should be read ahead. */
bool judge_ahead_written(struct judge_ahead *j, const struct batch_written *b);
void judge_ahead_worker(struct judge_ahead *j, const struct worker_time *t);
/* Records how many files so far had to be read, and how many were already in memory. */
void judge_ahead_files(struct judge_ahead *j, uint64_t n_read, uint64_t n_resident);
/* Records whether a known index opened the same files again. */
void judge_ahead_prediction(struct judge_ahead *j, bool same);
/* Stops for good, because in too many passes an index opened other files than before. */
void judge_ahead_no_order(struct judge_ahead *j);
/* Records how many files a batch of n_indices opened. fits: each sample opened the same number. */
void judge_ahead_fit(struct judge_ahead *j, bool fits, uint32_t n_files, uint32_t n_indices);
/* Ends a rest: measures again what workers wait for. */
void judge_ahead_again(struct judge_ahead *j);
