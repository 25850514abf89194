/* SPDX-License-Identifier: Apache-2.0 */
#include "page_places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/input.h"
#include "stretch.h"

struct sum {
	uint64_t inode;
	uint32_t device;
	bool folder;
	double part;
	uint64_t accessed_pages, missed_pages, n_reads, used_bytes, cold_bytes;
};

static int sum_compare(const void *left, const void *right)
{
	const struct sum *a = left, *b = right;

	if (a->folder != b->folder)
		return a->folder ? 1 : -1;
	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* Files first; of each, what came from storage before what was only used. */
static int rank_compare(const void *left, const void *right)
{
	const struct sum *a = left, *b = right;

	if (a->folder != b->folder)
		return a->folder ? 1 : -1;
	if (a->cold_bytes != b->cold_bytes)
		return a->cold_bytes > b->cold_bytes ? -1 : 1;
	if (a->used_bytes != b->used_bytes)
		return a->used_bytes > b->used_bytes ? -1 : 1;
	return sum_compare(left, right);
}

static struct sum sum_of(const struct event *event, const struct study *study, uint32_t page_bytes)
{
	double part = stretch_part(event, study->window);
	struct sum sum = {
	    .inode = event->place.inode,
	    .device = event->place.device,
	    .folder = event->flags & EVENT_FLAG_FOLDER,
	    .accessed_pages = stretch_count(event->place.accessed_pages, part),
	    .missed_pages = stretch_count(event->place.missed_pages, part),
	    .n_reads = stretch_count(event->place.n_reads, part),
	    .used_bytes = stretch_count((uint64_t)event->place.used_kib << 10, part),
	};

	sum.cold_bytes =
	    sum.missed_pages * page_bytes + stretch_count((uint64_t)event->place.direct_kib << 10, part);
	return sum;
}

static size_t sums_collect(const struct study *study, uint32_t page_bytes, struct sum *sums)
{
	const struct analysis_input *input = study->input;
	size_t n = 0, n_unique = 0;

	for (size_t i = 0; i < input->n_events; i++)
		if (input->events[i].type == EVENT_PLACE) {
			if (sums)
				sums[n] = sum_of(&input->events[i], study, page_bytes);
			n++;
		}
	if (!sums || !n)
		return n;
	qsort(sums, n, sizeof(*sums), sum_compare);
	for (size_t i = 0; i < n; i++) {
		struct sum *last = n_unique ? &sums[n_unique - 1] : NULL;

		if (!last || sum_compare(last, &sums[i])) {
			sums[n_unique++] = sums[i];
			continue;
		}
		last->accessed_pages += sums[i].accessed_pages;
		last->missed_pages += sums[i].missed_pages;
		last->n_reads += sums[i].n_reads;
		last->used_bytes += sums[i].used_bytes;
		last->cold_bytes += sums[i].cold_bytes;
	}
	qsort(sums, n_unique, sizeof(*sums), rank_compare);
	return n_unique;
}

/* Paths of folders end with a slash, whatever the note says. */
static char *path_of(const struct analysis_input *input, const struct sum *sum)
{
	const char *path = NULL;
	size_t length;
	char *text;

	for (size_t i = 0; i < input->n_paths && !path; i++) {
		const struct analysis_path *known = &input->paths[i];

		if (known->inode == sum->inode && known->device == sum->device &&
		    known->folder == sum->folder)
			path = known->path;
	}
	if (!path || !*path)
		return strdup("?");
	length = strlen(path);
	if (!sum->folder || path[length - 1] == '/')
		return strdup(path);
	return asprintf(&text, "%s/", path) < 0 ? NULL : text;
}

/* What there is of them belongs to the page cache, also after -ENOMEM. */
static int places_make(const struct study *study, const struct sum *sums, size_t n,
		       struct page_cache_place **places, size_t *n_places)
{
	if (n > PAGE_CACHE_TOP_FILES)
		n = PAGE_CACHE_TOP_FILES;
	*places = calloc(n + 1, sizeof(**places));
	if (!*places)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct page_cache_place *place = &(*places)[*n_places];

		if (!sums[i].cold_bytes && !sums[i].used_bytes)
			break;
		place->path = path_of(study->input, &sums[i]);
		if (!place->path)
			return -ENOMEM;
		place->accessed_pages = sums[i].accessed_pages;
		place->missed_pages = sums[i].missed_pages;
		place->n_reads = sums[i].n_reads;
		place->used_bytes = sums[i].used_bytes;
		place->cold_bytes = sums[i].cold_bytes;
		++*n_places;
	}
	return 0;
}

int page_places_find(const struct study *study, struct page_cache *cache)
{
	size_t n = sums_collect(study, cache->page_bytes, NULL), n_files = 0;
	struct sum *sums = calloc(n + 1, sizeof(*sums));
	int r;

	if (!sums)
		return -ENOMEM;
	n = sums_collect(study, cache->page_bytes, sums);
	while (n_files < n && !sums[n_files].folder)
		n_files++;
	r = places_make(study, sums, n_files, &cache->files, &cache->n_files);
	if (r == 0)
		r = places_make(study, sums + n_files, n - n_files, &cache->folders, &cache->n_folders);
	free(sums);
	return r;
}
