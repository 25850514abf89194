/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Recognises files with many samples each, by their names only: an LMDB, tar archives, Parquet. `dieselctl
 * pack` makes one sample of each file, so it refuses such files, and no message may advise to pack them. */

#include <stdbool.h>
#include <stddef.h>

struct container {
	const char *what;    /* "Parquet files" */
	const char *instead; /* advice on how to pack the samples, such as "extract them into one folder" */
	/* The same up to its folder, and between that and the dataset; NULL: it names no command. */
	const char *command, *between;
};

/* Returns the kind of container that this file is, by its path or name. NULL: not a known container. */
const struct container *container_of_path(const char *path);

/* Writes how to make a dataset of a file, or of a folder with such files, by its path: "Parquet files, so
 * import them with `dieselctl pack parquet:pq pq.diesel`". Cuts the text off if the buffer is too small.
 * Returns false if it is not known. */
bool container_advise(const char *path, char *buffer, size_t size);
