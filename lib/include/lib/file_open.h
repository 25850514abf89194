/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Opens files that another user may replace at any moment. A name is used only once, to open the file; all
 * checks and later operations use the descriptor. Only regular files are opened, so a pipe cannot block the
 * caller, and no device is opened.
 *
 * Additional errors: -ELOOP: a link that is not followed; -EINVAL: not a regular file; -EMLINK: the file has
 * other names; -EPERM: the file belongs to another user. file_error() has a text for each.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "lib/error.h"

struct stat;

/* Opens a folder (O_PATH). With to_write, root follows another user's links only to folders of that user.
 * Other links fail with -ELOOP. */
int file_folder_open(const char *path, bool to_write);

/* Opens the folder that contains a file, as file_folder_open(). *ret_name is the file's name there, within
 * path. -EISDIR: path names no file. */
int file_folder(const char *path, bool to_write, const char **ret_name);

#define FD_PATH_BYTES 32

/* Writes a path to the file of a descriptor of this process, which may be an O_PATH one. Returns path. */
const char *fd_path(int fd, char path[FD_PATH_BYTES]);

/* Opens a file for reading. follows: also opens a link's target. */
int file_to_read(int dir_fd, const char *name, bool follows);

/* Opens a file for reading by a path that other users may change later. Links of users other than root and
 * this one lead only to files of their owners, else -ELOOP. */
int file_to_read_led(const char *path);

/* Opens for reading and writing; flags: O_CREAT, O_EXCL, O_TRUNC or 0. Refuses a file that another user may
 * have placed there as a trap. For root, the file must have a single name and belong to root or to the
 * folder's owner. For other users, only a file in another user's folder must have a single name. */
int file_to_write(int dir_fd, const char *name, int flags, mode_t mode);

/* Returns true if the creator of one file could also have written this other one. */
bool file_is_of_writer(const struct stat *made, const struct stat *file);

/* Reopens the same file, by its descriptor. */
int file_reopen(int fd, int flags);

/* Creates a file without a name, for data that nobody else may see. */
int file_temporary(void);

/* Sets the error "cannot DOING PATH: WHY". Returns r. */
int file_error(struct error *err, int r, const char *doing, const char *path);
