/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The recording as a file, apart from the database in it. */

#include <stdbool.h>

struct error;

/* Is the file shorter than its own header says? SQLite reads what is missing of a last page as zeros. */
bool recording_file_is_cut(const char *path);

/* Removes the file and its journal. */
void recording_file_remove(const char *path);

/* Removes an older recording. Only a recording: a mistyped -o must not cost anybody a file (-EEXIST). */
int recording_file_make_room(const char *path, struct error *err);
