/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples that another program found in files of any format, as lines of text: the source's absolute path or
 * URL, the offset and the length in bytes, and the sample's path, separated by tabs. The stamp of the source
 * (dataset/external.h) may follow: a source that has another one by now is refused. Lines of one source
 * follow one another, by ascending offset. A tab, a newline and a backslash in a name are written as in C.
 *
 * If samples have columns (dataset/columns.h), these come first, one a line: the layout ("mds" or "litdata"),
 * the column's name, its encoding, and the length of its values in bytes. No length: it differs.
 */

#include <stdio.h>

#include "dataset/chunk.h"
#include "lib/error.h"
#include "scan.h"

struct row_reader;

/* name: of a file; "-": standard input. -EINVAL: a wrong line of the columns. */
int rows_open(const char *name, struct row_reader **ret, struct error *err);
void rows_free(struct row_reader *r);
/* Returns the layout, and its columns, which are borrowed. */
enum chunk_layout rows_layout(const struct row_reader *r, struct columns *ret);
/* Reads the samples of the next source. *ret_source is valid until the next call. Returns 1, or 0 at the end.
 * -EINVAL: a wrong line. */
int rows_next(struct row_reader *r, struct scanned *ret, const char **ret_source, struct error *err);
