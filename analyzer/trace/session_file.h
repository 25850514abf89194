/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The session as a file, apart from the database in it. */

#include <stdbool.h>

struct error;

/* Is the file shorter than its own header says? SQLite reads what is missing of a last page as zeros. */
bool session_file_is_cut(const char *path);

/* With its journal. */
void session_file_remove(const char *path);

/* Removes an older session. Only a session: a mistyped -o must not cost anybody a file (-EEXIST). */
int session_file_make_room(const char *path, struct error *err);
