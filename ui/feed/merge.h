/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Merges two samples into one: this node's view of its jobs, and the daemon's report on the same jobs. Pure.
 */

#include <stdint.h>

struct top_sample;

/* Adds the contents of `daemon` to `node`. job_of() maps the pid of a daemon's job to the pid of the same job
 * in the node's sample; 0: there is none. On -ENOMEM, part of the contents is missing. */
int merge_daemon(struct top_sample *node, const struct top_sample *daemon,
		 uint64_t (*job_of)(void *user, uint64_t pid), void *user);
