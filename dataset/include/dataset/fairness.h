/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether chunks are fair samples of a dataset, as `dieselctl pack` makes them, or hold what lay together, as
 * with --order source: seen in some of its chunks. Pure; docs/reference/formats.md has the figures.
 */

#include <stdbool.h>
#include <stdint.h>

struct fairness_sample {
	uint64_t place;      /* in tree order */
	uint32_t chunk;      /* a chunk's samples stand together, in the order of storage */
	int32_t class_index; /* any number; those without a class have one of their own */
};

struct fairness {
	uint64_t n_pairs; /* neighbours examined */
	double distance;  /* mean distance of neighbours in tree order, divided by that of any two of the
			     samples */
	double classes;   /* number of classes in a chunk, divided by the number expected if the samples were
			     dealt at random */
};

/* Both figures are near 1 if chunks are fair, and where nothing can be said. Sorts the samples. -ENOMEM. */
int fairness_measure(struct fairness_sample *samples, uint64_t n, struct fairness *ret);

/* Returns false if a figure is below 0.9 and enough samples were examined to rule out chance. */
bool fairness_is_fair(const struct fairness *f);
