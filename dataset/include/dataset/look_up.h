/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds samples by their paths in the metadata store of any engine, without a snapshot. Each call sees the
 * newest commit. One path costs one lookup in the store. Not thread-safe.
 */

#include "dataset/meta.h"

struct look_up;

/* Opens a dataset for lookups. -ENOENT: no dataset; else as meta_open() and store_open(). */
int look_up_open(const char *dataset_path, struct look_up **ret, struct error *err);
void look_up_close(struct look_up *l); /* accepts NULL */

/* Finds a sample by its path. ret->path is the path that was passed. -ENOENT leaves err unset. */
int look_up_find(struct look_up *l, const char *path, size_t path_length, struct meta_path *ret,
		 struct error *err);
/* Reads the sample's bytes; buffer has space for record.bytes. -EBADMSG: damaged, err names chunk, byte and
 * path. -ENOENT: the sample's chunk is gone, as after a purge. */
int look_up_read(struct look_up *l, const struct meta_path *sample, void *buffer, struct error *err);

struct look_up_entry {
	const char *path; /* path from the root, path_length bytes */
	size_t path_length;
	const struct meta_path *sample; /* NULL: a directory */
};

typedef int look_up_callback(const struct look_up_entry *entry, void *context);

/* Lists the entries of a directory ("" is the root), or with `recursive` all samples below it, in tree order
 * (dataset/snapshot.h). Reads all paths of the dataset. -ENOENT, without a text: the directory does not
 * exist. Otherwise returns the callback's result if it is not 0. */
int look_up_list(struct look_up *l, const char *directory, size_t length, bool recursive,
		 look_up_callback *callback, void *context, struct error *err);
