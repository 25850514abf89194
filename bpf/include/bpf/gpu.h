/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The functions of libcuda.so.1 that are probed. Every way to the GPU ends in this library of the driver,
 * even from a statically linked runtime, and a machine has one such file for each driver.
 *
 * `function` of an event is an index here: recordings store it, so functions are never renumbered.
 */

#include <stddef.h>
#include <stdint.h>

#define GPU_FUNCTIONS 64 /* exclusive upper bound of the indices */

/* Returns a function's name, such as "cuStreamSynchronize"; "?" for an index of a newer version. Static. */
const char *gpu_function_name(uint32_t function);

/* Kinds of metadata that the collector makes about a probed libcuda. Entries about one file have the same
 * key. */
#define GPU_METADATA_LIBRARY "gpu.library" /* the library's path as the job sees it, no NUL */
#define GPU_METADATA_PROBES  "gpu.probes"  /* struct gpu_probes */

struct gpu_probes {
	uint32_t n_probed;          /* probed functions */
	uint32_t n_expensive;       /* probed functions that are single-stepped: 4 to 5 us per call */
	uint32_t n_missing;         /* functions that this driver does not export */
	uint32_t n_refused;         /* functions that the kernel would not probe */
	uint64_t launches_until_ns; /* time at which launches became too frequent to be counted; 0: never */
};

/* Counts the functions of the libcuda at path that can be probed: sets n_probed, n_expensive and n_missing.
 * -ENOEXEC: not a library; else -errno. */
int gpu_probes_count(const char *path, struct gpu_probes *ret_probes);

_Static_assert(sizeof(struct gpu_probes) == 24, "stored");
