/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Table of the files that an index opens, for each of a job's data sets. All samples of a set open the same
 * number of files. Its memory is bounded, whatever the input. Pure. */

#include <stddef.h>
#include <stdint.h>

#define FILE_TABLE_SETS     4
#define FILE_TABLE_INDICES  (1u << 24)                        /* maximum index + 1 of one set */
#define FILE_TABLE_ALL_SETS (FILE_TABLE_INDICES + (1u << 22)) /* maximum number of indices of all sets */
#define FILE_TABLE_BYTES    (64u << 20)                       /* maximum bytes of names of all sets */

struct file_set {
	uint32_t *at; /* offset of an index's names in table.bytes, plus 1; 0: unknown */
	uint32_t n_at;
	uint32_t n; /* indices known */
};

struct file_table {
	struct file_set sets[FILE_TABLE_SETS];
	char *bytes; /* names, each with its NUL */
	uint32_t used, allocated;
};

enum file_table_result {
	FILE_TABLE_NEW,
	FILE_TABLE_SAME,
	FILE_TABLE_OTHER, /* the index is known to open other files */
};

/* Compares a sample's names, one after another, with those known for the index. Changes nothing. */
enum file_table_result file_table_compare(const struct file_table *t, int set, uint32_t index,
					  const char *names, size_t n_bytes);
/* Learns the names unless the index is already known. Returns what file_table_compare() would have
 * returned before, or -ERANGE: no space. */
int file_table_learn(struct file_table *t, int set, uint32_t index, const char *names, size_t n_bytes);
/* Returns the index's first name, or NULL. */
const char *file_table_find(const struct file_table *t, int set, uint32_t index);
/* Moves indices that `to` does not know from `from`, as far as there is space. `from` is empty then. */
void file_table_move(struct file_table *t, int from, int to);
/* Returns the number of known indices of all sets. */
uint32_t file_table_known(const struct file_table *t);
void file_table_free(struct file_table *t);
