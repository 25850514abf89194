/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A folder of files as a source of samples: the regular files below it, in tree order (path_order.h).
 *
 * Symbolic links are followed, to files and to directories, as torchvision's ImageFolder does; a link that
 * leads back to a directory it lies in is an error. FIFOs, sockets and devices are left out and counted. So
 * are the files and folders that the survey leaves out, such as datasets.
 */

#include "dataset/dataset.h"
#include "dataset/path_order.h"
#include "dataset/survey.h"
#include "lib/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct source_file {
	uint64_t path_offset;
	uint64_t bytes;
	uint64_t mtime_ns;
	uint64_t xxh3; /* of a dataset's sample; 0: not known */
	uint16_t path_length;
	uint16_t prefix_length; /* of the path's part that the file does not have: its class and a slash */
	bool skip;              /* set by the packer if it has this file already */
};

struct pack_source {
	char *root; /* path of the root as given, for error texts */
	int dir_fd;
	struct dataset *dataset; /* the source is a dataset, whose samples are the files; NULL: a folder */
	struct source_file *files;
	size_t n_files;
	char *paths;      /* of the samples, each with a terminator */
	uint64_t n_other; /* files that are not regular */
};

/* Called for each file or folder that cannot be read. A result other than 0 ends the walk, which returns it.
 */
typedef int source_unreadable_callback(int code, const char *text, void *context);

struct source_options {
	const char *root;
	/* A directory to leave out: the dataset's, which may lie in the source; 0: none. */
	dev_t exclude_device;
	ino_t exclude_inode;
	source_unreadable_callback *unreadable;
	void *context; /* of unreadable */
};

/* Lists the source's files and completes the survey. Errors as those of the survey; -errno. */
int source_scan(const struct source_options *options, struct survey *survey, struct pack_source **ret,
		struct error *err);
/* Lists the samples of a dataset, in tree order. Errors as dataset_open_version(). */
int source_of_dataset(const char *path, struct pack_source **ret, struct error *err);
void source_free(struct pack_source *s);

/* Returns the path of the file's sample. */
static inline struct path_text source_path(const struct pack_source *s, const struct source_file *f)
{
	return (struct path_text){s->paths + f->path_offset, f->path_length};
}

/* Returns where the file lies, relative to the root. */
static inline struct path_text source_file_path(const struct pack_source *s, const struct source_file *f)
{
	return (struct path_text){s->paths + f->path_offset + f->prefix_length,
				  f->path_length - f->prefix_length};
}

/* Returns the file of this path, or NULL. */
struct source_file *source_find(const struct pack_source *s, struct path_text path);
