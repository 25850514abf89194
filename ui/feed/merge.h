/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes one sample of two: what this node shows of its jobs, and what the daemon says about the same jobs.
 * Pure. */

#include <stdint.h>

struct top_sample;

/* Adds to `node` what `daemon` has. job_of() turns the pid of a daemon's job into the pid of the node's job
 * that is the same; 0: none is. On -ENOMEM, adds as much as it could. */
int merge_daemon(struct top_sample *node, const struct top_sample *daemon,
		 uint64_t (*job_of)(void *user, uint64_t pid), void *user);
