/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Histogram of the durations of chunk reads, of fixed size: four buckets per octave from 16 us to 69 s, so
 * that a quantile is accurate within a fifth. Plain counters that never decrease: the difference of two
 * histograms is the histogram of the time between them. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#define READ_LATENCY_OCTAVE_MIN 14 /* 2^14 ns; shorter times count in the first bucket */
#define READ_LATENCY_OCTAVES    22
#define READ_LATENCY_BUCKETS    ((size_t)4 * READ_LATENCY_OCTAVES)

struct read_latency {
	uint32_t n[READ_LATENCY_BUCKETS];
};

void read_latency_add(struct read_latency *latency, uint64_t ns);

/* Returns the quantile of the reads added since `before` (NULL: of all), in seconds. NAN with fewer than
 * n_min reads. */
double read_latency_quantile_s(const struct read_latency *now, const struct read_latency *before,
			       double quantile, uint64_t n_min);

/* Returns the number of reads shorter than the end of this octave (0 .. READ_LATENCY_OCTAVES - 1).
 * *ret_end_s: that end. */
uint64_t read_latency_below(const struct read_latency *latency, size_t octave, double *ret_end_s);
