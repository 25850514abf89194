/* SPDX-License-Identifier: Apache-2.0 */
#include "file_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int room_at(struct file_table *t, uint32_t index)
{
	uint32_t n = t->n_at ? t->n_at : 1024, *grown;

	if (index >= FILE_TABLE_INDICES)
		return -ERANGE;
	if (index < t->n_at)
		return 0;
	while (n <= index)
		n *= 2;
	grown = reallocarray(t->at, n, sizeof(*grown));
	if (!grown)
		return -ERANGE;
	memset(grown + t->n_at, 0, (n - t->n_at) * sizeof(*grown));
	t->at = grown;
	t->n_at = n;
	return 0;
}

static int room_bytes(struct file_table *t, size_t n_bytes)
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

int file_table_learn(struct file_table *t, uint32_t index, const char *names, size_t n_bytes)
{
	const char *known = file_table_find(t, index);

	if (known)
		return n_bytes <= t->used - (size_t)(known - t->bytes) && !memcmp(known, names, n_bytes)
			   ? FILE_TABLE_SAME
			   : FILE_TABLE_OTHER;
	if (room_at(t, index) < 0 || room_bytes(t, n_bytes) < 0)
		return -ERANGE;
	memcpy(t->bytes + t->used, names, n_bytes);
	t->at[index] = t->used + 1;
	t->used += (uint32_t)n_bytes;
	t->n++;
	return FILE_TABLE_NEW;
}

const char *file_table_find(const struct file_table *t, uint32_t index)
{
	return index < t->n_at && t->at[index] ? t->bytes + t->at[index] - 1 : NULL;
}

void file_table_free(struct file_table *t)
{
	free(t->at);
	free(t->bytes);
	*t = (struct file_table){0};
}
