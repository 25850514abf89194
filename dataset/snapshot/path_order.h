/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tree order of paths: in each directory first its files by name, then its subdirectories by name, each
 * with all it holds. Names are compared byte by byte. A directory's samples are contiguous.
 *
 * It is the order of torchvision's ImageFolder.samples: plain byte order of whole paths would put
 * "dog-big/1.jpg" in front of "dog/1.jpg" ('-' sorts before '/'), and classes would be out of order.
 */

#include <stdbool.h>
#include <stddef.h>

struct path_text {
	const char *text;
	size_t length;
};

/* <0, 0, >0. */
int path_order_compare(struct path_text a, struct path_text b);

/* Returns true if the path lies below the directory ("" is the root). */
bool path_is_below(struct path_text path, struct path_text directory);

/* Compares the path with the directory as a whole: 0 when it lies below it, else as path_order_compare()
 * with any of its files would. */
int path_order_compare_directory(struct path_text path, struct path_text directory);

/* The length of the first component if it is a directory, 0 if the path is a file of the root. */
size_t path_top_length(struct path_text path);
