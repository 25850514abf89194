/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "snapshot_cache.h"

#define COPY_BYTES ((size_t)1 << 20)

/* Passes the bytes of a file to a digest (to_fd < 0), or copies them. */
static int pass_on(int fd, int to_fd, struct digest *ret)
{
	_cleanup_(freep) void *buffer = malloc(COPY_BYTES);
	struct digest_stream *stream = NULL;
	size_t done = 1;
	int r = buffer ? digest_stream_new(&stream) : -ENOMEM;

	for (uint64_t offset = 0; r == 0 && done > 0; offset += done) {
		r = fd_read_at(fd, buffer, COPY_BYTES, offset, &done);
		if (r == 0)
			r = to_fd < 0 ? digest_stream_add(stream, buffer, done)
				      : fd_write_at(to_fd, buffer, done, offset);
	}
	if (r == 0 && to_fd < 0)
		r = digest_stream_finish(stream, ret);
	digest_stream_free(stream);
	return r;
}

int snapshot_private_copy(const char *name, int fd, char **ret_folder, int *ret_fd, struct error *err)
{
	struct manifest m = {.version = snapshot_retained_version(fd)};
	_cleanup_(closep) int cache_fd = -EBADF, to_fd = -EBADF;
	_cleanup_(freep) char *folder = NULL, *path = NULL;
	bool is_whole;
	int r = pass_on(fd, -EBADF, &m.snapshot.sha256);

	if (r < 0)
		return error_errno(err, r, "cannot read the snapshot of %s", name);
	r = snapshot_cache_open(name, &m, &folder, &cache_fd, &is_whole, err);
	if (r < 0)
		return r;
	if (!is_whole) {
		if (asprintf(&path, "%s/" SNAPSHOT_CACHE_PART, folder) < 0)
			return error_errno(err, -ENOMEM, "%s", name);
		to_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		r = to_fd < 0 ? -errno : pass_on(fd, to_fd, NULL);
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
