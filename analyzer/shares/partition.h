/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The trainer's wall time in one interval, cut into shares that sum to it exactly. In this order:
 *
 *   data waits        fetch_stall and prep_stall, by the split
 *   checkpoints       checkpoint_stall
 *   compiling         compiling, on a CPU or not
 *   GPU driver        device (and gpu_wait), whether the trainer spins or sleeps in a synchronising call
 *   on a CPU          device
 *   without a core    cpu_starved
 *   in a collective   device: the ranks meet at the end of their steps
 *   at the interpreter lock (GIL)  cpu_starved: ready to run, but another thread has the lock
 *   asleep until a thread or child that saves ends it   checkpoint_stall
 *   asleep            if another thread of its process ended the sleep, by the state of these threads:
 *                     compiling is compiling, computing is device, waiting for a core is cpu_starved
 *   the rest          other: only time with observed computing counts as device
 */

#include "analyzer/share.h"
#include "compiling.h"
#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/waits/waits.h"

struct partition {
	const struct timeline *timeline;
	const struct roles *roles;
	const struct data_waits *waits;
	const uint64_t *fetch_ns;                /* fetch part of each wait; set before use */
	struct interval_list checkpoints;        /* the trainer's own, without waits; tidy */
	struct interval_list helper_checkpoints; /* checkpoints of the other threads of its process; tidy */
	struct interval_list child_checkpoints;  /* checkpoints of child processes made to write them; tidy */
	struct interval_list compiling;          /* the trainer's own, without waits and checkpoints; tidy */
	struct interval_list helper_compiling;   /* compiling by the other threads of its process; tidy */
	struct interval_list gpu_waits;          /* the trainer's own, without all of the above; tidy */
	struct interval_list collectives; /* with several ranks, asleep until the others arrive; tidy */
	struct interval_list gil_sleeps;  /* the trainer's waits for the interpreter lock; tidy */
	const uint8_t *saves; /* per thread: it saves, or waits for a thread that does; set before use */
	uint64_t *helped_ns;  /* counts sleep while other threads of the process compute; NULL: not counted */
	const struct timeline_thread **helpers;
	size_t n_helpers;
};

/* Removes the waits from own_checkpoints, and takes over both lists of checkpoints, which are empty
 * afterwards. -ENOMEM. */
int partition_init(struct partition *partition, const struct timeline *timeline, const struct roles *roles,
		   const struct data_waits *waits, const struct compiling *compiling,
		   struct interval_list *own_checkpoints, struct interval_list *helper_checkpoints);
void partition_free(struct partition *partition);

/* For a job of several ranks: takes over the tidy list of the trainer's sleeps in collectives, which is empty
 * afterwards. -ENOMEM. */
int partition_collectives_take(struct partition *partition, struct interval_list *collectives);

/* Returns the ns of [begin_ns, end_ns) in which the trainer waited for the GPU: part of device. *ret_spin_ns:
 * the part of these on a CPU. */
uint64_t partition_gpu_wait(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			    uint64_t *ret_spin_ns);

/* Returns the ns asleep in collectives, outside of data waits, checkpoints and compiling: part of device. */
uint64_t partition_collective_ns(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns);

/* Returns the ns asleep at the interpreter lock, without time claimed by earlier rows of the list above: part
 * of cpu_starved. */
uint64_t partition_gil_ns(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns);

/* Adds the interval's shares to share_ns[]. */
void partition_interval(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			uint64_t share_ns[SHARE_COUNT]);

/* Splits the interval's waits again, with the current fetch_ns; other shares stay. */
void partition_fetch(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
		     uint64_t share_ns[SHARE_COUNT]);
