/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Steps of a trainer that nobody tells of. One that loads its data itself reads, decodes, reads, decodes,
 * ..., and then computes a step without reading. Reads are its beats; between two of them lies a pause.
 * Batches are of one size and computing takes about as long each time, so of all lengths of pause the right
 * one to part steps is that which leaves each step with the same number of reads, behind pauses of about one
 * length.
 */

#include <stddef.h>
#include <stdint.h>

#include "interval.h"

struct beat {
	uint64_t begin_ns, end_ns;
	uint64_t first_ns, last_ns;          /* within: when reading is thought to begin and to end */
	uint64_t exec_begin_ns, exec_end_ns; /* CPU time so far */
	uint64_t read_bytes;                 /* so far, at the end */
	uint64_t pause_ns; /* before it: of CPU time where that is known, as others' work is no rhythm */
	uint32_t n_reads;
	double n_samples; /* that it may be, where it can be several */
};

struct rhythm {
	uint64_t begin_ns, end_ns;  /* of all steps that are alike */
	struct interval *computing; /* what is not loading of them, by time */
	size_t n_computing;
	uint64_t sample_ns; /* CPU time of one: computing begins so long after the last read */
	size_t n_steps;     /* 0: no length of pause makes them alike; then there is nothing else either */
};

/* beats: by time. pause_weight: what unlike pauses count beside unlike numbers of reads. life_end_ns: what is
 * behind the last beat ends there. -ENOMEM. */
int rhythm_find(const struct beat *beats, size_t n, double pause_weight, uint64_t life_end_ns,
		struct rhythm *ret_rhythm);
void rhythm_free(struct rhythm *rhythm);
