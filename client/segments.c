/* SPDX-License-Identifier: Apache-2.0 */
#include "segments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/huge_pages.h"

#define INDEX_MASK ((1u << 20) - 1)

struct segment_map *segment_table_find(const struct segment_table *table, uint32_t segment)
{
	uint32_t index = segment & INDEX_MASK;
	struct segment_map *map = index < table->n_maps ? &table->maps[index] : NULL;

	return map && map->data && map->id == segment ? map : NULL;
}

static int grow(struct segment_table *table, uint32_t index)
{
	uint32_t n = table->n_maps ? table->n_maps : 64;
	struct segment_map *grown;

	while (n <= index)
		n *= 2;
	grown = realloc(table->maps, n * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + table->n_maps, 0, (n - table->n_maps) * sizeof(*grown));
	table->maps = grown;
	table->n_maps = n;
	return 0;
}

int segment_table_map(struct segment_table *table, uint32_t segment, int fd, uint64_t bytes,
		      const struct segment_map **ret)
{
	uint32_t index = segment & INDEX_MASK;
	struct segment_map *map;
	void *p;

	if (index >= table->n_maps && grow(table, index) < 0)
		return -ENOMEM;
	p = huge_map(fd, bytes, PROT_READ, MAP_SHARED);
	if (p == MAP_FAILED)
		return -errno;
	map = &table->maps[index];
	if (map->data)
		munmap(map->data, map->bytes);
	*map = (struct segment_map){.id = segment, .data = p, .bytes = bytes};
	*ret = map;
	return 0;
}

void segment_table_free(struct segment_table *table)
{
	for (uint32_t i = 0; i < table->n_maps; i++) {
		if (table->maps[i].data)
			munmap(table->maps[i].data, table->maps[i].bytes);
	}
	free(table->maps);
	*table = (struct segment_table){0};
}
