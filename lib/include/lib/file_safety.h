/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks whether somebody other than root and the caller's user can change a file or a folder, or replace it.
 */

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

enum file_safety {
	FILE_SAFE,
	FILE_OF_OTHERS,      /* owner is another user */
	FILE_OPEN_TO_OTHERS, /* others may write to it; in a sticky folder, such as /tmp, they may only add */
};

enum file_safety file_safety(const struct stat *st);

/* Returns true if the uid stands for all users that this user namespace lacks, so it tells nobody's identity.
 */
bool file_safety_is_anybody(uid_t uid);

/* Checks a folder and all folders above it. Returns an enum file_safety, or -errno. If the result is not
 * FILE_SAFE, *at is the unsafe folder and *found its status. path: absolute, and without links. */
int file_safety_above(const char *path, char at[PATH_MAX], struct stat *found);

/* Checks, as file_safety_above(), the folder that holds path's last part. *real is that folder after links
 * are followed. If it is safe, no other user can replace files in it. -EINVAL: path has no last part. */
int file_safety_around(const char *path, char real[PATH_MAX], char at[PATH_MAX], struct stat *found);
