/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/fairness.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/sorted.h"

#define FAIR 0.9
/* minimum number of pairs; then the mean distance varies by 2.4 %, and FAIR is four times as far from 1 */
#define MIN_PAIRS 1000

static int by_place(const void *a, const void *b)
{
	const struct fairness_sample *x = a, *y = b;

	return compare_numbers(x->place, y->place);
}

static int by_class(const void *a, const void *b)
{
	const struct fairness_sample *x = a, *y = b;
	int order = (x->class_index > y->class_index) - (x->class_index < y->class_index);

	return order ? order : compare_numbers(x->chunk, y->chunk);
}

/* Returns the sum of the distances between neighbours in the same chunk. */
static double sum_neighbours(const struct fairness_sample *samples, uint64_t n, uint64_t *ret_pairs)
{
	uint64_t n_pairs = 0;
	double sum = 0;

	for (uint64_t i = 1; i < n; i++) {
		uint64_t a = samples[i - 1].place, b = samples[i].place;

		if (samples[i - 1].chunk != samples[i].chunk)
			continue;
		sum += (double)(a > b ? a - b : b - a);
		n_pairs++;
	}
	*ret_pairs = n_pairs;
	return sum;
}

/* Returns the mean distance between any two samples, which are sorted by place: i places lie before place i,
 * and n - 1 - i after it. */
static double mean_distance(const struct fairness_sample *samples, uint64_t n)
{
	double sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += (double)(samples[i].place - samples[0].place) * (2 * (double)i - (double)n + 1);
	return sum / ((double)n * (double)(n - 1) / 2);
}

/* Returns the probability that none of `own` samples is among k samples drawn from n. */
static double none_of(uint64_t n, uint64_t own, uint64_t k)
{
	double p = 1;

	for (uint64_t i = 0; i < own && p > 0; i++)
		p *= k + i < n ? (double)(n - k - i) / (double)(n - i) : 0;
	return p;
}

/* Returns the number of (chunk, class) pairs in samples sorted by class, divided by the expected number.
 * sizes: samples per chunk. */
static double class_ratio(const struct fairness_sample *samples, uint64_t n, const uint64_t *sizes,
			  uint64_t n_chunks)
{
	double found = 0, expected = 0;

	for (uint64_t i = 0, end; i < n; i = end) {
		for (end = i; end < n && samples[end].class_index == samples[i].class_index; end++)
			found += end == i || samples[end].chunk != samples[end - 1].chunk;
		for (uint64_t c = 0; c < n_chunks; c++)
			expected += 1 - none_of(n, end - i, sizes[c]);
	}
	return found / expected;
}

int fairness_measure(struct fairness_sample *samples, uint64_t n, struct fairness *ret)
{
	_cleanup_(freep) uint64_t *sizes = calloc(n + 1, sizeof(*sizes));
	struct fairness f = {.distance = 1, .classes = 1};
	uint64_t n_chunks = 0;
	double sum, mean;

	if (!sizes)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		n_chunks += i == 0 || samples[i].chunk != samples[i - 1].chunk;
		sizes[n_chunks - 1]++;
	}
	sum = sum_neighbours(samples, n, &f.n_pairs);
	if (f.n_pairs > 0) {
		qsort(samples, n, sizeof(*samples), by_place);
		mean = mean_distance(samples, n);
		if (mean > 0)
			f.distance = sum / (double)f.n_pairs / mean;
		qsort(samples, n, sizeof(*samples), by_class);
		f.classes = class_ratio(samples, n, sizes, n_chunks);
	}
	*ret = f;
	return 0;
}

bool fairness_is_fair(const struct fairness *f)
{
	return f->n_pairs < MIN_PAIRS || (f->distance >= FAIR && f->classes >= FAIR);
}
