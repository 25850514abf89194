/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which threads a recording has: a thread's key is (tid, time of the fork), because tids are reused. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct birth {
	uint32_t tid, tgid, creator_tid;
	uint64_t born_ns; /* 0: before the recording; every tid with records has such an entry too */
};

/* Sums of two times must not overflow; 2^62 ns are 146 years of uptime. */
#define TIMELINE_TIME_MAX_NS (UINT64_C(1) << 62)

/* Returns true for a record of a thread that does not contradict itself. */
bool timeline_usable(const struct event *event);

/* By tid, then birth. Caller frees. -ENOMEM. */
int timeline_births(const struct event *events, size_t n_events, struct birth **ret_births, size_t *ret_n);
