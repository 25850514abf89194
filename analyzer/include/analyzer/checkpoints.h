/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checkpoints in the window, one by one, and how often to make them.
 *
 * A checkpoint is all large writes between two backward passes, by the trainer's process and by processes
 * that it made to write them. Several files are one checkpoint. So is one that a thread writes while training
 * continues. The share checkpoint_stall is the sum of the stalls of all checkpoints, of what they certainly
 * cost beyond (moved_ns), and of smaller syncs (logs), which are not listed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_TAIL_SHARES  7    /* number of shares in enum analysis_share */
#define CHECKPOINT_OVERHEAD_MAX 0.05 /* default limit, from CheckFreq */

struct checkpoint_item {
	uint64_t begin_ns, end_ns;
	uint64_t stall_ns;     /* stall of the trainer */
	uint64_t wait_ns;      /* part of stall_ns: the next save waited until this one was complete */
	uint64_t own_ns;       /* part of stall_ns: the trainer itself writes and syncs */
	uint64_t first_ns;     /* begin of the first call that writes; 0: none */
	uint64_t bytes;        /* written, or mapped for writing */
	uint64_t write_ns;     /* time in write calls */
	uint64_t fsync_ns;     /* time in fsync and the like */
	uint64_t writeback_ns; /* part of both: asleep uninterruptibly, throttled by or waiting for writeback
				  of dirty pages or the journal */
	bool background;       /* written by a thread or process other than the trainer */
	double copy_ns,
	    tail_ns; /* NAN: not known. Copying the state, in stall_ns or in the shares of
		      computing; how much longer the other steps of the save take without stalls */
};

/* The causes of a save's cost. */
enum checkpoint_cause {
	CHECKPOINT_COPY,    /* copying and pickling the state */
	CHECKPOINT_WRITE,   /* the trainer itself writes and syncs */
	CHECKPOINT_AWAIT,   /* the trainer waits for those who stage or write this save */
	CHECKPOINT_WAIT,    /* the trainer waits for the save before; no part of the cost */
	CHECKPOINT_LOCK,    /* slower steps: another thread has the interpreter lock */
	CHECKPOINT_CORES,   /* slower steps: the trainer has no core */
	CHECKPOINT_STORAGE, /* slower steps: waits for data that fast storage would end */
	CHECKPOINT_LOADER,  /* slower steps: waits for batches whose preparation takes longer */
	CHECKPOINT_UNKNOWN, /* slower computing: memory bandwidth, caches, GPU, which are not told apart */
	CHECKPOINT_CAUSES,
};

/* Returns the name in JSON reports, e.g. "cores_s". */
const char *checkpoint_cause_name(enum checkpoint_cause cause);

/* Compares the steps during a background save (another thread or process writes a checkpoint), without the
 * one in which the state is copied, with the other steps. The difference is the save's cost beyond its stall:
 * it computes, holds the interpreter lock, and fills storage and page cache. The cost appears in the shares.
 * Cores, lock and memory appear in cpu_starved and device; storage, page cache and workers in fetch and prep.
 * All values are sums over the steps. */
struct checkpoint_tail {
	size_t n_during, n_others;               /* steps during a background save; other steps */
	double ns;                               /* excess time of the n_during steps, in total; <= 0: none */
	double error_ns;                         /* twice the standard error of ns */
	double share_ns[CHECKPOINT_TAIL_SHARES]; /* parts of ns, by enum analysis_share; checkpoint_stall and
						    compiling are 0 */
	double gil_ns;                           /* part of cpu_starved: waiting for the interpreter lock */
};

struct checkpoint_report {
	struct checkpoint_tail *tail; /* NULL: no background saves, or too few steps of either kind */
	struct checkpoint_item *items;
	size_t n_items, n_background;
	/* Mean cost of copying a state, beyond the stalls: the extra computing of the
	 * steps in which it is copied. 0: none is certain. */
	double copy_ns;
	/* Mean cost of a save for training: stalls without the wait for the save before, copy and slower
	 * steps. The error has 95 % confidence. The first of several saves is left out. */
	size_t n_costs; /* saves of which this is the mean; 0: the cost is not known */
	double cost_ns, cost_error_ns;
	double
	    cause_ns[CHECKPOINT_CAUSES]; /* sum to the cost and CHECKPOINT_WAIT; may be below 0 by chance */
	/* Staging that training does not wait for, before the first write of a save: mean work of the threads
	 * of the trainer's process that save, and how much longer the steps meanwhile take. NAN: not known,
	 * as of saves in the loop, and of those whose writes were not seen. */
	double stage_ns, stage_slowed_ns;
	/* Copies and slower steps that are certain: they were moved from these shares to checkpoint_stall.
	 * copied_ns: the part for copies; moved_gil_ns: the part from waits for the interpreter lock. */
	uint64_t moved_ns[CHECKPOINT_TAIL_SHARES], copied_ns, moved_gil_ns;
	double interval_steps; /* mean number of steps between two checkpoints; NAN: fewer than two */
	double overhead_max;   /* limit on overhead for the advised interval, e.g. 0.05 */
	/* CheckFreq's interval: 0 if it is not known. With the cost's error it lies between least and most;
	 * 0: not known either. */
	uint32_t advised_steps, advised_least, advised_most;
	const char *unclear;     /* static text: why advised_steps is not known; NULL: no reason to name */
	double overhead;         /* ratio of the saves' cost to the rest of the time, as recorded */
	double advised_overhead; /* overhead with the advised interval */
};

/* CheckFreq (FAST 2021): returns the least number of steps between two checkpoints such that each is complete
 * before the next begins, and their stalls cost at most overhead_max. full_ns: a checkpoint from start to
 * end; stall_ns: the part of it that training waits for; step_ns: a step without checkpoints. The result is
 * at least 1, or 0 without a step's length or a bound. */
uint32_t checkpoint_interval(double full_ns, double stall_ns, double step_ns, double overhead_max);

void checkpoint_report_free(struct checkpoint_report *report);
