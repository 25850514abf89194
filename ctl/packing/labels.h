/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Classes of files from a table: CSV with a first line of column names, or JSON lines. A row has the path of
 * a file below the source, with or without the ending of its name, and a label, which is a name or a whole
 * number. Whole numbers get zeros in front, so that the order of the classes is the order of the numbers.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/survey.h"

struct labels_options {
	const char *table;        /* *.csv, *.tsv or *.jsonl */
	const char *path_column;  /* NULL: file_name, else the first */
	const char *label_column; /* NULL: label, else the only other one */
	const char *source;       /* of the files */
	size_t digits;            /* least length of a class that is a whole number */
	const char *digits_of; /* dataset to which files are added, whose numbers have that length; or NULL */
	bool skips_missing, can_skip; /* rows without a file are left out; the user may choose so */
};

struct labels;

/* -EINVAL: wrong columns or rows, err names the line; -errno. options is borrowed. */
int labels_read(const struct labels_options *options, struct labels **ret, struct error *err);
void labels_free(struct labels *l);
/* For survey.labels. */
const struct survey_labels *labels_for_survey(const struct labels *l);
/* Returns how many rows had no file. */
uint64_t labels_n_missing(const struct labels *l);
/* Returns true if all labels are whole numbers. */
bool labels_are_numbers(const struct labels *l);
