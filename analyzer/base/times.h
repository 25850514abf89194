/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small arithmetic on times in ns. */

#include <stdint.h>

static inline uint64_t min_ns(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}
