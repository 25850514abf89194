/* SPDX-License-Identifier: Apache-2.0 */
#include "truth_files.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/error.h"

#define READ_BYTES (1 << 20)

static void ftsp(FTS **tree)
{
	if (*tree)
		fts_close(*tree);
}

struct path_list {
	char **paths;
	size_t n, capacity;
};

static int path_add(struct path_list *list, const char *path, size_t length)
{
	if (array_reserve(list->paths, list->n, list->capacity) < 0)
		return -ENOMEM;
	list->paths[list->n] = strndup(path, length);
	if (!list->paths[list->n])
		return -ENOMEM;
	list->n++;
	return 0;
}

static void path_list_free(struct path_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->paths[i]);
	free(list->paths);
}

static int path_compare(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Returns the list's files, sorted, without duplicates. Consumes the list. */
static struct truth_files files_of(struct path_list *list)
{
	size_t kept = 0;

	if (list->n)
		qsort(list->paths, list->n, sizeof(*list->paths), path_compare);
	for (size_t i = 0; i < list->n; i++) {
		if (kept && !strcmp(list->paths[kept - 1], list->paths[i]))
			free(list->paths[i]);
		else
			list->paths[kept++] = list->paths[i];
	}
	return (struct truth_files){list->paths, kept};
}

int truth_files_below(const char *folder, struct truth_files *ret_files, struct error *err)
{
	char *const roots[] = {(char *)(uintptr_t)folder, NULL}; /* fts does not change the strings */
	_cleanup_(ftsp) FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	struct path_list list = {0};
	FTSENT *entry;

	if (!tree)
		return error_errno(err, -errno, "cannot read %s", folder);
	while ((entry = fts_read(tree))) {
		if (entry->fts_level == FTS_ROOTLEVEL && entry->fts_errno) {
			path_list_free(&list);
			return error_errno(err, -entry->fts_errno, "cannot read %s", folder);
		}
		if (entry->fts_info == FTS_F && path_add(&list, entry->fts_path, entry->fts_pathlen)) {
			path_list_free(&list);
			return error_errno(err, -ENOMEM, "cannot list the files below %s", folder);
		}
	}
	*ret_files = files_of(&list);
	return 0;
}

int truth_files_parse(const char *text, struct truth_files *ret_files)
{
	struct path_list list = {0};

	for (const char *line = text; *line;) {
		size_t length = strcspn(line, "\n");
		struct stat status;

		if (path_add(&list, line, length)) {
			path_list_free(&list);
			return -ENOMEM;
		}
		if (stat(list.paths[list.n - 1], &status) || !S_ISREG(status.st_mode))
			free(list.paths[--list.n]);
		line += length;
		line += *line == '\n';
	}
	*ret_files = files_of(&list);
	return 0;
}

/* Opens a regular file, and stores its size. Returns a descriptor; < 0: not a regular file, or not
 * readable. */
static int open_regular(const char *path, uint64_t *ret_bytes)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat status;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &status))
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	*ret_bytes = (uint64_t)status.st_size;
	return steal_fd(&fd);
}

void truth_files_evict(const struct truth_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		uint64_t bytes;
		_cleanup_(closep) int fd = open_regular(files->paths[i], &bytes);

		if (fd < 0)
			continue;
		fdatasync(fd); /* the kernel does not drop dirty pages */
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
}

void truth_files_warm(const struct truth_files *files)
{
	_cleanup_(freep) char *buffer = malloc(READ_BYTES);

	for (size_t i = 0; buffer && i < files->n; i++) {
		uint64_t bytes;
		_cleanup_(closep) int fd = open_regular(files->paths[i], &bytes);

		while (fd >= 0 && read(fd, buffer, READ_BYTES) > 0)
			;
	}
}

/* Returns the bytes of the file in the page cache. -errno: the kernel does not report them. */
static int64_t cached_bytes(int fd, uint64_t bytes)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t n_pages = (bytes + page_bytes - 1) / page_bytes, n_cached = 0;
	_cleanup_(freep) unsigned char *pages = malloc(n_pages);
	void *map;
	int r = 0;

	if (!pages)
		return -ENOMEM;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (mincore(map, bytes, pages))
		r = -errno;
	munmap(map, bytes);
	for (uint64_t i = 0; r == 0 && i < n_pages; i++)
		n_cached += pages[i] & 1;
	return r < 0 ? r : (int64_t)(n_cached * page_bytes < bytes ? n_cached * page_bytes : bytes);
}

/* Returns true if mincore() is reliable for this file. For files of other users it reports that all pages
 * are cached. */
static bool tells_residence(int fd)
{
	struct stat status;

	return geteuid() == 0 || (!fstat(fd, &status) && status.st_uid == geteuid()) ||
	       !faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS);
}

void truth_files_residence(const struct truth_files *files, struct truth_residence *ret_residence)
{
	struct truth_residence residence = {0};

	for (size_t i = 0; i < files->n; i++) {
		uint64_t bytes;
		_cleanup_(closep) int fd = open_regular(files->paths[i], &bytes);
		int64_t cached;

		if (fd < 0) {
			residence.n_unreadable++;
			continue;
		}
		if (!bytes)
			continue;
		cached = tells_residence(fd) ? cached_bytes(fd, bytes) : -EPERM;
		if (cached < 0) {
			residence.n_unknown++;
			continue;
		}
		residence.bytes += bytes;
		residence.cached_bytes += (uint64_t)cached;
	}
	*ret_residence = residence;
}
