/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much memory chunks may borrow: what they take beyond what jobs claim costs nothing as long as nobody
 * wants it, so it goes first. Pure: the clock and what was seen of the node are arguments.
 *
 *   tasks wait for memory, or the kernel killed      nothing may be borrowed
 *   less is left than twice the tuner's reserve       as much less as is missing
 *   page cache that is in use had to be read again    half of it, each second that goes on
 *   otherwise                                         what is left beyond that reserve may be borrowed too
 *
 * After each of the first three, nothing more is borrowed for ten seconds, and for twice as long each time
 * that it happens again soon, up to ten minutes. The caller must not count page cache that is in use as
 * "left".
 */

#include "tuner/stall_sample.h"

struct lend {
	uint64_t hold_ns, until_ns; /* how long nothing more is borrowed, and until when */
};

#define LEND_ALL UINT64_MAX

/* Bytes that may be borrowed; LEND_ALL: nothing is known of the node, so only the operator's limit holds.
 * refaulted: bytes of page cache in use that were read again since the last look. */
uint64_t lend_limit(struct lend *l, const struct stall_node *node, double refaulted, uint64_t borrowed,
		    uint64_t now_ns);
