/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads an INI file's settings one by one, and names mistakes by line and column. */

#include <stdbool.h>

#include "lib/error.h"

/* The receiver of the lines. Both functions get `user`. */
struct config_reader {
	const char *section; /* dieseld's section */
	/* Sets one setting. -ENOENT: there is no such setting, and err has what may be meant, if anything;
	 * other negative results: the value is wrong. */
	int (*set)(void *user, const char *name, const char *value, int line, struct error *err);
	/* Returns true if a setting has that name: such a name is dieseld's in any section. */
	bool (*knows)(void *user, const char *name);
	void *user;
};

/* Calls set for every setting of the section. Other sections belong to other programs; a setting that is
 * dieseld's is a mistake there. Stops at the first mistake: err says "FILE:LINE:COLUMN: what". -ENOENT,
 * -EACCES and the like: the file cannot be read. */
int config_file_read(const char *path, const struct config_reader *reader, struct error *err);
