/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which chunk is read next, and for whom. Each session wants the nearest chunk that it lacks, and other nodes
 * of a job want some. Of these wants, those are left out that may not be read now:
 *
 *   - the dataset has enough reads under way, or there is no reader left in the user's part;
 *   - a chunk that is read ahead would take memory that others need, or too much for its user;
 *   - reading ahead gives way to a checkpoint (read_holds.h).
 *
 * Which of the rest is read decide turns (read_turns.h), which share storage between users and jobs by
 * weight. A session of the lowest priority is one like any other: its chunks are farther away than all others
 * (CACHE_SPARE_DISTANCE), so they take nothing from anybody, and its job weighs little.
 *
 * A session that gets no memory asks its client to give back what it holds. If nobody holds anything, its
 * batch becomes an error rather than wait for ever.
 *
 * Knows sessions and the cache, no clients and no loop. Loop thread only.
 */

#include "daemon/serve/serving.h"

/* Sessions that there may be at one time. */
#define SCHEDULE_MAX_SESSIONS 1024

/*
 * Carries out whatever has become possible since the last call (serving_touch()): pumps sessions, fits the
 * cache, and starts reads until enough are under way, or nobody can use another one. While the cache is
 * closing, no read begins. To be called at the end of each turn of the event loop.
 *
 * Returns false if nothing was to be done; else *ret_again_ns is the time at which more may be possible
 * though nothing has happened, or UINT64_MAX.
 */
bool schedule_turn(struct serving *s, uint64_t *ret_again_ns);
