/* SPDX-License-Identifier: Apache-2.0 */
/* Reads samples by number, without the daemon. */
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

	if (fetch_is_elsewhere(d->path))
		return fetch_store_open(d->path, d->shown.channel_fd, &d->store, err);
	r = store_open(d->path, false, &store, err);
	if (r == 0 && snapshot_info(d->snapshot)->is_compressed) {
		r = store_plain_open(store, zstd_decode, &d->store, err);
		if (r < 0)
			store_free(store);
	} else if (r == 0) {
		d->store = store;
	}
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

int diesel_dataset_read(struct diesel_dataset *dataset, uint64_t sample, void *buffer, size_t size,
			char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	struct snapshot_sample s;
	int r = dataset_look_up(dataset, sample, &s);

	if (r == -ERANGE)
		error_set(&err, r, "%s has no sample %llu", dataset->path, (unsigned long long)sample);
	else if (r < 0)
		error_set(&err, r,
			  "%s/" SNAPSHOT_FILE " is damaged: run `dieselctl snapshot %s` to rebuild it",
			  dataset->path, dataset->path);
	else
		r = open_store(dataset, &err);
	if (r == 0)
		r = sample_read(dataset->snapshot, dataset->store, &s, buffer, size, &err);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}
