/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finders of what a report says of one trainer beyond its shares, each in the file of its name. */

#include <stdint.h>

#include "analyzer/analysis.h"
#include "analyzer/chain.h"
#include "analyzer/checkpoints.h"
#include "analyzer/gpu.h"
#include "analyzer/phases.h"
#include "analyzer/profile.h"
#include "analyzer/roles/roles.h"
#include "analyzer/shares/study.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

/* Finds the chain of the last slow step (analyzer/chain.h); the caller frees it with free(). *ret_chain NULL:
 * no step waited. -ENOMEM. */
int wait_chain_find(const struct study *study, struct wait_chain **ret_chain);

/* Lists the checkpoints, and moves their costs to checkpoint_stall in the window's steps. stall_ns: that
 * share of the window before. *ret_report: NULL without checkpoints. -ENOMEM. */
int checkpoint_report_find(const struct study *study, uint64_t stall_ns,
			   struct checkpoint_report **ret_report);

/*
 * GPU use of the trainer's process in the window, from the probes on libcuda.
 *
 *   waiting  the trainer in a synchronising call, spinning or asleep, outside of data waits and checkpoints
 *            (those have their own shares) and not while it lacks a core (that is cpu_starved)
 *   starved  the GPU certainly had nothing queued while the trainer waited for data: a lower bound
 */

/* ret_use: NULL if libcuda was not probed and no call into it was seen. -ENOMEM. */
int gpu_find(const struct study *study, struct gpu_use **ret_use);

/*
 * Head-of-line waits: a loader that keeps its batches in order makes the trainer wait for one worker's batch
 * although another worker's batch is ready. The sign is more than one message from the workers in one next():
 * only the last message was the batch that was due. So from the first message on, the trainer waited only
 * because of the order. While early batches are left over, all of each later wait counts, too.
 *
 * A step that reads no message takes one of the batches left over.
 */

/* Returns the ns of head-of-line waits within the window; 0 without worker processes. */
uint64_t head_of_line_ns(const struct roles *roles, const struct data_waits *waits,
			 const struct window *window);

/* Finds the ns of the trainer's steps in which it was runnable outside of data waits, checkpoints and
 * compiling, and its next core had been running a thread outside the job. -ENOMEM. */
int neighbours_find(const struct study *study, uint64_t *ret_ns);

/* Finds the rest of these ns, as far as another thread of the job was on a core: more cannot be its doing.
 * -ENOMEM. */
int neighbours_find_own(const struct study *study, uint64_t *ret_ns);

/* Finds the named ranges that the program marks on the trainer. *ret_phases: NULL where the trainer marked
 * nothing. -ENOMEM. */
int phases_find(const struct study *study, struct phase_times **ret_phases);

/* Finds the trainer's loading of a checkpoint before its first backward pass. -ENOMEM. */
int restore_find(const struct study *study, struct analysis_restored *ret_restored);

/*
 * Folds the samples of threads that prepare batches, in the window and outside of calls that fetch. The
 * threads are workers (after their start-up) and their hand-off threads, loader threads, diesel_loader's
 * workers while they make batches, and the trainer within its data waits if it loads by itself.
 */

/* *ret_profile is NULL if there are no samples, or none of a thread that prepares data. -ENOMEM. */
int profile_find(const struct study *study, struct profile **ret_profile);
