/* SPDX-License-Identifier: Apache-2.0 */
#include "file_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int space_at(struct file_table *t, struct file_set *s, uint32_t index)
{
	uint32_t n = s->n_at ? s->n_at : 1024, others = 0, *grown;

	if (index >= FILE_TABLE_INDICES)
		return -ERANGE;
	if (index < s->n_at)
		return 0;
	while (n <= index)
		n *= 2;
	for (int i = 0; i < FILE_TABLE_SETS; i++)
		others += &t->sets[i] == s ? 0 : t->sets[i].n_at;
	if (n > FILE_TABLE_ALL_SETS - others)
		return -ERANGE;
	grown = reallocarray(s->at, n, sizeof(*grown));
	if (!grown)
		return -ERANGE;
	memset(grown + s->n_at, 0, (n - s->n_at) * sizeof(*grown));
	s->at = grown;
	s->n_at = n;
	return 0;
}

static int space_bytes(struct file_table *t, size_t n_bytes)
{
	uint32_t wanted = t->allocated ? t->allocated : 65536;
	char *grown;

	if (n_bytes > FILE_TABLE_BYTES - t->used)
		return -ERANGE;
	if (n_bytes <= t->allocated - t->used)
		return 0;
	while (wanted - t->used < n_bytes)
		wanted *= 2;
	grown = realloc(t->bytes, wanted);
	if (!grown)
		return -ERANGE;
	t->bytes = grown;
	t->allocated = wanted;
	return 0;
}

enum file_table_result file_table_compare(const struct file_table *t, int set, uint32_t index,
					  const char *names, size_t n_bytes)
{
	const char *known = file_table_find(t, set, index);

	if (!known)
		return FILE_TABLE_NEW;
	return n_bytes <= t->used - (size_t)(known - t->bytes) && !memcmp(known, names, n_bytes)
		   ? FILE_TABLE_SAME
		   : FILE_TABLE_OTHER;
}

int file_table_learn(struct file_table *t, int set, uint32_t index, const char *names, size_t n_bytes)
{
	struct file_set *s = &t->sets[set];
	enum file_table_result known = file_table_compare(t, set, index, names, n_bytes);

	if (known != FILE_TABLE_NEW)
		return (int)known;
	if (space_at(t, s, index) < 0 || space_bytes(t, n_bytes) < 0)
		return -ERANGE;
	memcpy(t->bytes + t->used, names, n_bytes);
	s->at[index] = t->used + 1;
	t->used += (uint32_t)n_bytes;
	s->n++;
	return FILE_TABLE_NEW;
}

const char *file_table_find(const struct file_table *t, int set, uint32_t index)
{
	const struct file_set *s = &t->sets[set];

	return index < s->n_at && s->at[index] ? t->bytes + s->at[index] - 1 : NULL;
}

static void set_free(struct file_set *s)
{
	free(s->at);
	*s = (struct file_set){0};
}

void file_table_move(struct file_table *t, int from, int to)
{
	struct file_set *f = &t->sets[from], *s = &t->sets[to];

	for (uint32_t i = 0; i < f->n_at; i++) {
		if (!f->at[i] || space_at(t, s, i) < 0 || s->at[i])
			continue;
		s->at[i] = f->at[i];
		s->n++;
	}
	set_free(f);
}

uint32_t file_table_known(const struct file_table *t)
{
	uint32_t n = 0;

	for (int i = 0; i < FILE_TABLE_SETS; i++)
		n += t->sets[i].n;
	return n;
}

void file_table_free(struct file_table *t)
{
	for (int i = 0; i < FILE_TABLE_SETS; i++)
		set_free(&t->sets[i]);
	free(t->bytes);
	*t = (struct file_table){0};
}
