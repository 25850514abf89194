/* SPDX-License-Identifier: Apache-2.0 */
#include "served.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "segment.h"

#define CHUNKS_DIRECTORY "chunks"

static void describe_fd(int fd, char *path, size_t size)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, size - 1);
	if (n < 0)
		n = snprintf(path, size, "the dataset");
	path[n] = '\0';
}

/* A descriptor opened with O_PATH, or for writing only, proves no right to read. */
static bool is_readable(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_WRONLY;
}

static int open_child(int dir_fd, const char *name, uint64_t flags, const char *path, struct stat *ret_stat,
		      int *ret_fd, struct error *err)
{
	_cleanup_(closep) int fd = access_open_beneath(dir_fd, name, flags);
	char what[PATH_MAX + 16];

	snprintf(what, sizeof(what), "%s/%s", path, name);
	if (fd < 0)
		return access_open_error(err, fd, what);
	if (fstat(fd, ret_stat) < 0)
		return error_errno(err, -errno, "cannot look at %s", what);
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int mount_of(int fd, uint64_t *ret)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0)
		return -errno;
	*ret = stx.stx_mask & STATX_MNT_ID ? stx.stx_mnt_id : PLACE_MOUNT_UNKNOWN;
	return 0;
}

/* Who may read the snapshot, which must be nobody who cannot enter `chunks`. */
static int find_rights(int snapshot_fd, const struct stat *snapshot, int chunks_fd, const struct stat *chunks,
		       const char *path, struct access_rights *ret, struct error *err)
{
	struct access_rights rights;
	char what[PATH_MAX + 16];
	int r;

	snprintf(what, sizeof(what), "%s/" SNAPSHOT_FILE, path);
	r = access_rights_get(snapshot_fd, snapshot, what, ret, err);
	snprintf(what, sizeof(what), "%s/" CHUNKS_DIRECTORY, path);
	if (r == 0)
		r = access_rights_get(chunks_fd, chunks, what, &rights, err);
	if (r < 0 || access_is_no_stricter(&rights, ACCESS_SEARCH, ret))
		return r;
	return access_stricter_error(err, what, &rights, ACCESS_SEARCH, ret);
}

int served_identify(int dir_fd, int snapshot_fd, struct served_proof *ret, struct error *err)
{
	_cleanup_(closep) int ours_fd = -EBADF, chunks_fd = -EBADF;
	struct stat directory, theirs, ours, chunks;
	struct served_proof proof = SERVED_PROOF_INIT;
	struct access_rights rights;
	char *path = proof.path;
	uint64_t mount_id = PLACE_MOUNT_UNKNOWN;
	int r;

	describe_fd(dir_fd, path, sizeof(proof.path));
	if (fstat(dir_fd, &directory) < 0 || fstat(snapshot_fd, &theirs) < 0)
		return error_errno(err, -errno, "cannot look at %s", path);
	if (!S_ISDIR(directory.st_mode) || !S_ISREG(theirs.st_mode) || !is_readable(snapshot_fd))
		return error_set(err, -EACCES, "%s: the client shows no readable snapshot", path);
	r = open_child(dir_fd, SNAPSHOT_FILE, O_PATH, path, &ours, &ours_fd, err);
	if (r == 0)
		r = open_child(dir_fd, CHUNKS_DIRECTORY, O_PATH | O_DIRECTORY, path, &chunks, &chunks_fd,
			       err);
	if (r < 0)
		return r;
	r = find_rights(snapshot_fd, &theirs, chunks_fd, &chunks, path, &rights, err);
	if (r < 0)
		return r;
	r = mount_of(chunks_fd, &mount_id);
	if (r < 0)
		return error_errno(err, r, "cannot look at %s/" CHUNKS_DIRECTORY, path);
	proof.identity = (struct served_identity){.directory_dev = directory.st_dev,
						  .directory_ino = directory.st_ino,
						  .snapshot_dev = theirs.st_dev,
						  .snapshot_ino = theirs.st_ino,
						  .chunks_dev = chunks.st_dev,
						  .chunks_ino = chunks.st_ino,
						  .rights = rights};
	proof.replaced = ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino;
	proof.snapshot = access_stamp(&theirs);
	proof.mount_id = mount_id;
	proof.snapshot_bytes = (uint64_t)theirs.st_size;
	proof.chunks_fd = steal_fd(&chunks_fd);
	proof.snapshot_fd = steal_fd(&ours_fd);
	*ret = proof;
	return 0;
}

void served_proof_close(struct served_proof *proof)
{
	closep(&proof->chunks_fd);
	closep(&proof->snapshot_fd);
	proof->chunks_fd = proof->snapshot_fd = -EBADF;
}

bool served_identity_equal(const struct served_identity *a, const struct served_identity *b)
{
	return a->directory_dev == b->directory_dev && a->directory_ino == b->directory_ino &&
	       a->snapshot_dev == b->snapshot_dev && a->snapshot_ino == b->snapshot_ino &&
	       a->chunks_dev == b->chunks_dev && a->chunks_ino == b->chunks_ino &&
	       access_rights_equal(&a->rights, &b->rights);
}

static void origin_of(const struct served_proof *proof, char *text, size_t size)
{
	snprintf(text, size, "%s/" SNAPSHOT_FILE, proof->path);
}

int served_copy(const struct served_proof *proof, int snapshot_fd, int *ret_copy_fd, struct error *err)
{
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	int r = shared_memory_copy_file("diesel-snapshot", snapshot_fd, proof->snapshot_bytes, ret_copy_fd);

	origin_of(proof, origin, sizeof(origin));
	return r < 0 ? error_errno(err, r, "cannot read %s", origin) : 0;
}

int served_verify(const struct served_proof *proof, int copy_fd, struct error *err)
{
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	struct snapshot *s = NULL;
	int r;

	origin_of(proof, origin, sizeof(origin));
	r = snapshot_open_fd(copy_fd, origin, &s, err);
	if (r == 0)
		r = snapshot_verify(s, err);
	snapshot_close(s);
	return r;
}

static int descending(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* The common size: the largest, unless that is more than twice the median. */
static int choose_sizes(struct served_dataset *d)
{
	uint64_t n = d->info.n_chunks, sum = 0;
	_cleanup_(freep) uint64_t *sizes = calloc(n, sizeof(*sizes));

	if (!sizes)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		sizes[i] = d->chunks[i].bytes;
	qsort(sizes, n, sizeof(*sizes), descending);
	d->segment_bytes = sizes[0] <= 2 * sizes[n / 2] ? sizes[0] : sizes[n / 16];
	while (d->n_giants < n && sizes[d->n_giants] > d->segment_bytes)
		d->n_giants++;
	d->giant_bytes = calloc(d->n_giants + 1, sizeof(*d->giant_bytes));
	if (!d->giant_bytes)
		return -ENOMEM;
	for (uint64_t i = 0; i < d->n_giants; i++) {
		sum += sizes[i];
		d->giant_bytes[i + 1] = sum;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (d->chunks[i].bytes < d->segment_bytes)
			d->chunks[i].bytes = d->segment_bytes;
	}
	d->all_bytes = sum + (n - d->n_giants) * d->segment_bytes;
	return 0;
}

bool served_is_still(struct served_dataset *d, struct served_proof *proof)
{
	if (d->original_fd >= 0)
		return true;
	if (proof->replaced || !access_stamp_equal(&d->original, &proof->snapshot))
		return false;
	d->original_fd = steal_fd(&proof->snapshot_fd);
	return true;
}

bool served_is_missing(const struct served_chunk *chunk)
{
	return chunk->state == CHUNK_ABSENT || chunk->state == CHUNK_CARRIED;
}

uint64_t served_largest_bytes(const struct served_dataset *d, uint64_t n)
{
	if (n > d->info.n_chunks)
		n = d->info.n_chunks;
	if (n <= d->n_giants)
		return d->giant_bytes[n];
	return d->giant_bytes[d->n_giants] + (n - d->n_giants) * d->segment_bytes;
}

uint64_t served_need_bytes(const struct served_dataset *d)
{
	return d->need_bytes < d->all_bytes ? d->need_bytes : d->all_bytes;
}

static int load_chunk_table(struct served_dataset *d, struct error *err)
{
	int r;

	d->info = *snapshot_info(d->snapshot);
	if (d->info.n_samples == 0 || d->info.n_chunks == 0)
		return error_set(err, -ENODATA, "%s holds no samples", d->path);
	/* A view's place in its segment has 32 bits. */
	if (d->info.max_chunk_file_bytes == 0 || d->info.max_chunk_file_bytes > UINT32_MAX - CHUNK_ALIGN)
		return error_set(err, -EBADMSG, "%s: cannot serve a chunk of %llu bytes", d->path,
				 (unsigned long long)d->info.max_chunk_file_bytes);
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

int served_new(struct served_proof *proof, int copy_fd, struct served_dataset **ret, struct error *err)
{
	struct served_dataset *d = calloc(1, sizeof(*d));
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	int r;

	if (!d) {
		close(copy_fd);
		return error_errno(err, -ENOMEM, "cannot open the dataset");
	}
	origin_of(proof, origin, sizeof(origin));
	d->identity = proof->identity;
	d->copy_fd = copy_fd;
	d->copy_bytes = proof->snapshot_bytes;
	d->original = proof->snapshot;
	d->original_fd = proof->snapshot_fd;
	proof->snapshot_fd = -EBADF;
	d->asked_bytes = UINT64_MAX;
	d->path = strdup(proof->path);
	r = d->path ? 0 : error_errno(err, -ENOMEM, "cannot open %s", origin);
	if (r == 0 && !shared_memory_is_sealed(copy_fd))
		r = error_set(err, -EPERM, "%s: its copy could still change", origin);
	if (r == 0)
		r = snapshot_open_fd(copy_fd, origin, &d->snapshot, err);
	if (r == 0)
		r = load_chunk_table(d, err);
	if (r < 0) {
		served_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void served_free(struct served_dataset *d)
{
	if (!d)
		return;
	for (uint64_t i = 0; d->chunks && i < d->info.n_chunks; i++)
		free(d->chunks[i].error);
	free(d->chunks);
	free(d->giant_bytes);
	snapshot_close(d->snapshot);
	closep(&d->copy_fd);
	closep(&d->original_fd);
	free(d->path);
	free(d);
}

struct place *served_add_place(struct served_dataset *d, struct served_proof *proof)
{
	bool is_new;
	struct place *p = place_add(&d->places, proof->mount_id, steal_fd(&proof->chunks_fd), &is_new);

	if (p && is_new)
		served_forget_errors(d);
	return p;
}

void served_forget_errors(struct served_dataset *d)
{
	for (uint64_t i = 0; i < d->info.n_chunks && d->n_bad > 0; i++) {
		struct served_chunk *c = &d->chunks[i];

		if (c->state != CHUNK_BAD)
			continue;
		free(c->error);
		c->error = NULL;
		c->state = CHUNK_ABSENT;
		d->n_bad--;
	}
}
