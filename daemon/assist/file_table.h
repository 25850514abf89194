/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which files an index opens, in each of a job's data sets: as many a sample, for all samples of a set.
 * Bounded in memory, whatever comes. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#define FILE_TABLE_SETS     4
#define FILE_TABLE_INDICES  (1u << 24)                        /* of one set */
#define FILE_TABLE_ALL_SETS (FILE_TABLE_INDICES + (1u << 22)) /* indices of all sets */
#define FILE_TABLE_BYTES    (64u << 20)                       /* of names, of all sets */

struct file_set {
	uint32_t *at; /* where in bytes an index's names are, plus 1; 0: not known */
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
	FILE_TABLE_OTHER, /* the index is known, with other files */
};

/* names: a sample's, one behind the other. What is known of the index, which nothing changes. */
enum file_table_result file_table_compare(const struct file_table *t, int set, uint32_t index,
					  const char *names, size_t n_bytes);
/* enum file_table_result, of before; -ERANGE: there is no space. */
int file_table_learn(struct file_table *t, int set, uint32_t index, const char *names, size_t n_bytes);
/* The index's first name, or NULL. */
const char *file_table_find(const struct file_table *t, int set, uint32_t index);
/* What `from` knows and `to` does not is known there, if there is space; `from` is empty then. */
void file_table_move(struct file_table *t, int from, int to);
/* Indices, of all sets. */
uint32_t file_table_known(const struct file_table *t);
void file_table_free(struct file_table *t);
