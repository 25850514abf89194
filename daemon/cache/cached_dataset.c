/* SPDX-License-Identifier: Apache-2.0 */
#include "cached_dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "daemon/storage/shared_memory.h"

static int descending(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* Chooses the common size: the largest, unless that is more than twice the median. */
static int choose_sizes(struct cached_dataset *d)
{
	uint64_t n = d->info.n_chunks, sum = 0;
	_cleanup_(freep) uint64_t *sizes = calloc(n, sizeof(*sizes));

	if (!sizes)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		sizes[i] = d->chunks[i].bytes;
	qsort(sizes, n, sizeof(*sizes), descending);
	d->segment_bytes = sizes[0] <= 2 * sizes[n / 2] ? sizes[0] : sizes[n / 16];
	while (d->giants.n < n && sizes[d->giants.n] > d->segment_bytes)
		d->giants.n++;
	d->giants.bytes = calloc(d->giants.n + 1, sizeof(*d->giants.bytes));
	if (!d->giants.bytes)
		return -ENOMEM;
	for (uint64_t i = 0; i < d->giants.n; i++) {
		sum += sizes[i];
		d->giants.bytes[i + 1] = sum;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (d->chunks[i].bytes < d->segment_bytes)
			d->chunks[i].bytes = d->segment_bytes;
	}
	d->all_bytes = sum + (n - d->giants.n) * d->segment_bytes;
	return 0;
}

bool cached_is_still(struct cached_dataset *d, struct proof *proof)
{
	if (d->copy.original_fd >= 0)
		return true;
	if (proof->replaced || !access_stamp_equal(&d->copy.original, &proof->snapshot))
		return false;
	d->copy.original_fd = steal_fd(&proof->snapshot_fd);
	d->copy.chunks_fd = fcntl(proof->chunks_fd, F_DUPFD_CLOEXEC, 0);
	return true;
}

int cached_find_chunk(const struct cached_dataset *d, const struct chunk_id *id, uint64_t *ret)
{
	struct snapshot_chunk found = {0};
	uint64_t i = sorted_count(d->info.n_chunks, k,
				  snapshot_chunk_get(d->snapshot, k, &found) == 0 &&
				      chunk_id_compare(&found.id, id) < 0);

	if (snapshot_chunk_get(d->snapshot, i, &found) < 0 || chunk_id_compare(&found.id, id) != 0)
		return -ENOENT;
	*ret = i;
	return 0;
}

uint64_t cached_largest_bytes(const struct cached_dataset *d, uint64_t n)
{
	if (n > d->info.n_chunks)
		n = d->info.n_chunks;
	if (n <= d->giants.n)
		return d->giants.bytes[n];
	return d->giants.bytes[d->giants.n] + (n - d->giants.n) * d->segment_bytes;
}

uint64_t cached_need_bytes(const struct cached_dataset *d)
{
	return d->need_bytes < d->all_bytes ? d->need_bytes : d->all_bytes;
}

void cached_add_cursor(struct cached_dataset *d, struct cached_cursor *cursor)
{
	cursor->next = d->cursors;
	d->cursors = cursor;
}

void cached_drop_cursor(struct cached_dataset *d, struct cached_cursor *cursor)
{
	struct cached_cursor **link = &d->cursors;

	while (*link && *link != cursor)
		link = &(*link)->next;
	if (*link)
		*link = cursor->next;
}

uint32_t cached_next_use(const struct cached_dataset *d, uint64_t chunk)
{
	uint32_t nearest = POLICY_NEVER;
	bool is_gone = d->chunks[chunk].is_foreign && d->chunks[chunk].is_taken;

	for (const struct cached_cursor *k = d->cursors; k && !is_gone; k = k->next) {
		uint32_t visits = k->double_of ? POLICY_NEVER : policy_next_use(&k->place, chunk);

		if (visits < nearest)
			nearest = visits;
	}
	return nearest;
}

int cached_list_base(struct cached_dataset *d)
{
	return d->base ? 0 : snapshot_base_list(d->snapshot, &d->base);
}

static int load_chunk_table(struct cached_dataset *d, struct error *err)
{
	int r;

	d->info = *snapshot_info(d->snapshot);
	if (d->info.n_samples == 0 || d->info.n_chunks == 0)
		return error_set(err, -ENODATA, "%s holds no samples", d->path);
	/* A view's offset in its segment has 32 bits. */
	if (d->info.max_chunk_file_bytes == 0 || d->info.max_chunk_file_bytes > UINT32_MAX - CHUNK_ALIGN)
		return error_set(err, -EBADMSG,
				 "%s: cannot serve a chunk of %llu bytes: a chunk must have at least one "
				 "byte and less than 4 GiB",
				 d->path, (unsigned long long)d->info.max_chunk_file_bytes);
	d->chunks = calloc(d->info.n_chunks, sizeof(*d->chunks));
	if (!d->chunks)
		return error_errno(err, -ENOMEM, "cannot serve %s", d->path);
	for (uint64_t i = 0; i < d->info.n_chunks; i++) {
		struct snapshot_chunk chunk;

		r = snapshot_chunk_get(d->snapshot, i, &chunk);
		if (r < 0 || chunk.file_bytes == 0 || chunk.file_bytes > d->info.max_chunk_file_bytes)
			return error_set(err, -EBADMSG, "%s: bad chunk table", d->path);
		d->chunks[i].bytes = (chunk.file_bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
	}
	r = choose_sizes(d);
	return r < 0 ? error_errno(err, r, "cannot serve %s", d->path) : 0;
}

int cached_new(struct proof *proof, int copy_fd, struct cached_dataset **ret, struct error *err)
{
	struct cached_dataset *d = calloc(1, sizeof(*d));
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	int r;

	if (!d) {
		close(copy_fd);
		return error_errno(err, -ENOMEM, "cannot open the dataset");
	}
	proof_origin(proof, origin, sizeof(origin));
	d->identity = proof->identity;
	d->copy.fd = copy_fd;
	d->copy.bytes = proof->snapshot_bytes;
	d->copy.original = proof->snapshot;
	d->copy.original_fd = proof->snapshot_fd;
	d->copy.chunks_fd = fcntl(proof->chunks_fd, F_DUPFD_CLOEXEC, 0);
	proof->snapshot_fd = -EBADF;
	d->asked_bytes = UINT64_MAX;
	d->path = strdup(proof->path);
	r = d->path ? 0 : error_errno(err, -ENOMEM, "cannot open %s", origin);
	if (r == 0 && !shared_memory_is_sealed(copy_fd))
		r = error_set(err, -EPERM,
			      "%s: the in-memory copy of the snapshot is not sealed against changes", origin);
	if (r == 0)
		r = snapshot_open_fd(copy_fd, origin, &d->snapshot, err);
	if (r == 0)
		r = load_chunk_table(d, err);
	if (r < 0) {
		cached_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void cached_free(struct cached_dataset *d)
{
	if (!d)
		return;
	for (uint64_t i = 0; d->chunks && i < d->info.n_chunks; i++)
		free(d->chunks[i].error);
	if (d->residents.memory.data)
		shared_memory_free(&d->residents.memory);
	free(d->base);
	free(d->chunks);
	free(d->giants.bytes);
	free(d->victims.victims);
	free(d->mapped_victims.victims);
	snapshot_close(d->snapshot);
	closep(&d->copy.fd);
	closep(&d->copy.original_fd);
	closep(&d->copy.chunks_fd);
	free(d->path);
	free(d);
}

struct chunk_place *cached_add_place(struct cached_dataset *d, struct proof *proof)
{
	bool is_new;
	struct chunk_place *p = place_add(&d->places, proof->mount_id, steal_fd(&proof->chunks_fd), &is_new);

	if (p && is_new)
		cached_forget_errors(d);
	return p;
}

void cached_forget_errors(struct cached_dataset *d)
{
	for (uint64_t i = 0; i < d->info.n_chunks && d->loads.n_bad > 0; i++) {
		struct cached_chunk *c = &d->chunks[i];

		if (c->state != CHUNK_BAD)
			continue;
		free(c->error);
		c->error = NULL;
		c->state = CHUNK_ABSENT;
		d->loads.n_bad--;
	}
}
