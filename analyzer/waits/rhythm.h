/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds the steps of a trainer without events that mark them. A trainer that loads its data itself reads,
 * decodes, reads, decodes, ..., and then computes a step without reading. Reads are its beats, with a pause
 * between two of them. Batches have one size, and computing takes about as long each time. So steps are
 * separated at pauses of at least a threshold: the one with which all steps have the same number of reads,
 * after pauses of about the same length.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/base/interval.h"

struct beat {
	uint64_t begin_ns, end_ns;
	uint64_t first_ns, last_ns;          /* within the beat: estimated start and end of reading */
	uint64_t exec_begin_ns, exec_end_ns; /* CPU time so far */
	uint64_t read_bytes;                 /* total so far, at the end of the beat */
	uint64_t pause_ns; /* before the beat; CPU time if known, because other delays have no rhythm */
	uint32_t n_reads;
	double n_samples; /* estimated samples in the beat, if there can be several */
};

struct rhythm {
	uint64_t begin_ns, end_ns;  /* limits of the similar steps */
	struct interval *computing; /* the parts of these steps that are not loading, by time */
	size_t n_computing;
	uint64_t sample_ns; /* CPU time of one sample: delay of computing after the last read */
	size_t n_steps;     /* 0: no threshold gives similar steps; then all other fields are empty */
};

/* beats: sorted by time. pause_weight: weight of the spread of pauses relative to the spread of reads.
 * life_end_ns: end of the computing after the last beat. -ENOMEM. */
int rhythm_find(const struct beat *beats, size_t n, double pause_weight, uint64_t life_end_ns,
		struct rhythm *ret_rhythm);
void rhythm_free(struct rhythm *rhythm);
