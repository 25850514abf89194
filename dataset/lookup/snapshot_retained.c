/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot_retained.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/snapshot.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "lib/sorted.h"
#include "snapshot_format.h"

const char *snapshot_retained_name(uint64_t version, char name[SNAPSHOT_RETAINED_NAME])
{
	snprintf(name, SNAPSHOT_RETAINED_NAME, SNAPSHOT_RETAINED_FOLDER "/%" PRIu64, version);
	return name;
}

const char *snapshot_retained_file(uint64_t version, char name[SNAPSHOT_RETAINED_NAME])
{
	return snapshot_retained_name(version, name) + strlen(SNAPSHOT_RETAINED_FOLDER "/");
}

int snapshot_retained_folder(int dataset_fd)
{
	int fd =
	    openat(dataset_fd, SNAPSHOT_RETAINED_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

uint64_t snapshot_retained_version(int fd)
{
	struct snapshot_header h;
	size_t done = 0, bytes = offsetof(struct snapshot_header, n_samples);

	if (fd_read_at(fd, &h, bytes, 0, &done) < 0 || done < bytes ||
	    memcmp(h.magic, SNAPSHOT_MAGIC, sizeof(h.magic)) != 0)
		return 0;
	return h.version;
}

int snapshot_retained_list(int dataset_fd, uint64_t **ret, size_t *ret_n)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	size_t n = 0, n_allocated = 0;
	int fd = snapshot_retained_folder(dataset_fd);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	int r = dir || fd == -ENOENT ? 0 : fd < 0 ? fd : -errno;

	if (!dir)
		closep(&fd);
	for (const struct dirent *entry; dir && r == 0 && (entry = readdir(dir));) {
		char name[SNAPSHOT_RETAINED_NAME];
		uint64_t version = strtoull(entry->d_name, NULL, 10);

		/* Accepts only the canonical spelling of a version's file name. */
		if (version == 0 || strcmp(snapshot_retained_file(version, name), entry->d_name) != 0)
			continue;
		r = array_reserve(versions, n, n_allocated);
		if (r == 0)
			versions[n++] = version;
	}
	if (dir)
		closedir(dir);
	if (r < 0)
		return r;
	if (n)
		qsort(versions, n, sizeof(*versions), compare_u64);
	*ret = steal_pointer(versions);
	*ret_n = n;
	return 0;
}

static int not_kept(int dataset_fd, const char *dataset_path, uint64_t version, uint64_t newest,
		    struct error *err)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	size_t n = 0;

	if (version > newest)
		return error_set(err, -ENOENT, SNAPSHOT_NO_VERSION, dataset_path, version, newest);
	if (snapshot_retained_list(dataset_fd, &versions, &n) < 0 || n == 0)
		return error_set(err, -ENOENT,
				 SNAPSHOT_NOT_RETAINED "; the only one is of the newest version, %" PRIu64,
				 dataset_path, version, newest);
	return error_set(err, -ENOENT,
			 SNAPSHOT_NOT_RETAINED "; the kept versions are %" PRIu64 " to %" PRIu64
					       ", and `dieselctl snapshot --version %" PRIu64
					       "` makes it again unless that version was purged",
			 dataset_path, version, versions[0], newest, version);
}

int snapshot_retained_open(int dataset_fd, const char *dataset_path, uint64_t version, int *ret_fd,
			   struct error *err)
{
	char name[SNAPSHOT_RETAINED_NAME];
	_cleanup_(closep) int folder_fd = snapshot_retained_folder(dataset_fd);
	_cleanup_(closep) int newest_fd = -EBADF,
			      fd = folder_fd < 0 ? folder_fd
						 : file_to_read(folder_fd,
								snapshot_retained_file(version, name), false);

	snapshot_retained_name(version, name);
	if (fd < 0 && fd != -ENOENT && fd != -ENOTDIR)
		return error_errno(err, fd, "may not read %s/%s", dataset_path, name);
	if (fd >= 0 && snapshot_retained_version(fd) != version)
		return error_set(
		    err, -EBADMSG,
		    "%s/%s does not hold the snapshot of the version in its name: remove the file",
		    dataset_path, name);
	if (fd < 0) {
		newest_fd = file_to_read(dataset_fd, SNAPSHOT_FILE, false);
		if (newest_fd < 0)
			return error_errno(err, newest_fd, "may not read %s/" SNAPSHOT_FILE, dataset_path);
		uint64_t newest = snapshot_retained_version(newest_fd);

		if (newest != version)
			return not_kept(dataset_fd, dataset_path, version, newest, err);
		fd = steal_fd(&newest_fd);
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}
