/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What preparing spends its CPU time on: samples of the CPU clock of the threads that prepare batches, taken
 * at a fixed rate while they run, folded by library and by function. Samples within file calls are left out:
 * they are fetching.
 */

#include <stddef.h>
#include <stdint.h>

struct profile_item {
	char *name;    /* library "libjpeg.so.62", function "jpeg_idct_islow", or Python "load_image" */
	char *library; /* of a function: library, or the Python file's name; NULL for libraries */
	uint64_t n_samples;
};

/* One stack with its samples: frames from the outermost on, separated by ';' as flame graph tools expect.
 * Python frames read "file.py:function". */
struct profile_stack {
	char *frames;
	uint64_t n_samples;
};

struct profile {
	uint64_t n_samples; /* that the items share out */
	uint64_t n_unknown; /* of them with no known library */
	double rate_hz;
	struct profile_item *libraries, *functions; /* by samples, descending; the innermost frame counts */
	size_t n_libraries, n_functions;
	struct profile_stack *stacks; /* by samples, descending */
	size_t n_stacks;
};

void profile_free(struct profile *profile);
