/* SPDX-License-Identifier: Apache-2.0 */
#include "read_latency.h"

#include <math.h>

#include "lib/clock.h"

static size_t bucket_of(uint64_t ns)
{
	unsigned octave;
	size_t bucket;

	if (ns < UINT64_C(1) << READ_LATENCY_OCTAVE_MIN)
		return 0;
	octave = 63 - (unsigned)__builtin_clzll(ns);
	bucket = (size_t)4 * (octave - READ_LATENCY_OCTAVE_MIN) + (ns >> (octave - 2) & 3);
	return bucket < READ_LATENCY_BUCKETS ? bucket : READ_LATENCY_BUCKETS - 1;
}

static double begin_s(size_t bucket)
{
	return ldexp(1 + (double)(bucket % 4) / 4, (int)(bucket / 4) + READ_LATENCY_OCTAVE_MIN) /
	       (double)NS_PER_S;
}

void read_latency_add(struct read_latency *latency, uint64_t ns)
{
	latency->n[bucket_of(ns)]++;
}

double read_latency_quantile_s(const struct read_latency *now, const struct read_latency *before,
			       double quantile, uint64_t n_min)
{
	uint64_t sum = 0, below = 0;
	uint32_t n[READ_LATENCY_BUCKETS];
	double rank;

	for (size_t i = 0; i < READ_LATENCY_BUCKETS; i++) {
		n[i] = now->n[i] - (before ? before->n[i] : 0);
		sum += n[i];
	}
	if (!sum || sum < n_min)
		return NAN;
	rank = quantile * (double)sum;
	for (size_t i = 0; i < READ_LATENCY_BUCKETS; i++) {
		if (n[i] && (double)(below + n[i]) >= rank)
			return begin_s(i) +
			       (begin_s(i + 1) - begin_s(i)) * (rank - (double)below) / (double)n[i];
		below += n[i];
	}
	return NAN;
}

uint64_t read_latency_below(const struct read_latency *latency, size_t octave, double *ret_end_s)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < 4 * (octave + 1) && i < READ_LATENCY_BUCKETS; i++)
		sum += latency->n[i];
	*ret_end_s = begin_s(4 * (octave + 1));
	return sum;
}
