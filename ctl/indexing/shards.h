/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The shards that a command line names: files, and the *.tar files below folders, sorted by their names. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct shard {
	char *path;      /* absolute */
	char *prefix;    /* of its samples' paths: path below the folder, or file name, without .tar */
	bool is_done;    /* its samples need not be added */
	bool is_changed; /* the dataset has samples of another state of it */
};

struct shards {
	struct shard *all; /* by path */
	size_t n, capacity;
};

/* -ENODATA: there are none; -EEXIST: two of them have one prefix. */
int shards_find(char *const *arguments, size_t n_arguments, struct shards *ret, struct error *err);
void shards_free(struct shards *s);
/* NULL: none has this path. */
struct shard *shards_get(const struct shards *s, const char *path);
