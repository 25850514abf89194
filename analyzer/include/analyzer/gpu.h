/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the trainer's process used the GPU driver, from probes on libcuda.so.1, in the window. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_call {
	char name[48]; /* cuStreamSynchronize, ... */
	uint64_t n;
	uint64_t ns;      /* time in the call, of all threads of the trainer's process */
	uint64_t spin_ns; /* part of ns on a CPU: the driver polls */
};

/* GPU utilization that NVML reported during the recording. */
struct gpu_sample {
	uint64_t at_ns;
	double utilization; /* 0 to 1 */
};

struct gpu_use {
	char library[256]; /* path of the libcuda that was probed; shows if it is a substitute */
	uint64_t n_launches, n_copies;
	uint64_t wait_ns;    /* the trainer in synchronising calls: gpu_wait_ns of struct analysis_parts */
	uint64_t spin_ns;    /* part of wait_ns on a CPU */
	uint64_t starved_ns; /* lower bound: within data waits, from the end of a synchronisation to the next
				launch or copy, when nothing was queued */
	double utilization;  /* from NVML, 0 to 1; NAN: not known */
	/* numbers of libcuda functions: probed, single-stepped (part of the probed ones), not exported by
	 * this driver, and refused by the kernel */
	uint32_t n_probed, n_expensive, n_missing, n_refused;
	bool launches_known;    /* false: too many launches to count all the time, so n_launches, n_copies
				   and starved_ns are too low */
	struct gpu_call *calls; /* sorted by ns, descending */
	size_t n_calls;
};

void gpu_use_free(struct gpu_use *use);
