/* SPDX-License-Identifier: Apache-2.0 */
#include "served.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "segment.h"

#define CHUNKS_DIRECTORY "chunks"

static int open_beneath(int dir_fd, const char *name, uint64_t flags)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

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

int served_identify(int dir_fd, int snapshot_fd, struct served_identity *ret_identity, bool *ret_replaced,
		    struct error *err)
{
	struct stat directory, theirs, ours;
	_cleanup_(closep) int fd = -EBADF;
	char path[PATH_MAX];

	describe_fd(dir_fd, path, sizeof(path));
	if (fstat(dir_fd, &directory) < 0 || fstat(snapshot_fd, &theirs) < 0)
		return error_errno(err, -errno, "cannot look at %s", path);
	if (!S_ISDIR(directory.st_mode) || !S_ISREG(theirs.st_mode) || !is_readable(snapshot_fd))
		return error_set(err, -EACCES, "%s: the client shows no readable snapshot", path);
	fd = open_beneath(dir_fd, SNAPSHOT_FILE, O_PATH);
	if (fd < 0)
		return error_errno(err, fd, "dieseld cannot open %s/" SNAPSHOT_FILE, path);
	if (fstat(fd, &ours) < 0)
		return error_errno(err, -errno, "cannot look at %s/" SNAPSHOT_FILE, path);
	*ret_replaced = ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino;
	*ret_identity = (struct served_identity){.directory_dev = directory.st_dev,
						 .directory_ino = directory.st_ino,
						 .snapshot_dev = theirs.st_dev,
						 .snapshot_ino = theirs.st_ino};
	return 0;
}

bool served_identity_equal(const struct served_identity *a, const struct served_identity *b)
{
	return a->directory_dev == b->directory_dev && a->directory_ino == b->directory_ino &&
	       a->snapshot_dev == b->snapshot_dev && a->snapshot_ino == b->snapshot_ino;
}

static int load_snapshot(struct served_dataset *d, int snapshot_fd, uint64_t max_bytes, struct error *err)
{
	struct stat st;
	char origin[PATH_MAX + sizeof(SNAPSHOT_FILE) + 1];
	int r;

	snprintf(origin, sizeof(origin), "%s/" SNAPSHOT_FILE, d->path);
	if (fstat(snapshot_fd, &st) < 0)
		return error_errno(err, -errno, "cannot look at %s", origin);
	d->copy_bytes = (uint64_t)st.st_size;
	if (d->copy_bytes > max_bytes)
		return error_set(
		    err, -ENOSPC,
		    "%s takes %llu MiB of memory and the cache has room for %llu MiB: start dieseld "
		    "with a larger --cache",
		    origin, (unsigned long long)(d->copy_bytes >> 20), (unsigned long long)(max_bytes >> 20));
	r = shared_memory_copy_file("diesel-snapshot", snapshot_fd, d->copy_bytes, &d->copy_fd);
	if (r < 0)
		return error_errno(err, r, "cannot read %s", origin);
	r = snapshot_open_fd(d->copy_fd, origin, &d->snapshot, err);
	if (r < 0)
		return r;
	return snapshot_verify(d->snapshot, err);
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

uint64_t served_largest_bytes(const struct served_dataset *d, uint64_t n)
{
	if (n > d->info.n_chunks)
		n = d->info.n_chunks;
	if (n <= d->n_giants)
		return d->giant_bytes[n];
	return d->giant_bytes[d->n_giants] + (n - d->n_giants) * d->segment_bytes;
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

int served_load(int dir_fd, int snapshot_fd, const struct served_identity *identity, uint64_t max_bytes,
		struct served_dataset **ret, struct error *err)
{
	struct served_dataset *d = calloc(1, sizeof(*d));
	char path[PATH_MAX];
	int r;

	if (!d)
		return error_errno(err, -ENOMEM, "cannot open the dataset");
	describe_fd(dir_fd, path, sizeof(path));
	d->identity = *identity;
	d->copy_fd = d->chunks_fd = -EBADF;
	d->asked_bytes = UINT64_MAX;
	d->path = strdup(path);
	d->original_fd = fcntl(snapshot_fd, F_DUPFD_CLOEXEC, 3);
	r = d->path && d->original_fd >= 0 ? 0 : error_errno(err, -ENOMEM, "cannot open %s", path);
	if (r == 0)
		r = load_snapshot(d, snapshot_fd, max_bytes, err);
	if (r == 0) {
		d->chunks_fd = open_beneath(dir_fd, CHUNKS_DIRECTORY, O_PATH | O_DIRECTORY);
		if (d->chunks_fd < 0)
			r = error_errno(err, d->chunks_fd, "dieseld cannot open %s/" CHUNKS_DIRECTORY, path);
	}
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
	closep(&d->chunks_fd);
	closep(&d->copy_fd);
	closep(&d->original_fd);
	free(d->path);
	free(d);
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
