/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "snapshot_cache.h"

#define COPY_BYTES ((size_t)1 << 20)

/* Computes the length and the digest of a file, and copies it if to_fd >= 0. */
static int pass_on(int fd, int to_fd, struct manifest_part *ret)
{
	_cleanup_(freep) void *buffer = malloc(COPY_BYTES);
	struct digest_stream *stream = NULL;
	struct manifest_part found = {0};
	size_t done = 1;
	int r = buffer ? digest_stream_new(&stream) : -ENOMEM;

	while (r == 0 && done > 0) {
		r = fd_read_at(fd, buffer, COPY_BYTES, found.bytes, &done);
		if (r == 0)
			r = digest_stream_add(stream, buffer, done);
		if (r == 0 && to_fd >= 0)
			r = fd_write_at(to_fd, buffer, done, found.bytes);
		found.bytes += done;
	}
	if (r == 0)
		r = digest_stream_finish(stream, &found.sha256);
	digest_stream_free(stream);
	if (r == 0)
		*ret = found;
	return r;
}

/* Checks the file before anything of its length is written. */
static int check_snapshot(const char *name, int fd, struct error *err)
{
	struct snapshot *s;
	int r = snapshot_open_fd(fd, name, &s, err);

	if (r < 0)
		return r;
	r = snapshot_verify_tables(s, err);
	snapshot_close(s);
	return r;
}

int snapshot_private_copy(const char *name, int fd, char **ret_folder, int *ret_fd, struct error *err)
{
	struct manifest m = {.version = snapshot_retained_version(fd)};
	_cleanup_(closep) int cache_fd = -EBADF, to_fd = -EBADF;
	_cleanup_(freep) char *folder = NULL, *path = NULL;
	bool is_whole;
	struct manifest_part copied;
	int r = check_snapshot(name, fd, err);

	if (r < 0)
		return r;
	r = pass_on(fd, -EBADF, &m.snapshot);
	if (r < 0)
		return error_errno(err, r, "cannot read the snapshot of %s", name);
	r = snapshot_cache_open(name, &m, &folder, &cache_fd, &is_whole, err);
	if (r < 0)
		return r;
	if (!is_whole) {
		if (asprintf(&path, "%s/" SNAPSHOT_CACHE_PART, folder) < 0)
			return error_errno(err, -ENOMEM, "%s", name);
		to_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		r = to_fd < 0 ? -errno : pass_on(fd, to_fd, &copied);
		/* The owner may have written to it meanwhile. */
		if (r == 0 &&
		    (copied.bytes != m.snapshot.bytes || !digest_equal(&copied.sha256, &m.snapshot.sha256)))
			r = -ESTALE;
		if (r < 0)
			return error_errno(err, r, "cannot write %s", path);
		r = snapshot_cache_keep(folder, cache_fd, err);
		if (r < 0)
			return r;
	}
	*ret_folder = steal_pointer(folder);
	*ret_fd = steal_fd(&cache_fd);
	return 0;
}
