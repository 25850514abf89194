/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds when the trainer slept in a collective operation (an all-reduce over sockets, as gloo's) until other
 * ranks arrived: sleeps that a chain of threads of its own process ended. The last thread of the chain was
 * woken by the network, or by another process, while it waited for a socket. Only valid in a job of several
 * ranks: in other jobs, a thread that loads from the network looks the same.
 *
 * Operations on a GPU do not show here: waiting for them counts as device.
 */

#include "analyzer/base/interval.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/timeline.h"

/* Finds these intervals, each from falling asleep to being woken; the list is tidy. -ENOMEM. */
int collectives_find(const struct timeline *timeline, const struct roles *roles,
		     struct interval_list *ret_collectives);
