/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/text.h"

#define TMP_FILE ".snapshot.tmp"

struct build_context {
	struct snapshot_builder *builder;
	struct error *err;
};

static int add_chunk(const struct meta_chunk *chunk, void *context)
{
	struct build_context *c = context;
	int r = snapshot_builder_add_chunk(c->builder, chunk);

	return r < 0 ? error_errno(c->err, r, "snapshot") : 0;
}

static int add_path(const struct meta_path *path, void *context)
{
	struct build_context *c = context;
	char text[200];
	int r = snapshot_builder_add_path(c->builder, path);

	if (r == -EINVAL)
		return error_set(c->err, -EBADMSG,
				 "meta.db: '%s' lies in an unknown chunk; run `dieselctl rebuild`",
				 text_printable(text, sizeof(text), path->path, path->path_length));
	return r < 0 ? error_errno(c->err, r, "snapshot") : 0;
}

int snapshot_build(struct meta *meta, uint64_t version, uint64_t created_ns, void **ret_image,
		   size_t *ret_bytes, struct error *err)
{
	struct build_context c = {.err = err};
	int r = snapshot_builder_new(&c.builder);

	if (r < 0)
		return error_errno(err, r, "snapshot");
	r = meta_each_chunk(meta, add_chunk, &c, err);
	if (r == 0)
		r = meta_each_path(meta, add_path, &c, err);
	if (r == 0)
		r = snapshot_builder_finish(c.builder, version, created_ns, ret_image, ret_bytes, err);
	snapshot_builder_free(c.builder);
	return r;
}

int snapshot_stage(int dataset_fd, const char *dataset_path, const void *image, size_t bytes,
		   struct error *err)
{
	unlinkat(dataset_fd, TMP_FILE,
		 0); /* left by a dead writer, because the caller holds the writer lock */
	_cleanup_(closep) int fd =
	    openat(dataset_fd, TMP_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);

	if (fd < 0)
		return error_errno(err, -errno, "cannot create %s/" TMP_FILE, dataset_path);
	int r = fd_write(fd, image, bytes);

	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (close(steal_fd(&fd)) < 0 && r == 0)
		r = -errno;
	if (r < 0) {
		snapshot_unstage(dataset_fd);
		return error_errno(err, r, "cannot write %s/" TMP_FILE, dataset_path);
	}
	return 0;
}

int snapshot_publish(int dataset_fd, const char *dataset_path, struct error *err)
{
	if (renameat(dataset_fd, TMP_FILE, dataset_fd, SNAPSHOT_FILE) < 0 || fsync(dataset_fd) < 0)
		return error_errno(err, -errno,
				   "cannot publish %s/" SNAPSHOT_FILE "; run `dieselctl snapshot`",
				   dataset_path);
	return 0;
}

void snapshot_unstage(int dataset_fd)
{
	unlinkat(dataset_fd, TMP_FILE, 0);
}
