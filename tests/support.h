/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Helpers of the unit tests for folders, small files in them, sockets and waiting. A helper that cannot do
 * its work fails the test that called it. support_dataset.h has datasets, support_loop.h event loops.
 */

#include "tests/unit/test.h"

#include <stdbool.h>
#include <stddef.h>

/* Make and remove a folder for one test, below $TMPDIR. *state is its path. For cmocka's setup and teardown,
 * of a test or of a group. remove_folder() removes the contents, too. */
int make_folder(void **state);
int remove_folder(void **state);
#define TEST_IN_FOLDER(name) TEST_WITH(name, make_folder, remove_folder)
/* As make_folder(), but below `parent`, for tests that need a certain kind of file system. */
int make_folder_below(const char *parent, void **state);

/* Returns "folder/name". The caller frees it. */
char *path_in(const char *folder, const char *name);
bool exists_in(const char *folder, const char *name);

/* Makes the folder of this name, and those above it. */
void make_folders(const char *folder, const char *name);
/* Writes a whole file, replaces an existing one, and makes the folders above it. */
void write_bytes(const char *folder, const char *name, const void *data, size_t bytes);
void write_text(const char *folder, const char *name, const char *text);
void write_format(const char *folder, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the whole text of a small file, with a terminating NUL. The caller frees it. */
char *read_text(const char *folder, const char *name);

/* Returns a descriptor of a file that has no name and holds these bytes. Its position is the end. */
int nameless_file(const void *data, size_t bytes);

/* Makes a SOCK_SEQPACKET connection, as libdiesel and dieseld have one, and returns both ends. */
void socket_pair(int ends[2]);
int connect_to(const char *socket_path);

/* Polls until the condition holds, which another thread or process is about to fulfil. The test fails after
 * some seconds. That is a bound, not an expectation. */
void wait_until(bool (*holds)(void *user), void *user);
