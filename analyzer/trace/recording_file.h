/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The recording as a file, apart from the database in it. dir_fd: the folder that path's last part is in. */

struct error;
struct recording;

/* As recording_open(), without following a link. */
int recording_open_in(int dir_fd, const char *path, struct recording **ret_recording, struct error *err);

/* Removes the file and its journal. */
void recording_file_remove(int dir_fd, const char *path);

/* Removes an older recording. Only a recording: a mistyped -o must not cost anybody a file (-EEXIST). */
int recording_file_make_room(int dir_fd, const char *path, struct error *err);
