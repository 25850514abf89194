/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds the steps of a trainer when no event tells of them. A trainer that loads its data itself reads,
 * decodes, reads, decodes, ..., and then computes a step without reading. Reads are its beats; between two of
 * them lies a pause. Batches are of one size and computing takes about as long each time. So the right length
 * of pause to part steps at is the one that leaves each step with the same number of reads, after pauses of
 * about the same length.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/base/interval.h"

struct beat {
	uint64_t begin_ns, end_ns;
	uint64_t first_ns, last_ns; /* within the beat: when reading is thought to begin and to end */
	uint64_t exec_begin_ns, exec_end_ns; /* CPU time so far */
	uint64_t read_bytes;                 /* so far, at the end of the beat */
	uint64_t pause_ns; /* before the beat; CPU time if known, as others' work has no rhythm */
	uint32_t n_reads;
	double n_samples; /* how many samples it may be, where it can be several */
};

struct rhythm {
	uint64_t begin_ns, end_ns;  /* from the first to the last of the steps that are alike */
	struct interval *computing; /* the parts of these steps that are not loading, by time */
	size_t n_computing;
	uint64_t sample_ns; /* CPU time of one sample: computing begins so long after the last read */
	size_t n_steps;     /* 0: no length of pause makes them alike; then there is nothing else either */
};

/* beats: by time. pause_weight: how much unlike pauses count against unlike numbers of reads. life_end_ns:
 * what follows the last beat ends there. -ENOMEM. */
int rhythm_find(const struct beat *beats, size_t n, double pause_weight, uint64_t life_end_ns,
		struct rhythm *ret_rhythm);
void rhythm_free(struct rhythm *rhythm);
