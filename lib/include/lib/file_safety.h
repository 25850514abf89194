/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether somebody else than root and the caller's user can change a file or a folder, or put another one in
 * its place. */

#include <limits.h>
#include <sys/stat.h>

enum file_safety {
	FILE_SAFE,
	FILE_OF_OTHERS,      /* it belongs to another user */
	FILE_OPEN_TO_OTHERS, /* others may write to it; in a sticky folder, such as /tmp, they may only add */
};

enum file_safety file_safety(const struct stat *st);

/* Looks at a folder, and at all folders above it, from there on: an enum file_safety, or -errno. Where it is
 * not FILE_SAFE, *at is the one, and *found what it is like. path: absolute, and without links. */
int file_safety_above(const char *path, char at[PATH_MAX], struct stat *found);

/* The same for the folder that path's last part is in, which is *real once links are followed. What is in
 * such a folder nobody else can put there in another's place. -EINVAL: path has no last part. */
int file_safety_around(const char *path, char real[PATH_MAX], char at[PATH_MAX], struct stat *found);
