/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One sample out of two: what this node shows of its jobs, and what the daemon says of the same. Pure. */

#include <stdint.h>

struct sample;

/* Adds to `node` what `daemon` has; jobs are the same where job_of(pid of the daemon's job) gives the pid of
 * the node's (0: none of them). -ENOMEM: as far as it went. */
int merge_daemon(struct sample *node, const struct sample *daemon,
		 uint64_t (*job_of)(void *user, uint64_t pid), void *user);
