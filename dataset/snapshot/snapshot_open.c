/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checksum.h"
#include "lib/cleanup.h"
#include "snapshot_map.h"

static bool is_whole(const struct snapshot_header *h)
{
	return checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3)) ==
	       h->header_xxh3;
}

int snapshot_open_fd(int fd, const char *origin, struct snapshot **ret, struct error *err)
{
	return snapshot_map_checked(fd, origin, is_whole, ret, err);
}

int snapshot_open(const char *dataset_path, struct snapshot **ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	struct stat st;

	if (asprintf(&path, "%s/" SNAPSHOT_FILE, dataset_path) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return snapshot_open_fd(fd, path, ret, err);
	int r = -errno;

	if (r != -ENOENT && r != -ENOTDIR)
		return error_errno(err, r, "cannot open %s", path);
	if (stat(dataset_path, &st) < 0)
		return error_set(err, r, "there is no dataset %s; make one with `dieselctl pack SOURCE %s`",
				 dataset_path, dataset_path);
	return error_set(
	    err, r,
	    "%s is no dataset (it has no snapshot); make one with `dieselctl pack SOURCE DATASET`, or, if "
	    "it has chunks, run `dieselctl snapshot %s`",
	    dataset_path, dataset_path);
}
