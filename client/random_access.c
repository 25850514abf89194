/* SPDX-License-Identifier: Apache-2.0 */
/* Reads samples by number, through the daemon's cache or from storage. */
#include "client/diesel.h"

#include <errno.h>
#include <stdbool.h>

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

/* Entries to prefetch ahead (daemon/serve/batch.c). */
#define ENTRIES_AHEAD 8

int diesel_dataset_samples(const struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			   struct diesel_sample_info *rets)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		if (i + ENTRIES_AHEAD < n)
			snapshot_sample_prefetch(dataset->snapshot, samples[i + ENTRIES_AHEAD]);
		r = diesel_dataset_sample(dataset, samples[i], &rets[i]);
	}
	return r;
}

static int look_up(const struct diesel_dataset *d, uint64_t sample, struct snapshot_sample *ret,
		   struct error *err)
{
	int r = dataset_look_up(d, sample, ret);

	if (r == 0 && ret->chunk >= snapshot_info(d->snapshot)->n_chunks)
		r = -EBADMSG;
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

/* Samples that are looked up and read at a time. */
#define N_AT_ONCE 128

static int look_up_some(const struct diesel_dataset *d, const uint64_t *samples, uint32_t n,
			struct snapshot_sample *found, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		if (i + ENTRIES_AHEAD < n)
			snapshot_sample_prefetch(d->snapshot, samples[i + ENTRIES_AHEAD]);
		r = look_up(d, samples[i], &found[i], err);
	}
	return r;
}

/* Reads at most N_AT_ONCE samples that were looked up: out of memory, else with requests to the daemon, else
 * from storage. */
static int read_some(struct diesel_dataset *d, const uint64_t *samples, uint32_t n,
		     const struct snapshot_sample *found, void *const *buffers, struct error *err)
{
	uint64_t numbers[N_AT_ONCE];
	void *to[N_AT_ONCE];
	size_t sizes[N_AT_ONCE];
	uint32_t at[N_AT_ONCE];
	bool done[N_AT_ONCE];
	struct by_number_request rest = {numbers, to, sizes, 0};
	int r;

	if (resident_reader_copy(d->residents, d, found, buffers, n, done) == n)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		if (done[i])
			continue;
		numbers[rest.n] = samples[i];
		to[rest.n] = buffers[i];
		sizes[rest.n] = found[i].bytes;
		at[rest.n++] = i;
	}
	r = by_number_read(d->by_number, d, &rest);
	if (r != 0)
		return r < 0 ? r : 0;
	r = open_store(d, err);
	for (uint32_t i = 0; i < rest.n && r == 0; i++)
		r = sample_read(d->snapshot, d->store, &found[at[i]], to[i], sizes[i], err);
	return r;
}

int diesel_dataset_read_many(struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			     void *const *buffers, const size_t *sizes, char *error, size_t error_size)
{
	struct snapshot_sample found[N_AT_ONCE];
	struct error err = ERROR_INIT;
	int r = 0;

	for (uint32_t i = 0, n_now; i < n && r == 0; i += n_now) {
		n_now = n - i < N_AT_ONCE ? n - i : N_AT_ONCE;
		r = look_up_some(dataset, samples + i, n_now, found, &err);
		for (uint32_t k = 0; k < n_now && r == 0; k++)
			if (sizes[i + k] < found[k].bytes)
				r = error_set(
				    &err, -EINVAL, "the buffer of sample %llu has %zu bytes, but needs %u",
				    (unsigned long long)samples[i + k], sizes[i + k], found[k].bytes);
		if (r == 0)
			r = read_some(dataset, samples + i, n_now, found, buffers + i, &err);
	}
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}

/* Sets where each sample begins, and the end of the last one. */
static int find_offsets(const struct diesel_dataset *d, const uint64_t *samples, uint32_t n,
			uint64_t *offsets, struct error *err)
{
	struct snapshot_sample found;

	offsets[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		int r = look_up(d, samples[i], &found, err);

		if (r < 0)
			return r;
		offsets[i + 1] = offsets[i] + found.bytes;
	}
	return 0;
}

int diesel_dataset_read_packed(struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			       void *buffer, size_t size, uint64_t *offsets, char *error, size_t error_size)
{
	struct snapshot_sample found[N_AT_ONCE];
	void *buffers[N_AT_ONCE];
	struct error err = ERROR_INIT;
	uint64_t used = 0;
	int r = 0;

	if (offsets)
		r = find_offsets(dataset, samples, n, offsets, &err);
	if (r == 0 && offsets && offsets[n] > size)
		r = -ENOBUFS;
	else if (offsets && !buffer)
		n = 0; /* nothing to read: a forked child may not use the connection for it */
	for (uint32_t i = 0, n_now; i < n && r == 0; i += n_now) {
		n_now = n - i < N_AT_ONCE ? n - i : N_AT_ONCE;
		r = look_up_some(dataset, samples + i, n_now, found, &err);
		for (uint32_t k = 0; k < n_now && r == 0; k++) {
			buffers[k] = (uint8_t *)buffer + used;
			used += found[k].bytes;
			r = used > size ? -ENOBUFS : 0;
		}
		if (r == 0)
			r = read_some(dataset, samples + i, n_now, found, buffers, &err);
	}
	if (r == -ENOBUFS)
		error_set(&err, r, "the buffer of %zu bytes is too small for %u samples", size, n);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}
