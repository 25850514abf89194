/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the ranks of this node take of each chunk, window by window. All ranks of a job walk one order, so
 * each node needs about 1/n of the samples of every chunk of a window (n nodes). One order's needs are those
 * of all ranks that have had a session here: of a chunk that comes from another node, these samples come
 * alone, and serve all ranks of the node. A rank stays when its session ends, as workers come and go with the
 * epochs.
 *
 * A window is worked out once, for all sessions that list it at the same time. Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/shuffle.h"

struct needs;

struct needed_window {
	struct needed_window *next;
	struct needs *needs;
	uint32_t refs;
	uint64_t epoch, window;
	uint32_t n_chunks;
	uint64_t *chunks; /* in the order of visits */
	uint64_t *first;  /* [i]: the first of the i-th one's words */
	uint64_t *words;
};

/* The needs of the order that the spec describes, whatever its epoch and rank, to which this rank's are
 * added. What it borrows is copied. NULL: no memory, or no such order. */
struct needs *needs_join(struct needs **list, const struct shuffle_spec *spec);
/* A session has ended. Accepts NULL. */
void needs_leave(struct needs *n);
/* The list's owner goes; windows that are still held stay. */
void needs_free_all(struct needs **list);

/* NULL: no memory, or there is no such window. Released by needed_window_unref(). */
struct needed_window *needs_window(struct needs *n, uint64_t epoch, uint64_t window);
struct needed_window *needed_window_unref(struct needed_window *w); /* NULL is fine */
/* A bit for each of the chunk's samples; NULL: it is not in the window. */
const uint64_t *needed_bits(const struct needed_window *w, uint64_t chunk);
