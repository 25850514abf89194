/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared libraries that are loaded when they are needed, and not linked, because few uses of a program need
 * them. */

#include <stdbool.h>
#include <stddef.h>

#include "lib/error.h"

struct library_function {
	const char *name;
	void *place;    /* of a pointer to the function */
	bool is_needed; /* else the pointer is NULL where the library lacks the function */
};

/* Loads a library for the rest of the process's life, and fills in the pointers. package: the one that has
 * it; NULL: not known. -ELIBACC: there is none, or it lacks a function. */
int library_load(const char *file, const char *package, const struct library_function *functions, size_t n,
		 struct error *err);
