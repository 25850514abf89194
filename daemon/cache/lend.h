/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much memory chunks may borrow: what they take beyond what jobs claim costs nothing as long as nobody
 * wants it, so it goes first. Pure: the clock and what was seen of the node are arguments.
 *
 *   tasks wait for memory, or the kernel killed      nothing may be borrowed
 *   less is left than twice the reserve               as much less as is missing
 *   page cache that is in use had to be read again    half of it, each second that goes on
 *   otherwise                                         what is left beyond that reserve may be borrowed too
 *
 * After each of the first three, nothing more is borrowed for ten seconds, and for twice as long each time
 * that it happens again soon, up to ten minutes. The caller must not count page cache that is in use as
 * "left".
 *
 * Where all that is borrowed is not enough to leave the reserve, claims give way as well, at once: nobody
 * waits for memory that cannot be swapped, the kernel kills. The tuner cuts claims by the second, which is
 * for changes that last. A newcomer may take the memory of any machine within some seconds, so the less is
 * left, the sooner the next look is due.
 */

#include "tuner/stall_sample.h"

struct lend {
	uint64_t hold_ns, until_ns; /* how long nothing more is borrowed, and until when */
	uint64_t ceiling_bytes;     /* of all that the cache takes; 0: none */
};

#define LEND_ALL UINT64_MAX

/* Bytes that may be borrowed; LEND_ALL: nothing is known of the node, so only the operator's limit holds.
 * refaulted: bytes of page cache in use that were read again since the last look. */
uint64_t lend_limit(struct lend *l, const struct stall_node *node, double refaulted, uint64_t borrowed,
		    uint64_t now_ns);

/* Bytes that all of the cache may take, which takes `total` now, and no more than `limit` in any case;
 * LEND_ALL: what the operator said. Called after lend_limit(), of the same look. */
uint64_t lend_ceiling(struct lend *l, const struct stall_node *node, uint64_t total, uint64_t borrowed,
		      uint64_t limit, uint64_t now_ns);

#define LEND_PAUSE_LEAST_MS 25
#define LEND_PAUSE_MOST_MS  1000

/* When the next look is due, with so much left of a machine's memory. */
uint32_t lend_pause_ms(double headroom, double machine_bytes);
