/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads an INI file's settings one by one, and names mistakes by line and column. */

#include "lib/error.h"

/* Sets one setting. -ENOENT: there is no such setting; other negative results: the value is wrong. */
typedef int config_set(void *user, const char *name, const char *value, struct error *err);

/* Calls set for every setting of the section; other sections are for other programs. Stops at the first
 * mistake: err says "FILE:LINE:COLUMN: what". -ENOENT, -EACCES and the like: the file cannot be read. */
int config_file_read(const char *path, const char *section, config_set *set, void *user, struct error *err);
