/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tree order of paths: in each directory first its files by name, then its subdirectories by name, each
 * with all it holds. Names are compared byte by byte. A directory's samples are contiguous.
 *
 * This is the order of torchvision's ImageFolder.samples. Plain byte order of whole paths would put
 * "dog-big/1.jpg" before "dog/1.jpg" ('-' sorts before '/'), and classes out of order.
 */

#include <stdbool.h>
#include <stddef.h>

struct path_text {
	const char *text;
	size_t length;
};

/* Compares two paths in tree order. Returns less than, equal to or greater than 0, as for qsort(). */
int path_order_compare(struct path_text a, struct path_text b);

/* Returns true if the path lies below the directory ("" is the root). */
bool path_is_below(struct path_text path, struct path_text directory);

/* Compares a path with a directory as a whole: 0 if the path lies below the directory, else what
 * path_order_compare() returns for the path and any file of the directory. */
int path_order_compare_directory(struct path_text path, struct path_text directory);

/* Returns the length of the path's first component if that is a directory, or 0 for a file of the root. */
size_t path_top_length(struct path_text path);
