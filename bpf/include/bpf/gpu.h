/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The functions of libcuda.so.1 that are probed. Every way to the GPU ends in the driver library, also that
 * of a statically linked runtime, and there is one such file for each driver on a machine.
 *
 * `function` of an event is an index here: stored in recordings, so never renumbered.
 */

#include <stddef.h>
#include <stdint.h>

#define GPU_FUNCTIONS 64 /* indices are below */

/* "cuStreamSynchronize"; "?" for an index of a newer version. Static. */
const char *gpu_function_name(uint32_t function);

/* Notes that the collector makes of a probed libcuda; the key is the same for all of one file. */
#define GPU_NOTE_LIBRARY "gpu.library" /* its path as the job sees it, without a 0 at the end */
#define GPU_NOTE_PROBES  "gpu.probes"  /* struct gpu_probes */

struct gpu_probes {
	uint32_t n_probed;          /* functions */
	uint32_t n_expensive;       /* of them: the first instruction is single-stepped, 4 to 5 us a call */
	uint32_t n_missing;         /* functions that this driver does not export */
	uint32_t n_refused;         /* by the kernel */
	uint64_t launches_until_ns; /* when launches became too many to be counted; 0: they never did */
};

/* What could be probed in the libcuda at path: n_probed, n_expensive, n_missing. -errno, -ENOEXEC. */
int gpu_probes_look(const char *path, struct gpu_probes *ret_probes);

_Static_assert(sizeof(struct gpu_probes) == 24, "stored");
