/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the settings of an INI file one by one, and reports mistakes with line and column. */

#include <stdbool.h>

#include "lib/error.h"

/* The receiver of the settings. Both functions get `user`. */
struct config_reader {
	const char *section; /* dieseld's section */
	/* Sets one setting. -ENOENT: no such setting, and err suggests a similar name, if there is one;
	 * other errors: the value is invalid. */
	int (*set)(void *user, const char *name, const char *value, int line, struct error *err);
	/* Returns true if a setting has that name: such a name is dieseld's in any section. */
	bool (*knows)(void *user, const char *name);
	void *user;
};

/* Calls set for every setting of the section. Other sections belong to other programs; a setting that is
 * dieseld's is a mistake there. Stops at the first mistake: err says "FILE:LINE:COLUMN: what". -ENOENT,
 * -EACCES and the like: the file cannot be read. */
int config_file_read(const char *path, const struct config_reader *reader, struct error *err);
