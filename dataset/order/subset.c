/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/subset.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sorted.h"

#define BLOCK_WORDS 64

struct subset {
	uint64_t n_samples, n_words;
	uint64_t *words;
	uint64_t *before; /* number of chosen samples before each block of words, and last the total */
};

static uint64_t n_blocks(uint64_t n_words)
{
	return n_words / BLOCK_WORDS + (n_words % BLOCK_WORDS != 0);
}

bool subset_is_same(const struct subset *a, const struct subset *b)
{
	if (!a || !b)
		return a == b;
	return subset_n_samples(a) == subset_n_samples(b) &&
	       memcmp(subset_data(a), subset_data(b), subset_words(subset_n_samples(a)) * sizeof(uint64_t)) ==
		   0;
}

uint64_t subset_bytes(uint64_t n_samples)
{
	uint64_t n_words = subset_words(n_samples);

	return sizeof(struct subset) + (n_words + n_blocks(n_words) + 1) * sizeof(uint64_t);
}

static void count_blocks(struct subset *s)
{
	uint64_t count = 0;

	for (uint64_t w = 0; w < s->n_words; w++) {
		if (w % BLOCK_WORDS == 0)
			s->before[w / BLOCK_WORDS] = count;
		count += (uint64_t)__builtin_popcountll(s->words[w]);
	}
	s->before[n_blocks(s->n_words)] = count;
}

int subset_new(uint64_t n_samples, uint64_t *words, struct subset **ret)
{
	uint64_t n_words = subset_words(n_samples);
	struct subset *s = calloc(1, sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (r == 0 && n_samples % 64 != 0 && words[n_words - 1] >> n_samples % 64 != 0)
		r = -EINVAL;
	if (r == 0) {
		s->before = calloc(n_blocks(n_words) + 1, sizeof(*s->before));
		r = s->before ? 0 : -ENOMEM;
	}
	if (r < 0) {
		free(words);
		free(s);
		return r;
	}
	s->n_samples = n_samples;
	s->n_words = n_words;
	s->words = words;
	count_blocks(s);
	*ret = s;
	return 0;
}

void subset_free(struct subset *s)
{
	if (!s)
		return;
	free(s->words);
	free(s->before);
	free(s);
}

int subset_copy(const struct subset *s, struct subset **ret)
{
	uint64_t *words = calloc(s->n_words + 1, sizeof(*words));

	if (!words)
		return -ENOMEM;
	memcpy(words, s->words, s->n_words * sizeof(*words));
	return subset_new(s->n_samples, words, ret);
}

uint64_t subset_n_samples(const struct subset *s)
{
	return s->n_samples;
}

uint64_t subset_count(const struct subset *s)
{
	return s->before[n_blocks(s->n_words)];
}

/* Returns the number of chosen samples before this one. */
static uint64_t count_before(const struct subset *s, uint64_t sample)
{
	uint64_t word = sample / 64, block = word / BLOCK_WORDS, count = s->before[block];

	for (uint64_t w = block * BLOCK_WORDS; w < word; w++)
		count += (uint64_t)__builtin_popcountll(s->words[w]);
	if (sample % 64 != 0)
		count += (uint64_t)__builtin_popcountll(s->words[word] << (64 - sample % 64));
	return count;
}

uint64_t subset_count_range(const struct subset *s, uint64_t first, uint64_t end)
{
	assert(first <= end && end <= s->n_samples);
	return count_before(s, end) - count_before(s, first);
}

uint64_t subset_sample(const struct subset *s, uint64_t k)
{
	uint64_t block, word, bits;

	assert(k < subset_count(s));
	block = sorted_count(n_blocks(s->n_words), i, s->before[i] <= k) - 1;
	k -= s->before[block];
	word = block * BLOCK_WORDS;
	while (k >= (uint64_t)__builtin_popcountll(s->words[word]))
		k -= (uint64_t)__builtin_popcountll(s->words[word++]);
	bits = s->words[word];
	while (k-- > 0)
		bits &= bits - 1;
	return word * 64 + (uint64_t)__builtin_ctzll(bits);
}

uint64_t subset_next(const struct subset *s, uint64_t sample)
{
	uint64_t word = sample / 64, bits;

	if (sample >= s->n_samples)
		return s->n_samples;
	bits = s->words[word] & UINT64_MAX << sample % 64;
	while (bits == 0) {
		if (++word == s->n_words)
			return s->n_samples;
		bits = s->words[word];
	}
	return word * 64 + (uint64_t)__builtin_ctzll(bits);
}

const uint64_t *subset_data(const struct subset *s)
{
	return s->words;
}
