/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A place that may have what a damaged dataset lacks: another copy of it, or the files that were packed. */

#include "dataset/backend.h"

struct repair_origin {
	const char *name; /* as given */
	struct place *place;
	struct store *store; /* NULL: a tree of files */
	int source_fd;       /* of that tree */
};

/* -ENOENT, -EACCES and the like; -ENOTDIR: neither a dataset nor a folder. */
int repair_origin_open(const char *name, struct repair_origin *ret, struct error *err);
void repair_origin_close(struct repair_origin *o);

/* Reads the file of a sample out of a tree, if it has `bytes` bytes. *ret is of malloc(). -ENOENT: there is
 * none; -ESTALE: it is not what was packed; -errno. */
int repair_origin_read(const struct repair_origin *o, const char *path, size_t path_length, uint64_t bytes,
		       unsigned char **ret);
/* The size of that file. Errors as repair_origin_read(). */
int repair_origin_size(const struct repair_origin *o, const char *path, size_t path_length,
		       uint64_t *ret_bytes);
