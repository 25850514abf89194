/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The machine as a whole, from /proc. */

#include <stdint.h>

struct host_sample;

/* What the last look found; zeros before the first. */
struct host {
	uint64_t busy_ticks, at_ns;
};

/* root is "/proc". What cannot be read stays unknown. */
void host_look(struct host *host, const char *root, uint64_t now_ns, struct host_sample *ret_sample);
