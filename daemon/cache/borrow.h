/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits how much memory the cache may borrow, that is, use beyond what jobs have claimed. Borrowed memory is
 * free while nobody else needs it, so it is the first to be given back. Pure: the clock and the node's
 * figures are arguments.
 *
 *   condition                                          limit on borrowed memory
 *   tasks wait for memory (PSI), or an OOM kill        0
 *   headroom is below twice the tuner's reserve        reduced by the shortfall
 *   page cache in use had to be read again (refaults)  halved, every second while it lasts
 *   otherwise                                          may grow by the headroom beyond that
 *
 * After any of the first three, the limit does not grow for ten seconds. Each repetition soon afterwards
 * doubles that pause, up to ten minutes. Callers must not count page cache that is in use as headroom.
 *
 * If giving back all borrowed memory does not restore the reserve, claims are cut as well, at once: when
 * memory that cannot be swapped runs out, the kernel kills processes at once. The tuner cuts claims too, but
 * within seconds, for changes that last. A new program can take all memory of a machine within seconds, so
 * the less headroom there is, the sooner the next sample is due.
 */

#include "tuner/stall_sample.h"

struct borrow {
	uint64_t hold_ns, until_ns; /* length and end of the pause in which borrowing does not grow */
	uint64_t ceiling_bytes;     /* limit on all memory of the cache; 0: none */
};

#define BORROW_ALL UINT64_MAX

/* The memory of the cache, in bytes. */
struct borrow_use {
	uint64_t total, borrowed;
	uint64_t limit; /* the operator's limit on the total */
};

/* Limits on borrowed memory, and on the whole cache. BORROW_ALL: the node's figures are unknown, or it has
 * enough memory, so only the operator's limit holds. */
struct borrow_limits {
	uint64_t borrowed, total;
};

/* Decides from a sample of the node. refaulted: bytes of page cache in use that were read again since the
 * last sample. */
struct borrow_limits borrow_decide(struct borrow *l, const struct stall_node *node, double refaulted,
				   const struct borrow_use *use, uint64_t now_ns);

#define BORROW_PAUSE_LEAST_MS 25
#define BORROW_PAUSE_MOST_MS  1000

/* Returns the time until the next sample, for this headroom on a machine with machine_bytes of memory. */
uint32_t borrow_pause_ms(double headroom, double machine_bytes);
