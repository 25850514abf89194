/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Some of a dataset's samples: one bit for each sample, in the order of their numbers, sample i in bit i % 64
 * of word i / 64. So the size of a subset, in memory and in messages to the daemon, depends only on the
 * dataset, not on the chosen samples. Immutable: any number of threads may use one.
 */

#include <stdbool.h>
#include <stdint.h>

struct subset;

/* Returns the number of words of a subset of n_samples. */
static inline uint64_t subset_words(uint64_t n_samples)
{
	return n_samples / 64 + (n_samples % 64 != 0);
}

/* Creates a subset; takes over the words, allocated with malloc(), even on failure. -EINVAL: a bit beyond the
 * last sample is set; -ENOMEM. */
int subset_new(uint64_t n_samples, uint64_t *words, struct subset **ret);
void subset_free(struct subset *s);
/* -ENOMEM. */
int subset_copy(const struct subset *s, struct subset **ret);

/* Returns true if both have the same samples; NULL equals only NULL. */
bool subset_is_same(const struct subset *a, const struct subset *b);

/* Returns the bytes that subset_new() allocates, including the words. */
uint64_t subset_bytes(uint64_t n_samples);

/* Returns the number of samples of the dataset. */
uint64_t subset_n_samples(const struct subset *s);
/* Returns the number of chosen samples. */
uint64_t subset_count(const struct subset *s);
/* Returns the number of chosen samples in [first, end), first <= end <= n_samples. */
uint64_t subset_count_range(const struct subset *s, uint64_t first, uint64_t end);
/* Returns the number of the k-th chosen sample, k < subset_count(). */
uint64_t subset_sample(const struct subset *s, uint64_t k);
/* Returns the first chosen sample at or after `sample`; n_samples: there is none. */
uint64_t subset_next(const struct subset *s, uint64_t sample);
const uint64_t *subset_data(const struct subset *s);
