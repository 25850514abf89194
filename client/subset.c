/* SPDX-License-Identifier: Apache-2.0 */
/* Subsets of a dataset, for sessions and orders. */
#include "subset.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"
#include "dataset/split.h"
#include "lib/cleanup.h"

static uint64_t n_samples_of(const struct diesel_dataset *d)
{
	return snapshot_info(d->snapshot)->n_samples;
}

/* Takes ownership of the words, also on failure. */
static int make(uint64_t n_samples, uint64_t *words, struct diesel_subset **ret)
{
	struct diesel_subset *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		free(words);
		return -ENOMEM;
	}
	r = subset_new(n_samples, words, &s->chosen);
	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static uint64_t *no_words(uint64_t n_samples)
{
	return calloc(subset_words(n_samples) + 1, sizeof(uint64_t));
}

static void choose(uint64_t *words, uint64_t sample)
{
	words[sample / 64] |= UINT64_C(1) << sample % 64;
}

static uint64_t count_of(const struct diesel_dataset *d, const struct diesel_subset *of)
{
	return of ? subset_count(of->chosen) : n_samples_of(d);
}

/* Returns the number of the k-th sample. */
static uint64_t sample_of(const struct diesel_subset *of, uint64_t k)
{
	return of ? subset_sample(of->chosen, k) : k;
}

/* Returns the first sample of the subset that is not before this one. */
static uint64_t next_of(const struct diesel_subset *of, uint64_t sample)
{
	return of ? subset_next(of->chosen, sample) : sample;
}

int diesel_subset_load(uint64_t n_samples, const uint64_t *words, struct diesel_subset **ret)
{
	uint64_t *copy = no_words(n_samples);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, words, subset_words(n_samples) * sizeof(*copy));
	return make(n_samples, copy, ret);
}

int diesel_subset_select(const struct diesel_dataset *dataset, const struct diesel_subset *of,
			 const uint64_t *indices, uint64_t n, struct diesel_subset **ret)
{
	uint64_t n_samples = n_samples_of(dataset), count = count_of(dataset, of);
	_cleanup_(freep) uint64_t *words = no_words(n_samples);

	if (!words)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t sample;

		if (indices[i] >= count)
			return -ERANGE;
		sample = sample_of(of, indices[i]);
		if (words[sample / 64] >> sample % 64 & 1)
			return -EEXIST;
		choose(words, sample);
	}
	return make(n_samples, steal_pointer(words), ret);
}

int diesel_subset_slice(const struct diesel_dataset *dataset, const struct diesel_subset *of, uint64_t first,
			uint64_t end, uint64_t step, struct diesel_subset **ret)
{
	uint64_t n_samples = n_samples_of(dataset), k = 0;
	_cleanup_(freep) uint64_t *words = NULL;

	if (first > end || end > count_of(dataset, of) || step == 0)
		return -ERANGE;
	words = no_words(n_samples);
	if (!words)
		return -ENOMEM;
	for (uint64_t s = first < end ? sample_of(of, first) : 0; k < end - first;
	     k++, s = next_of(of, s + 1)) {
		if (k % step == 0)
			choose(words, s);
	}
	return make(n_samples, steal_pointer(words), ret);
}

/* Returns true if the sample's path matches. Copies it first: fnmatch() needs a terminated string. */
static bool matches(const struct snapshot_sample *s, const char *pattern)
{
	char path[UINT16_MAX + 1];

	memcpy(path, s->path, s->path_length);
	path[s->path_length] = '\0';
	return fnmatch(pattern, path, 0) == 0;
}

int diesel_subset_filter(const struct diesel_dataset *dataset, const struct diesel_subset *of,
			 const uint8_t *classes, const char *pattern, struct diesel_subset **ret)
{
	const struct snapshot_info *info = snapshot_info(dataset->snapshot);
	_cleanup_(freep) uint64_t *words = no_words(info->n_samples);

	if (!words)
		return -ENOMEM;
	for (uint64_t i = next_of(of, 0); i < info->n_samples; i = next_of(of, i + 1)) {
		struct snapshot_sample s;
		int r = dataset_look_up(dataset, i, &s);

		if (r < 0)
			return r;
		if (classes && !classes[s.class_index < 0 ? info->n_classes : (uint32_t)s.class_index])
			continue;
		if (!pattern || matches(&s, pattern))
			choose(words, i);
	}
	return make(info->n_samples, steal_pointer(words), ret);
}

static uint32_t class_of(void *user, uint64_t sample)
{
	const struct diesel_dataset *d = user;
	struct snapshot_sample s;

	if (dataset_look_up(d, sample, &s) < 0 || s.class_index < 0)
		return snapshot_info(d->snapshot)->n_classes;
	return (uint32_t)s.class_index;
}

static int split(struct diesel_dataset *d, const struct diesel_subset *of, const struct split_spec *spec,
		 struct diesel_subset **rets)
{
	uint64_t n_samples = n_samples_of(d);
	_cleanup_(freep) uint64_t **words = calloc(spec->n_parts, sizeof(*words));
	int r = words ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < spec->n_parts && r == 0; i++)
		r = (words[i] = no_words(n_samples)) ? 0 : -ENOMEM;
	if (r == 0)
		r = split_subset(n_samples, of ? of->chosen : NULL, spec, words);
	for (uint32_t i = 0; i < spec->n_parts && words; i++) {
		if (r < 0)
			free(words[i]);
		else
			r = make(n_samples, words[i], &rets[i]);
	}
	return r;
}

int diesel_subset_split(struct diesel_dataset *dataset, const struct diesel_subset *of, const uint64_t *sizes,
			uint32_t n_parts, uint64_t seed, int by_class, struct diesel_subset **rets)
{
	const struct split_spec spec = {
	    .sizes = sizes,
	    .n_parts = n_parts,
	    .seed = seed,
	    .group_of = by_class ? class_of : NULL,
	    .user = dataset,
	    .n_groups = by_class ? snapshot_info(dataset->snapshot)->n_classes + 1 : 1,
	};
	int r = by_class ? snapshot_check_lookups(dataset->snapshot, NULL) : 0;

	memset(rets, 0, n_parts * sizeof(*rets));
	if (r == 0)
		r = split(dataset, of, &spec, rets);
	for (uint32_t i = 0; i < n_parts && r < 0; i++) {
		diesel_subset_free(rets[i]);
		rets[i] = NULL;
	}
	return r;
}

void diesel_subset_free(struct diesel_subset *s)
{
	if (!s)
		return;
	subset_free(s->chosen);
	free(s);
}

uint64_t diesel_subset_count(const struct diesel_subset *s)
{
	return subset_count(s->chosen);
}

int diesel_subset_sample(const struct diesel_subset *s, uint64_t k, uint64_t *ret_sample)
{
	if (k >= subset_count(s->chosen))
		return -ERANGE;
	*ret_sample = subset_sample(s->chosen, k);
	return 0;
}

void diesel_subset_samples(const struct diesel_subset *s, uint64_t *samples)
{
	uint64_t n_samples = subset_n_samples(s->chosen), k = 0;

	for (uint64_t i = subset_next(s->chosen, 0); i < n_samples; i = subset_next(s->chosen, i + 1))
		samples[k++] = i;
}

int diesel_subset_indices(const struct diesel_subset *s, uint64_t *samples, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (samples[i] >= subset_n_samples(s->chosen) ||
		    subset_count_range(s->chosen, samples[i], samples[i] + 1) == 0)
			return -ERANGE;
		samples[i] = subset_count_range(s->chosen, 0, samples[i]);
	}
	return 0;
}

const uint64_t *diesel_subset_words(const struct diesel_subset *s, uint64_t *ret_n_samples)
{
	*ret_n_samples = subset_n_samples(s->chosen);
	return subset_data(s->chosen);
}

int diesel_subset_stranger(const struct diesel_dataset *dataset, const struct diesel_subset *s,
			   enum diesel_stranger kind, uint64_t *ret_sample)
{
	const struct snapshot_info *info = snapshot_info(dataset->snapshot);

	if (kind == DIESEL_NO_IMAGE ? info->names == SNAPSHOT_NAMES_IMAGES
				    : !snapshot_has_outsiders(dataset->snapshot))
		return 0;
	for (uint64_t i = next_of(s, 0); i < info->n_samples; i = next_of(s, i + 1)) {
		struct snapshot_sample sample;
		int r = dataset_look_up(dataset, i, &sample);

		if (r < 0)
			return r;
		if (kind == DIESEL_NO_IMAGE ? !snapshot_name_is_image(sample.path, sample.path_length)
					    : sample.class_index == SNAPSHOT_NO_CLASS) {
			*ret_sample = i;
			return 1;
		}
	}
	return 0;
}

int diesel_subset_bytes(const struct diesel_dataset *dataset, const struct diesel_subset *s,
			uint64_t *ret_bytes)
{
	uint64_t n_samples = n_samples_of(dataset), sum = 0;

	for (uint64_t i = next_of(s, 0); i < n_samples; i = next_of(s, i + 1)) {
		struct snapshot_sample sample;
		int r = dataset_look_up(dataset, i, &sample);

		if (r < 0)
			return r;
		sum += sample.bytes;
	}
	*ret_bytes = sum;
	return 0;
}
