/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the trainer's process used the GPU driver, from probes on libcuda.so.1, in the window. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_call {
	char name[48]; /* cuStreamSynchronize, ... */
	uint64_t n;
	uint64_t ns;      /* in the call, all threads of the trainer's process */
	uint64_t spin_ns; /* part of it on a CPU: the driver polls */
};

/* What NVML said while recording. */
struct gpu_sample {
	uint64_t at_ns;
	double utilization; /* 0 to 1 */
};

struct gpu_use {
	char library[256]; /* the libcuda that was probed: a stand-in shows itself by its path */
	uint64_t n_launches, n_copies;
	uint64_t wait_ns;    /* the trainer in synchronising calls: the analysis's gpu_wait_ns */
	uint64_t spin_ns;    /* of wait_ns, on a CPU */
	uint64_t starved_ns; /* lower bound: within data waits, from the end of a synchronisation to the next
				launch or copy, when nothing was queued */
	double utilization;  /* by NVML, 0 to 1; NAN: not known */
	/* functions of libcuda: probed; of these, single-stepped; not exported by this driver; refused */
	uint32_t n_probed, n_expensive, n_missing, n_refused;
	bool launches_known;    /* else they were too many to be counted all along: n_launches, n_copies and
				   starved_ns are too low */
	struct gpu_call *calls; /* by ns, descending */
	size_t n_calls;
};

void gpu_use_free(struct gpu_use *use);
