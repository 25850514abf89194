/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checkpoints in the window, one by one, and how often to make them.
 *
 * A checkpoint is all large writes of the trainer's process, and of processes it made to write them, between
 * two backward passes: several files are one checkpoint, and so is one that a thread goes on writing while
 * training goes on. Stalls of all checkpoints, and of lesser syncs that are listed nowhere (logs), sum up to
 * the share checkpoint_stall.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_TAIL_SHARES  7    /* as many as enum analysis_share has */
#define CHECKPOINT_OVERHEAD_MAX 0.05 /* CheckFreq's bound, where none is given */

struct checkpoint_item {
	uint64_t begin_ns, end_ns;
	uint64_t stall_ns;     /* of the trainer */
	uint64_t bytes;        /* written, or mapped for writing */
	uint64_t write_ns;     /* in write calls */
	uint64_t fsync_ns;     /* in fsync and the like */
	uint64_t writeback_ns; /* part of both: asleep there uninterruptibly, that is throttled by, or waiting
				  for, writeback of dirty pages or the journal */
	bool background;       /* by a thread or process other than the trainer */
};

/* Steps while another thread or process writes a checkpoint, against those while none does. This is what a
 * background save costs beyond its stall, because it computes, holds the interpreter lock, and fills storage
 * and page cache. It shows in the shares: cores, lock and memory in cpu_starved and device; storage, page
 * cache and workers in fetch and prep. All are sums over the steps. */
struct checkpoint_tail {
	size_t n_beside, n_others; /* steps of either kind */
	double ns;                 /* how much longer the steps beside took, in all; <= 0: no longer */
	double error_ns;           /* twice its standard error */
	double share_ns[CHECKPOINT_TAIL_SHARES]; /* parts of ns, by enum analysis_share; checkpoint_stall and
						    compiling are 0 */
	double gil_ns;                           /* part of cpu_starved: waiting for the interpreter lock */
};

struct checkpoint_report {
	struct checkpoint_tail *tail; /* NULL: none in the background, or too few steps of either kind */
	struct checkpoint_item *items;
	size_t n_items, n_background;
	/* Mean cost of copying a state for a save in the background, beyond the stalls: what the steps in
	 * which saves begin compute longer than others. 0: none is sure. */
	double copy_ns;
	double interval_steps;   /* mean number of steps between two checkpoints; NAN: fewer than two */
	double overhead_max;     /* the bound that the advice is for: 0.05 */
	uint32_t advised_steps;  /* CheckFreq's interval; 0: not known */
	double overhead;         /* stalls and copies over the rest of the time, as recorded */
	double advised_overhead; /* the same with the advised interval */
};

/* CheckFreq (FAST 2021): returns the least number of steps between two checkpoints such that each is complete
 * before the next begins, and their stalls cost at most overhead_max. full_ns: a checkpoint from start to
 * end; stall_ns: the part of it that training waits for; step_ns: a step without checkpoints. At least 1; 0
 * without a step's length or a bound. */
uint32_t checkpoint_interval(double full_ns, double stall_ns, double step_ns, double overhead_max);

void checkpoint_report_free(struct checkpoint_report *report);
