/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When a thread wrote a checkpoint: from opening a file for writing to closing it, if more than
 * CHECKPOINT_MIN_BYTES went into it and no step began in between, and on through the fsync, rename and fsync
 * of the folder that directly follow. A file that stays open from step to step (a log, a store) counts only
 * while it is synced or while a large write is under way.
 */

#include "interval.h"
#include "timeline.h"

#define CHECKPOINT_MIN_BYTES UINT64_C(65536)

/* Appends; call interval_list_tidy() when all threads are in. steps: backward passes of the trainer. -ENOMEM.
 */
int checkpoints_find(const struct timeline_thread *thread, const uint64_t *steps, size_t n_steps,
		     struct interval_list *checkpoints);
