/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The probed functions of libcuda.so.1. A cookie tells the probe what the function does. */

#include <stdbool.h>
#include <stdint.h>

struct gpu_function {
	const char *name;
	uint64_t cookie; /* 0: no such index */
};

extern const struct gpu_function gpu_functions[];
extern const uint32_t n_gpu_functions; /* number of functions; indices are lower */
