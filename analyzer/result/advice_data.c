/* SPDX-License-Identifier: Apache-2.0 */
#include "advice_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/container.h"

#define STEPS_MIN 20 /* minimum steps: in fewer, one sample may be half of the bytes */

static double weight(const struct page_cache_place *file)
{
	return fmax((double)file->used_bytes, (double)file->cold_bytes);
}

/* Returns the container with most of the bytes read; NULL: none. Only some of many tar shards are among
 * the known files, so only known files are compared. */
static const struct container *container_read(const struct page_cache *cache)
{
	const struct container *found = NULL;
	double all = 0, most = 0, of_containers = 0;

	for (size_t i = 0; i < cache->n_files; i++) {
		const struct page_cache_place *file = &cache->files[i];
		const struct container *container = container_of_path(file->path);

		all += weight(file);
		if (!container)
			continue;
		of_containers += weight(file);
		if (!found || weight(file) > most) {
			found = container;
			most = weight(file);
		}
	}
	return 2 * of_containers > all ? found : NULL;
}

/* Returns the file that provides half of all bytes: it cannot be one sample, so it contains many. */
static const struct page_cache_place *array_read(const struct analysis *analysis)
{
	const struct page_cache *cache = analysis->page_cache;
	double all = fmax((double)cache->used_bytes, (double)cache->cold_bytes);

	for (size_t i = 0; analysis->n_steps >= STEPS_MIN && i < cache->n_files; i++)
		if (2 * weight(&cache->files[i]) > all && cache->files[i].path[0] == '/')
			return &cache->files[i];
	return NULL;
}

const char *advice_pack(const struct analysis *analysis, char *buffer, size_t size)
{
	const struct page_cache *cache = analysis->page_cache;
	const struct container *container = cache ? container_read(cache) : NULL;

	if (container)
		snprintf(buffer, size, "%s, since dieselctl pack takes no %s", container->instead,
			 strncmp(container->what, "an ", 3) == 0  ? container->what + 3
			 : strncmp(container->what, "a ", 2) == 0 ? container->what + 2
								  : container->what);
	else if (cache && array_read(analysis))
		snprintf(buffer, size,
			 "write its samples with diesel_loader.create(), since dieselctl pack makes one "
			 "sample of a file");
	else if (cache && cache->n_files)
		snprintf(buffer, size, "pack it (dieselctl pack)");
	else
		snprintf(buffer, size, "if each file is one sample, pack it (dieselctl pack)");
	return buffer;
}
