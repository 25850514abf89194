/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides which chunk is read next, and for whom. Each session needs the nearest chunk that it lacks, and
 * other nodes of a job ask for some. A want is skipped if:
 *
 *   - the dataset has enough reads in progress, or the user's share of readers is used up;
 *   - a prefetch would take memory that others need, or too much for its user;
 *   - prefetch pauses for a checkpoint (read_holds.h).
 *
 * Turns (read_turns.h), which share storage between users and jobs by weight, choose among the rest. A
 * session of the lowest priority is like any other: its chunks are farther away than all others
 * (CACHE_SPARE_DISTANCE), so they take nothing from other sessions, and its job has a low weight.
 *
 * A session that gets no memory asks its client to release its batches. If no client holds memory, its batch
 * becomes an error instead of waiting for ever.
 *
 * Uses sessions and the cache, but no clients and no loop. Loop thread only.
 */

#include "daemon/serve/serving.h"

/* limit on open sessions */
#define SCHEDULE_MAX_SESSIONS 1024

/*
 * Carries out all work that has become possible since the last call (serving_touch()): pumps sessions, fits
 * the cache, and starts reads until enough are in progress, or no session can use another one. Starts no read
 * while the cache is closing. Call at the end of each turn of the event loop.
 *
 * Returns false if there was nothing to do. Otherwise sets *ret_again_ns to the time at which more may be
 * possible without any event, or to UINT64_MAX.
 */
bool schedule_turn(struct serving *s, uint64_t *ret_again_ns);
