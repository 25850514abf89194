/* SPDX-License-Identifier: Apache-2.0 */
#include "page_cache_find.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/input.h"
#include "analyzer/page_cache.h"
#include "lib/cleanup.h"
#include "interval.h"
#include "analyzer/shares/study.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/waits/window.h"

/* Files and folders that the job read, by bytes from storage. */

struct page_sum {
	uint64_t inode;
	uint32_t device;
	bool folder;
	double part;
	uint64_t accessed_pages, missed_pages, n_reads, used_bytes, cold_bytes;
};

static int sum_compare(const void *left, const void *right)
{
	const struct page_sum *a = left, *b = right;

	if (a->folder != b->folder)
		return a->folder ? 1 : -1;
	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* Compares for sorting: files first, then by bytes from storage, then by used bytes. */
static int rank_compare(const void *left, const void *right)
{
	const struct page_sum *a = left, *b = right;

	if (a->folder != b->folder)
		return a->folder ? 1 : -1;
	if (a->cold_bytes != b->cold_bytes)
		return a->cold_bytes > b->cold_bytes ? -1 : 1;
	if (a->used_bytes != b->used_bytes)
		return a->used_bytes > b->used_bytes ? -1 : 1;
	return sum_compare(left, right);
}

static struct page_sum sum_of(const struct event *event, const struct study *study, uint32_t page_bytes)
{
	double part = interval_part(event, study->window);
	struct page_sum sum = {
	    .inode = event->place.inode,
	    .device = event->place.device,
	    .folder = event->flags & EVENT_FLAG_FOLDER,
	    .accessed_pages = interval_count(event->place.accessed_pages, part),
	    .missed_pages = interval_count(event->place.missed_pages, part),
	    .n_reads = interval_count(event->place.n_reads, part),
	    .used_bytes = interval_count((uint64_t)event->place.used_kib << 10, part),
	};

	sum.cold_bytes =
	    sum.missed_pages * page_bytes + interval_count((uint64_t)event->place.direct_kib << 10, part);
	return sum;
}

static size_t sums_collect(const struct study *study, uint32_t page_bytes, struct page_sum *sums)
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
		struct page_sum *last = n_unique ? &sums[n_unique - 1] : NULL;

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

/* Returns the path. Paths of folders end with a slash, even if the metadata event's path does not. */
static char *path_of(const struct analysis_input *input, const struct page_sum *sum)
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

/* The places that were made belong to the page cache, also after -ENOMEM. */
static int places_make(const struct study *study, const struct page_sum *sums, size_t n,
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

/* Fills files and folders. -ENOMEM: the cache owns the entries added so far. */
static int page_places_find(const struct study *study, struct page_cache *cache)
{
	size_t n = sums_collect(study, cache->page_bytes, NULL), n_files = 0;
	struct page_sum *sums = calloc(n + 1, sizeof(*sums));
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

#define PAGE_BYTES_DEFAULT 4096

static void page_cache_freep(struct page_cache **cache)
{
	page_cache_free(*cache);
}

static void pages_add(struct page_cache *cache, const struct event *event, double part)
{
	cache->accessed_pages += interval_count(event->pages.accessed_pages, part);
	cache->missed_pages += interval_count(event->pages.missed_pages, part);
	cache->mapped.n_minor_faults += interval_count(event->pages.n_minor_faults, part);
	cache->mapped.n_major_faults += interval_count(event->pages.n_major_faults, part);
	cache->mapped.fault_ns += interval_count(event->pages.fault_ns, part);
}

static void reads_add(struct page_cache *cache, const struct event *event, double part)
{
	cache->used_bytes += interval_count(event->reads.used_bytes, part);
	cache->direct_bytes += interval_count(event->reads.direct_bytes, part);
	cache->network_bytes += interval_count(event->reads.network_bytes, part);
	cache->n_reads += interval_count(event->reads.n_reads, part);
}

static void sizes_add(struct page_cache *cache, const struct event *event, double part)
{
	const size_t n = sizeof(event->sizes.n) / sizeof(event->sizes.n[0]);

	for (size_t k = 0; k < n && event->sizes.first < PAGE_CACHE_SIZES - k; k++)
		cache->read_sizes[event->sizes.first + k] += interval_count(event->sizes.n[k], part);
}

/* Returns false if there is no record of the kind. */
static bool sums_find(const struct study *study, struct page_cache *cache)
{
	const struct analysis_input *input = study->input;
	bool any = false;

	for (size_t i = 0; i < input->n_events; i++) {
		const struct event *event = &input->events[i];
		double part;

		if (event->type != EVENT_PAGES && event->type != EVENT_READS &&
		    event->type != EVENT_READ_SIZES)
			continue;
		any = true;
		part = interval_part(event, study->window);
		if (event->type == EVENT_PAGES)
			pages_add(cache, event, part);
		else if (event->type == EVENT_READS)
			reads_add(cache, event, part);
		else
			sizes_add(cache, event, part);
	}
	return any;
}

struct fault_sums {
	size_t n_followed, n_random;
};

/* Returns true if the fault is for the page right after those that the previous fault read. */
static bool follows(const struct timeline_call *before, const struct timeline_call *fault)
{
	uint64_t read_pages = before->result > 1 ? (uint64_t)before->result : 1;

	return before->inode == fault->inode && fault->argument > before->argument &&
	       fault->argument - before->argument <= read_pages;
}

static void faults_of_thread(const struct timeline_thread *thread, const struct window *window,
			     struct page_cache *cache, struct fault_sums *sums)
{
	const struct timeline_call *before = NULL;

	for (size_t i = timeline_call_from(thread, window->begin_ns); i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];

		if (call->begin_ns >= window->end_ns)
			break;
		if (call->kind != CALL_FAULT)
			continue;
		if (call->result > 1) {
			cache->mapped.n_read_aheads++;
			cache->mapped.read_ahead_pages += (uint64_t)call->result - 1;
		}
		cache->mapped.n_wakeups += call->n_wakeups;
		cache->mapped.n_context_switches += call->n_sleeps;
		if (before) {
			sums->n_followed++;
			sums->n_random += !follows(before, call);
		}
		before = call;
	}
}

static void faults_find(const struct study *study, struct page_cache *cache)
{
	struct fault_sums sums = {0};

	for (size_t i = 0; i < study->timeline->n_threads; i++)
		faults_of_thread(&study->timeline->threads[i], study->window, cache, &sums);
	cache->mapped.random_ratio = sums.n_followed ? (double)sums.n_random / (double)sums.n_followed : NAN;
}

/* Fills in the bytes, from the sums of all records. */
static void bytes_find(const struct analysis_input *input, struct page_cache *cache)
{
	cache->page_bytes = input->page_bytes ? input->page_bytes : PAGE_BYTES_DEFAULT;
	cache->cold_bytes =
	    cache->missed_pages * cache->page_bytes + cache->direct_bytes + cache->network_bytes;
	cache->used_bytes += cache->network_bytes;
}

int page_cache_find(const struct study *study, struct page_cache **ret_cache)
{
	_cleanup_(page_cache_freep) struct page_cache *cache = calloc(1, sizeof(*cache));
	int r;

	if (!cache)
		return -ENOMEM;
	if (!sums_find(study, cache)) {
		*ret_cache = NULL;
		return 0;
	}
	bytes_find(study->input, cache);
	faults_find(study, cache);
	r = page_places_find(study, cache);
	if (r < 0)
		return r;
	*ret_cache = steal_pointer(cache);
	return 0;
}

double page_cache_cold_bytes(const struct analysis_input *input, const struct window *window)
{
	const struct study study = {.input = input, .window = window};
	struct page_cache cache = {0};

	if (!sums_find(&study, &cache))
		return NAN;
	bytes_find(input, &cache);
	return (double)cache.cold_bytes;
}

double page_cache_hit_ratio(uint64_t accessed_pages, uint64_t missed_pages)
{
	if (!accessed_pages)
		return NAN;
	/* With unused read-ahead there are more misses than accesses. */
	if (missed_pages >= accessed_pages)
		return 0;
	return 1 - (double)missed_pages / (double)accessed_pages;
}

static void places_free(struct page_cache_place *places, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(places[i].path);
	free(places);
}

void page_cache_free(struct page_cache *cache)
{
	if (!cache)
		return;
	places_free(cache->files, cache->n_files);
	places_free(cache->folders, cache->n_folders);
	free(cache);
}

#define EXCESS_RATIO 1.5
#define EXCESS_BYTES (UINT64_C(16) << 20)

double page_cache_excess(const struct page_cache *cache)
{
	if (cache->cold_bytes < cache->used_bytes + EXCESS_BYTES || !cache->used_bytes ||
	    (double)cache->cold_bytes < EXCESS_RATIO * (double)cache->used_bytes)
		return 0;
	return (double)cache->cold_bytes / (double)cache->used_bytes;
}
