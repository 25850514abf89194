/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads records of comma-separated values (RFC 4180). Cells may be quoted, and then hold separators and
 * lines. The separator is the first of comma, semicolon and tab in the first line. {.file, .name} begins.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/error.h"

struct csv {
	FILE *file;
	const char *name; /* for error texts */
	char **cells;     /* of the record that was read last */
	size_t n, n_allocated;
	uint64_t line; /* where the record begins, from 1 */

	char *text;
	size_t bytes, text_allocated;
	uint64_t n_lines;
	int separator; /* 0: not known yet */
};

/* Returns 1, or 0 at the end. Empty lines are left out. -EINVAL: an open quote, or a NUL. */
int csv_next(struct csv *c, struct error *err);
/* Does not close the file. */
static inline void csv_free(struct csv *c)
{
	free(c->cells);
	free(c->text);
}
