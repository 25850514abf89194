/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Dividing samples into parts at random: for training, validation, test. A pure function of (which samples,
 * sizes, seed, groups), the same on any machine; docs/reference/formats.md has the algorithm. Any division of
 * the sizes is equally likely (Knuth, The Art of Computer Programming 3.4.2, algorithm S, with more than two
 * parts). With groups, each group is divided in the same proportions, as nearly as whole samples allow.
 */

#include <stdint.h>

struct subset;

struct split_spec {
	const uint64_t *sizes; /* sizes of the n_parts parts; their sum is the number of samples */
	uint32_t n_parts;
	uint64_t seed;
	uint32_t (*group_of)(void *user, uint64_t sample); /* returns the group's number, below n_groups;
							      NULL: all samples are one group */
	void *user;
	uint32_t n_groups; /* 1 without group_of */
};

/* Divides the subset (NULL: all samples). words: for each part, the words of an empty subset
 * (dataset/subset.h), in which its samples are set. -EINVAL: the sizes do not add up; -ENOMEM. */
int split_subset(uint64_t n_samples, const struct subset *of, const struct split_spec *spec,
		 uint64_t *const *words);
