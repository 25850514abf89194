/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When the trainer slept in a collective operation (an all-reduce over sockets, as gloo's) until other ranks
 * came along: sleeps that threads of its own process ended, the last of which was itself woken by the network
 * or by another process while it waited for a socket. Only meaningful in a job of several ranks: elsewhere, a
 * thread that loads from the network looks the same.
 *
 * Operations on a GPU do not show here: waiting for them counts as device.
 */

#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/timeline.h"

/* Each from falling asleep to being woken; tidy. -ENOMEM. */
int collectives_find(const struct timeline *timeline, const struct roles *roles,
		     struct interval_list *ret_collectives);
