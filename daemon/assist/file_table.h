/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which files an index opens: as many a sample, for all samples. Bounded in memory, whatever comes. Pure. */

#include <stddef.h>
#include <stdint.h>

#define FILE_TABLE_INDICES (1u << 24)
#define FILE_TABLE_BYTES   (64u << 20) /* of names */

struct file_table {
	uint32_t *at; /* where in bytes an index's names are, plus 1; 0: not known */
	uint32_t n_at;
	char *bytes; /* names, each with its NUL */
	uint32_t used, allocated;
	uint32_t n; /* indices known */
};

enum file_table_result {
	FILE_TABLE_NEW,
	FILE_TABLE_SAME,
	FILE_TABLE_OTHER, /* the index is known, with other files */
};

/* names: n_files names, one behind the other. enum file_table_result; -ERANGE: there is no room. */
int file_table_learn(struct file_table *t, uint32_t index, const char *names, size_t n_bytes);
/* The index's first name, or NULL. */
const char *file_table_find(const struct file_table *t, uint32_t index);
void file_table_free(struct file_table *t);
