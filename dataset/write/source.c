/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/chunk/buffer.h"
#include "dataset/chunk.h"
#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/sorted.h"
#include "lib/text.h"

/* maximum depth of directories. Each level holds a file descriptor. A deeper tree is most probably a loop. */
#define MAX_DEPTH 128

/* A directory that is being walked, and the ones above it. */
struct level {
	const struct level *parent;
	dev_t device;
	ino_t inode;
	unsigned depth;
};

struct source_walk {
	const struct source_options *options;
	struct survey *survey;
	struct buffer files; /* struct source_file */
	struct buffer paths;
	uint64_t n_other;
	char path[CHUNK_NAME_MAX + 2]; /* path of the current entry */
	struct error *err;
};

static int report(struct source_walk *scan, int code, const char *what)
{
	char path[200];
	struct error err = ERROR_INIT;

	text_printable(path, sizeof(path), scan->path, strlen(scan->path));
	error_errno(&err, code, "cannot read %s%s%s%s", scan->options->root, *path ? "/" : "", path, what);
	int r = scan->options->unreadable(code, err.text, scan->options->context);

	if (r < 0 && scan->err)
		*scan->err = err;
	return r;
}

static uint64_t mtime_of(const struct stat *st)
{
	if (st->st_mtim.tv_sec < 0)
		return 0;
	return (uint64_t)st->st_mtim.tv_sec * NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
}

static int add_file(struct source_walk *scan, size_t length, const struct stat *st)
{
	const char *class = scan->survey->labels ? scan->survey->class_name : NULL;
	size_t prefix = class ? strlen(class) + 1 : 0;
	struct source_file file = {
	    .path_offset = scan->paths.bytes,
	    .bytes = (uint64_t)st->st_size,
	    .mtime_ns = mtime_of(st),
	    .path_length = (uint16_t)(prefix + length),
	    .prefix_length = (uint16_t)prefix,
	};

	if (prefix + length > CHUNK_NAME_MAX)
		return report(scan, -ENAMETOOLONG, ", with its class in front");
	if (class &&
	    (buffer_append(&scan->paths, class, prefix - 1) < 0 || buffer_append(&scan->paths, "/", 1) < 0))
		return error_errno(scan->err, -ENOMEM, "%s", scan->options->root);
	if (buffer_append(&scan->paths, scan->path, length + 1) < 0 ||
	    buffer_append(&scan->files, &file, sizeof(file)) < 0)
		return error_errno(scan->err, -ENOMEM, "%s", scan->options->root);
	return 0;
}

static int take_file(struct source_walk *scan, size_t length, const struct stat *st)
{
	int r = survey_file(scan->survey, scan->path, scan->err);

	return r > 0 ? add_file(scan, length, st) : r;
}

static int walk(struct source_walk *scan, int parent_fd, const char *name, size_t length,
		const struct level *parent);

static int visit(struct source_walk *scan, int dir_fd, const char *name, size_t start,
		 const struct level *level)
{
	size_t separator = start ? 1 : 0, length = start + separator + strlen(name);
	struct stat st;

	if (length > CHUNK_NAME_MAX)
		return report(scan, -ENAMETOOLONG, "/...");
	if (separator)
		scan->path[start] = '/';
	strcpy(scan->path + start + separator, name);
	int r = 0;

	if (fstatat(dir_fd, name, &st, 0) < 0)
		r = report(scan, -errno, errno == ENOENT ? " (a dangling link?)" : "");
	else if (S_ISREG(st.st_mode))
		r = take_file(scan, length, &st);
	else if (!S_ISDIR(st.st_mode))
		scan->n_other++;
	else if (st.st_dev == scan->options->exclude_device && st.st_ino == scan->options->exclude_inode)
		survey_leave_dataset(scan->survey, scan->path);
	else
		r = walk(scan, dir_fd, name, length, level);
	scan->path[start] = '\0';
	return r;
}

static bool is_above(const struct level *level, const struct stat *st)
{
	for (; level; level = level->parent)
		if (level->device == st->st_dev && level->inode == st->st_ino)
			return true;
	return false;
}

/* Enters a directory. Returns 1, or 0 if the directory is left out. */
static int enter(struct source_walk *scan, int fd, size_t length)
{
	bool is_root = length == 0;

	if (!scan->survey->as_files && meta_is_dataset(fd)) {
		if (is_root)
			return error_set(
			    scan->err, -EINVAL,
			    "%s is a dataset without a snapshot: run `dieselctl snapshot` on it to "
			    "pack its samples, or add --as-files to pack its files unchanged",
			    scan->options->root);
		survey_leave_dataset(scan->survey, scan->path);
		return 0;
	}
	return is_root ? 1 : survey_folder(scan->survey, scan->path, scan->err);
}

static int walk(struct source_walk *scan, int parent_fd, const char *name, size_t length,
		const struct level *parent)
{
	_cleanup_(closep) int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return report(scan, -errno, "");
	if (is_above(parent, &st))
		return report(scan, -ELOOP, " (a link that leads to a folder above it)");
	if (parent && parent->depth >= MAX_DEPTH)
		return report(scan, -ELOOP, " (more than 128 directories deep)");
	struct level level = {parent, st.st_dev, st.st_ino, parent ? parent->depth + 1 : 1};
	int r = enter(scan, fd, length);

	if (r <= 0)
		return r;
	DIR *dir = fdopendir(fd);

	if (!dir)
		return report(scan, -errno, "");
	r = 0;
	int dir_fd = steal_fd(&fd); /* closedir() closes it */

	for (struct dirent *entry; r == 0 && (errno = 0, entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = visit(scan, dir_fd, entry->d_name, length, &level);
	if (r == 0 && errno)
		r = report(scan, -errno, "");
	closedir(dir);
	return r;
}

static int compare_files(const void *a, const void *b, void *paths)
{
	const struct source_file *x = a, *y = b;

	return path_order_compare((struct path_text){(char *)paths + x->path_offset, x->path_length},
				  (struct path_text){(char *)paths + y->path_offset, y->path_length});
}

int source_scan(const struct source_options *options, struct survey *survey, struct pack_source **ret,
		struct error *err)
{
	_cleanup_(closep) int fd = open(options->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct source_walk scan = {.options = options, .survey = survey, .err = err};

	if (fd < 0)
		return error_errno(err, -errno, "cannot read the source %s", options->root);
	int r = walk(&scan, fd, ".", 0, NULL);

	if (r == 0)
		r = survey_end(survey, err);
	struct pack_source *s = r == 0 ? calloc(1, sizeof(*s)) : NULL;

	if (!s || !(s->root = strdup(options->root))) {
		free(s);
		buffer_free(&scan.files);
		buffer_free(&scan.paths);
		return r < 0 ? r : error_errno(err, -ENOMEM, "%s", options->root);
	}
	s->dir_fd = steal_fd(&fd);
	s->files = (struct source_file *)scan.files.data;
	s->n_files = scan.files.bytes / sizeof(*s->files);
	s->paths = (char *)scan.paths.data;
	s->n_other = scan.n_other;
	if (s->n_files)
		qsort_r(s->files, s->n_files, sizeof(*s->files), compare_files, s->paths);
	*ret = s;
	return 0;
}

void source_free(struct pack_source *s)
{
	if (!s)
		return;
	closep(&s->dir_fd);
	dataset_close(s->dataset);
	free(s->files);
	free(s->paths);
	free(s->root);
	free(s);
}

static int list_samples(struct pack_source *s)
{
	const struct snapshot *snapshot = dataset_snapshot(s->dataset);
	struct buffer paths = {0};
	int r = 0;

	s->n_files = snapshot_info(snapshot)->n_samples;
	s->files = calloc(s->n_files ? s->n_files : 1, sizeof(*s->files));
	for (size_t i = 0; i < s->n_files && r == 0; i++) {
		struct snapshot_sample sample;
		uint64_t number;

		r = s->files ? snapshot_by_path(snapshot, i, &number) : -ENOMEM;
		if (r == 0)
			r = snapshot_sample_stat(snapshot, number, &sample);
		if (r < 0)
			break;
		s->files[i] = (struct source_file){.path_offset = paths.bytes,
						   .bytes = sample.bytes,
						   .mtime_ns = sample.mtime_ns,
						   .xxh3 = sample.xxh3,
						   .path_length = sample.path_length};
		r = buffer_append(&paths, sample.path, sample.path_length);
		if (r == 0)
			r = buffer_append(&paths, "", 1);
	}
	s->paths = (char *)paths.data;
	return r;
}

int source_of_dataset(const char *path, struct pack_source **ret, struct error *err)
{
	struct pack_source *s = calloc(1, sizeof(*s));
	int r = s && (s->root = strdup(path)) ? 0 : error_errno(err, -ENOMEM, "%s", path);

	if (!s)
		return r;
	s->dir_fd = -EBADF;
	if (r == 0)
		r = dataset_open_version(path, 0, &s->dataset, err);
	if (r == 0 && (r = list_samples(s)) < 0)
		error_errno(err, r, "cannot list the samples of %s", path);
	if (r < 0)
		source_free(s);
	else
		*ret = s;
	return r;
}

struct source_file *source_find(const struct pack_source *s, struct path_text path)
{
	size_t at = sorted_count(s->n_files, i, path_order_compare(source_path(s, &s->files[i]), path) < 0);
	bool found = at < s->n_files && path_order_compare(source_path(s, &s->files[at]), path) == 0;

	return found ? &s->files[at] : NULL;
}
