/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether reading ahead is worth it. First, what workers do with their time: those that hardly wait for
 * files, or wait for the trainer most of the time, have nothing to gain. Then batches with and without
 * reading ahead in turns, by what a batch takes the whole job: until the difference is clear, or clearly not
 * there. Pure.
 *
 * A batch is written when another was taken by the trainer: of the batches in flight the oldest. So the time
 * from one to the next is known from what is written alone, but for an epoch's last ones.
 */

#include <stdbool.h>
#include <stdint.h>

#define JUDGE_BATCHES 512 /* that are remembered: twice as many as may be in flight */

enum assist_state {
	ASSIST_LOOKS,   /* what do workers wait for? */
	ASSIST_LEARNS,  /* for files; which ones an index opens is learnt, also of a data set that is new */
	ASSIST_TRIES,   /* batches with and without, in turns */
	ASSIST_HELPS,   /* it reads ahead */
	ASSIST_RESTS,   /* nothing to gain, for now */
	ASSIST_STOPPED, /* for good: what the job does is not understood */
	ASSIST_N_STATES,
};

const char *assist_state_name(enum assist_state state);

/* What a worker did from reading one batch's indices to reading the next one's. */
struct worker_time {
	double wall_s;
	double blocked_s; /* of it, asleep between opening files */
	double idle_s;    /* asleep after the last, beyond what a file takes */
};

/* A batch that is written. */
struct batch_written {
	uint64_t at_ns;
	uint32_t number;    /* in its epoch, from 0 */
	uint32_t in_flight; /* the most that there were: written, and not taken by the trainer */
	bool known;         /* its files are */
};

struct judge_mean {
	uint32_t n;
	double sum, squares, least, most;
};

/* So many batches in a row that are treated alike. */
struct judge_turn {
	uint32_t id, n;   /* n: written of it so far */
	uint32_t n_whole; /* turns before it that were not cut short */
};

struct judge_slot {
	uint32_t number, turn, at; /* at: which of its turn's */
	bool valid, ordered;
};

struct judge_ahead {
	enum assist_state state;
	bool observe; /* nothing is tried: after a look it rests */
	uint32_t n_looked;
	double wall_s, blocked_s, idle_s; /* of those looked at */
	struct judge_turn turn;
	struct judge_slot slots[JUDGE_BATCHES]; /* by number */
	struct {
		uint32_t turn, from; /* which is measured, from which of its batches */
		uint64_t from_ns;    /* 0: not yet */
	} measured;
	uint32_t n_cut;                         /* turns in a row of which nothing was measured */
	uint32_t n_unknown;                     /* batches in a row whose files are not known */
	struct judge_mean with, without, since; /* seconds a batch, of turns */
	uint64_t n_read, n_resident;            /* files, when the trial began */
	bool counted;
	uint32_t n_same, n_other; /* predictions that were right and wrong, lately */
	uint32_t n_odd;           /* batches in a row whose files do not match the indices */
	char why[200];
};

/* Returns true if the batch that was just written is to be read ahead. */
bool judge_ahead_written(struct judge_ahead *j, const struct batch_written *b);
void judge_ahead_worker(struct judge_ahead *j, const struct worker_time *t);
/* Files so far that had to be read, and that were in memory already. */
void judge_ahead_files(struct judge_ahead *j, uint64_t n_read, uint64_t n_resident);
/* A known index opened the same files again, or others. */
void judge_ahead_prediction(struct judge_ahead *j, bool same);
/* An index has opened other files in each of too many passes. */
void judge_ahead_no_order(struct judge_ahead *j);
/* A batch of n indices opened that many files, which does or does not fit. */
void judge_ahead_fit(struct judge_ahead *j, bool fits, uint32_t n_files, uint32_t n_indices);
/* After a rest. */
void judge_ahead_again(struct judge_ahead *j);
