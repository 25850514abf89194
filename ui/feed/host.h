/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads figures of the machine as a whole from /proc. */

#include <stdint.h>

struct host_sample;

/* values at the last sample, for rates; zeros before the first */
struct host {
	uint64_t busy_ticks, at_ns;
};
