/* SPDX-License-Identifier: Apache-2.0 */
/* Reads samples by number, through the daemon's cache or from storage. */
#include "client/diesel.h"

#include <errno.h>

#include "dataset.h"
#include "client/elsewhere/fetch.h"
#include "dataset/fairness.h"
#include "dataset/sample.h"
#include "client/elsewhere/zstd_decode.h"

int diesel_dataset_sample(const struct diesel_dataset *dataset, uint64_t sample,
			  struct diesel_sample_info *ret)
{
	struct snapshot_sample s;
	int r = dataset_look_up(dataset, sample, &s);

	if (r < 0)
		return r;
	*ret = (struct diesel_sample_info){.bytes = s.bytes, .label = s.class_index};
	return 0;
}

int diesel_dataset_labels(const struct diesel_dataset *dataset, int64_t *labels)
{
	uint64_t n_samples = snapshot_info(dataset->snapshot)->n_samples;

	for (uint64_t i = 0; i < n_samples; i++) {
		struct snapshot_sample s;
		int r = dataset_look_up(dataset, i, &s);

		if (r < 0)
			return r;
		labels[i] = s.class_index;
	}
	return 0;
}

int diesel_dataset_is_fair(const struct diesel_dataset *dataset)
{
	struct fairness fairness;
	int r = snapshot_fairness(dataset->snapshot, &fairness);

	return r < 0 ? r : fairness_is_fair(&fairness);
}

/* For a bucket, the fetcher process delivers decompressed chunks. For a folder, this process reads the files
 * itself. */
static int open_own_store(struct diesel_dataset *d, struct error *err)
{
	struct store *store;
	int r;

	if (d->is_fetched)
		return fetch_store_open(d->path, d->shown.channel_fd, &d->store, err);
	r = store_open(d->path, false, &store, err);
	if (r < 0)
		return r;
	r = store_of_snapshot(store, snapshot_info(d->snapshot), zstd_decode, &d->store, err);
	if (r < 0)
		store_free(store);
	return r;
}

static int open_store(struct diesel_dataset *d, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&d->store_lock);
	if (!d->store)
		r = open_own_store(d, err);
	pthread_mutex_unlock(&d->store_lock);
	return r;
}

int diesel_dataset_samples(const struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			   struct diesel_sample_info *rets)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++)
		r = diesel_dataset_sample(dataset, samples[i], &rets[i]);
	return r;
}

static int look_up(const struct diesel_dataset *d, uint64_t sample, struct snapshot_sample *ret,
		   struct error *err)
{
	int r = dataset_look_up(d, sample, ret);

	if (r == -ERANGE)
		return error_set(err, r, "%s has no sample %llu", d->path, (unsigned long long)sample);
	if (r < 0)
		return error_set(err, r,
				 "%s/" SNAPSHOT_FILE " is damaged: run `dieselctl snapshot %s` to rebuild it",
				 d->path, d->path);
	return 0;
}

int diesel_dataset_read(struct diesel_dataset *dataset, uint64_t sample, void *buffer, size_t size,
			char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	struct snapshot_sample s;
	int r = look_up(dataset, sample, &s, &err);

	if (r == 0)
		r = open_store(dataset, &err);
	if (r == 0)
		r = sample_read(dataset->snapshot, dataset->store, &s, buffer, size, &err);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}

int diesel_dataset_read_many(struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			     void *const *buffers, const size_t *sizes, char *error, size_t error_size)
{
	const struct by_number_request request = {samples, buffers, sizes, n};
	struct error err = ERROR_INIT;
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct snapshot_sample s;

		r = look_up(dataset, samples[i], &s, &err);
		if (r == 0 && sizes[i] < s.bytes)
			r = error_set(&err, -EINVAL, "the buffer of sample %llu has %zu bytes, but needs %u",
				      (unsigned long long)samples[i], sizes[i], s.bytes);
	}
	if (r == 0)
		r = by_number_read(dataset->by_number, dataset, &request);
	if (r < 0)
		return report_error(&err, r, error, error_size);
	if (r > 0)
		return 0;
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = diesel_dataset_read(dataset, samples[i], buffers[i], sizes[i], error, error_size);
	return r;
}
