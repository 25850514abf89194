/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Measures, from some chunks of a dataset, whether its chunks are fair samples, as `dieselctl pack` makes
 * them, or hold files that lay together, as with --order source. Pure; docs/reference/formats.md has the
 * figures.
 */

#include <stdbool.h>
#include <stdint.h>

struct fairness_sample {
	uint64_t place;      /* place in tree order */
	uint32_t chunk;      /* samples of one chunk are adjacent, in storage order */
	int32_t class_index; /* any number; samples without a class share one of their own */
};

struct fairness {
	uint64_t n_pairs; /* neighbours examined */
	double distance;  /* mean distance of neighbours in tree order, divided by that of any two of the
			     samples */
	double classes;   /* number of classes in a chunk, divided by the number expected if the samples were
			     dealt at random */
};

/* Measures both figures. They are near 1 if chunks are fair, or if there are too few samples to tell. Sorts
 * the samples. -ENOMEM. */
int fairness_measure(struct fairness_sample *samples, uint64_t n, struct fairness *ret);

/* Returns false if a figure is below 0.9 and enough samples were examined to rule out chance. */
bool fairness_is_fair(const struct fairness *f);
