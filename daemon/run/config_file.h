/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An INI file's settings, one after the other, with mistakes named by line and column. */

#include "lib/error.h"

/* Sets one setting. -ENOENT: there is none of this name; other negative values: the value is wrong. */
typedef int config_set(void *user, const char *name, const char *value, struct error *err);

/* Calls set for every setting of the section; others are for other programs. Stops at the first mistake: err
 * says "FILE:LINE:COLUMN: what". -ENOENT, -EACCES and the like: the file cannot be read. */
int config_file_read(const char *path, const char *section, config_set *set, void *user, struct error *err);
