/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Some of a dataset's samples: one bit for each sample, in the order of their numbers, sample i in bit i % 64
 * of word i / 64. So what a subset takes, in memory and on its way to the daemon, depends on the dataset
 * alone, and not on which samples are chosen. Immutable: any number of threads may use one.
 */

#include <stdbool.h>
#include <stdint.h>

struct subset;

/* Words of a subset of n_samples. */
static inline uint64_t subset_words(uint64_t n_samples)
{
	return n_samples / 64 + (n_samples % 64 != 0);
}

/* Takes the words, which were allocated with malloc(), in any case. -EINVAL: a bit beyond the last sample is
 * set; -ENOMEM. */
int subset_new(uint64_t n_samples, uint64_t *words, struct subset **ret);
void subset_free(struct subset *s);
/* -ENOMEM. */
int subset_copy(const struct subset *s, struct subset **ret);

/* Whether both have the same samples; NULL is the same as NULL alone. */
bool subset_is_same(const struct subset *a, const struct subset *b);

/* What subset_new() allocates, the words included, in bytes. */
uint64_t subset_bytes(uint64_t n_samples);

/* Of the dataset. */
uint64_t subset_n_samples(const struct subset *s);
/* How many samples are chosen. */
uint64_t subset_count(const struct subset *s);
/* The same of those from `first` on and before `end`, first <= end <= n_samples. */
uint64_t subset_count_range(const struct subset *s, uint64_t first, uint64_t end);
/* The number of the k-th sample that is chosen, k < subset_count(). */
uint64_t subset_sample(const struct subset *s, uint64_t k);
/* The first chosen sample from `sample` on; n_samples: there is none. */
uint64_t subset_next(const struct subset *s, uint64_t sample);
const uint64_t *subset_data(const struct subset *s);
