/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "bpf/collector.h"
#include "lib/array.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "bpf/symbols/mounts.h"
#include "bpf/shared/place_shared.h"

/* Intervals between records: short at first because the windows of short recordings are cut from these sums;
 * longer later because a recording of a day must not fill a disk. */
#define TOTALS_EVERY_NS (200 * NS_PER_MS)
#define PLACES_EVERY_NS (1 * NS_PER_S)
#define BEGINNING_NS    (10 * NS_PER_S)
#define LATER_FACTOR    10
#define PLACES_SHARE    200   /* at most 1/PLACES_SHARE of a CPU; emptying a full map takes some ms */
#define PLACES_TOP      32    /* maximum files and folders per round of records (totals include all) */
#define NOTED_MAX       65536 /* maximum number of paths in a recording */
#define BATCH           2048
#define FOLDERS_MAX     65536 /* maximum number of folders whose names are kept */
#define FOLDERS_DEEP    32
#define SIZES_EACH      7 /* number of sizes in one record */

struct folder {
	struct place_key key;
	uint64_t parent;
	char name[PLACE_NAME];
	UT_hash_handle hh;
};

/* A place whose path was passed to the sink. */
struct noted {
	struct place_key key;
	UT_hash_handle hh;
};

struct entry {
	struct place_key key;
	struct read_place place;
};

struct places {
	int totals_fd, places_fd, n_cpus;
	places_emit emit;
	places_note metadata;
	void *user;
	struct job_totals before;
	uint64_t begin_ns;
	uint64_t totals_ns, places_ns; /* time when each map was last emptied */
	uint64_t places_pause_ns;
	struct job_totals *per_cpu;
	struct folder *folders;
	struct noted *noted;
	struct mounts *mounts, *job_mounts;
	struct entry *entries;
	size_t n_entries, n_allocated;
	struct place_key keys[BATCH];
	struct read_place values[BATCH];
};

struct places *places_new(int totals_fd, int places_fd, places_emit emit, places_note metadata, void *user,
			  uint64_t now_ns)
{
	struct places *places = calloc(1, sizeof(*places));
	int n_cpus = libbpf_num_possible_cpus();

	if (!places || n_cpus < 1) {
		free(places);
		return NULL;
	}
	*places = (struct places){.totals_fd = totals_fd,
				  .places_fd = places_fd,
				  .n_cpus = n_cpus,
				  .emit = emit,
				  .metadata = metadata,
				  .user = user,
				  .begin_ns = now_ns,
				  .totals_ns = now_ns,
				  .places_ns = now_ns,
				  .places_pause_ns = PLACES_EVERY_NS};
	places->per_cpu = calloc((size_t)n_cpus, sizeof(*places->per_cpu));
	if (!places->per_cpu) {
		free(places);
		return NULL;
	}
	return places;
}

void places_free(struct places *places)
{
	struct folder *folder, *next_folder;
	struct noted *noted, *next_noted;

	if (!places)
		return;
	HASH_ITER (hh, places->folders, folder, next_folder) {
		HASH_DEL(places->folders, folder);
		free(folder);
	}
	HASH_ITER (hh, places->noted, noted, next_noted) {
		HASH_DEL(places->noted, noted);
		free(noted);
	}
	mounts_free(places->mounts);
	mounts_free(places->job_mounts);
	free(places->per_cpu);
	free(places->entries);
	free(places);
}

/* Reads the sums so far. Returns false if they cannot be read. */
static bool totals_read(struct places *places, struct job_totals *ret_totals)
{
	struct job_totals sum = {0};
	uint64_t *to = (uint64_t *)&sum;
	uint32_t key = 0;

	if (bpf_map_lookup_elem(places->totals_fd, &key, places->per_cpu))
		return false;
	for (int cpu = 0; cpu < places->n_cpus; cpu++) {
		const uint64_t *from = (const uint64_t *)&places->per_cpu[cpu];

		for (size_t i = 0; i < sizeof(sum) / sizeof(*to); i++)
			to[i] += from[i];
	}
	*ret_totals = sum;
	return true;
}

static uint32_t cut32(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static void sizes_emit(struct places *places, const uint64_t delta[READ_CLASSES], uint64_t now_ns)
{
	for (uint32_t first = 0; first < READ_CLASSES; first += SIZES_EACH) {
		struct event event = {
		    .type = EVENT_READ_SIZES, .start_ns = places->totals_ns, .end_ns = now_ns};
		bool any = false;

		event.sizes.first = first;
		for (uint32_t k = 0; k < SIZES_EACH && first + k < READ_CLASSES; k++) {
			event.sizes.n[k] = cut32(delta[first + k]);
			any |= delta[first + k] > 0;
		}
		if (any)
			places->emit(places->user, &event);
	}
}

static void totals_emit(struct places *places, uint64_t now_ns)
{
	struct event event = {.type = EVENT_PAGES, .start_ns = places->totals_ns, .end_ns = now_ns};
	struct job_totals now, delta;
	uint64_t *difference = (uint64_t *)&delta;

	if (!totals_read(places, &now))
		return;
	for (size_t i = 0; i < sizeof(now) / sizeof(uint64_t); i++)
		difference[i] = ((uint64_t *)&now)[i] - ((uint64_t *)&places->before)[i];
	event.pages.accessed_pages = cut32(delta.accessed_pages);
	event.pages.missed_pages = cut32(delta.missed_pages);
	event.pages.n_minor_faults = cut32(delta.n_minor_faults);
	event.pages.n_major_faults = cut32(delta.n_major_faults);
	event.pages.fault_ns = delta.fault_ns;
	places->emit(places->user, &event);
	event = (struct event){.type = EVENT_READS, .start_ns = places->totals_ns, .end_ns = now_ns};
	event.reads.used_bytes = delta.used_bytes;
	event.reads.direct_bytes = delta.direct_bytes;
	event.reads.network_bytes = delta.network_bytes;
	event.reads.n_reads = cut32(delta.n_reads);
	places->emit(places->user, &event);
	sizes_emit(places, delta.read_sizes, now_ns);
	places->before = now;
	places->totals_ns = now_ns;
}

static void folder_learn(struct places *places, const struct place_key *key, const struct read_place *place)
{
	struct folder *folder;

	HASH_FIND(hh, places->folders, key, sizeof(*key), folder);
	if (!folder) {
		if (HASH_COUNT(places->folders) >= FOLDERS_MAX)
			return;
		folder = calloc(1, sizeof(*folder));
		if (!folder)
			return;
		folder->key = *key;
		HASH_ADD(hh, places->folders, key, sizeof(*key), folder);
	}
	folder->parent = place->parent;
	memcpy(folder->name, place->name, sizeof(folder->name));
	folder->name[sizeof(folder->name) - 1] = '\0';
}

static void entry_add(struct places *places, const struct place_key *key, const struct read_place *place)
{
	if (key->folder)
		folder_learn(places, key, place);
	if (!place->accessed_pages && !place->missed_pages && !place->n_reads)
		return;
	if (array_reserve(places->entries, places->n_entries, places->n_allocated) < 0)
		return;
	places->entries[places->n_entries++] = (struct entry){*key, *place};
}

/* Empties the map. Counts that a thread adds at this very moment may be lost, but only from the detail. */
static void places_take(struct places *places)
{
	uint32_t at = 0;
	bool first = true;

	places->n_entries = 0;
	for (int r = 0; r == 0; first = false) {
		uint32_t n = BATCH;

		r = bpf_map_lookup_and_delete_batch(places->places_fd, first ? NULL : &at, &at, places->keys,
						    places->values, &n, NULL);
		if (r < 0 && errno != ENOENT) {
			log_debug("cannot read the list of files that the job used: %s", strerror(errno));
			return;
		}
		for (uint32_t i = 0; i < n; i++)
			entry_add(places, &places->keys[i], &places->values[i]);
	}
}

/* Orders folders before files, then by bytes from storage, then by bytes used. */
static int entry_compare(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;

	if (a->key.folder != b->key.folder)
		return a->key.folder ? -1 : 1;
	if (a->place.missed_pages != b->place.missed_pages)
		return a->place.missed_pages > b->place.missed_pages ? -1 : 1;
	if (a->place.used_bytes != b->place.used_bytes)
		return a->place.used_bytes > b->place.used_bytes ? -1 : 1;
	return 0;
}

/* Writes the path within the file system from the back of the buffer. An unknown folder becomes "?". */
static const char *inner_path(struct places *places, const struct entry *entry, char *buffer, size_t size)
{
	struct place_key key = {entry->place.parent, entry->key.device, 1};
	const char *name = entry->place.name;
	size_t at = size - 1;
	bool root = entry->key.folder && entry->place.parent == entry->key.inode;

	buffer[at] = '\0';
	for (int i = 0; !root && i < FOLDERS_DEEP; i++) {
		size_t length = strnlen(name, PLACE_NAME);
		struct folder *folder;

		if (length + 1 > at)
			break;
		at -= length;
		memcpy(buffer + at, name, length);
		buffer[--at] = '/';
		HASH_FIND(hh, places->folders, &key, sizeof(key), folder);
		name = folder ? folder->name : "?";
		root = !name[0] || (folder && folder->parent == key.inode) || !strcmp(name, "/");
		key.inode = folder ? folder->parent : 0;
		if (!folder) {
			if (at < 2)
				break;
			buffer[--at] = '?';
			buffer[--at] = '/';
			break;
		}
	}
	if (!buffer[at])
		buffer[--at] = '/';
	return buffer + at;
}

static void path_note(struct places *places, const struct entry *entry)
{
	struct {
		struct places_path head;
		char path[4096];
	} metadata = {{entry->key.inode, entry->key.device, entry->key.folder}, ""};
	char buffer[4096];
	const char *inner;
	struct noted *noted;

	HASH_FIND(hh, places->noted, &entry->key, sizeof(entry->key), noted);
	if (noted || HASH_COUNT(places->noted) >= NOTED_MAX)
		return;
	noted = calloc(1, sizeof(*noted));
	if (!noted)
		return;
	noted->key = entry->key;
	HASH_ADD(hh, places->noted, key, sizeof(noted->key), noted);
	inner = inner_path(places, entry, buffer, sizeof(buffer));
	if (mounts_path(places->mounts, entry->key.device, inner, metadata.path, sizeof(metadata.path)) < 0)
		mounts_path(places->job_mounts, entry->key.device, inner, metadata.path,
			    sizeof(metadata.path));
	places->metadata(places->user, METADATA_PATH, HASH_COUNT(places->noted), &metadata,
			 sizeof(metadata.head) + strlen(metadata.path));
}

static void place_emit(struct places *places, const struct entry *entry, uint64_t now_ns)
{
	struct event event = {.type = EVENT_PLACE, .start_ns = places->places_ns, .end_ns = now_ns};

	if (entry->key.folder)
		event.flags = EVENT_FLAG_FOLDER;
	event.place.inode = entry->key.inode;
	event.place.device = entry->key.device;
	event.place.accessed_pages = cut32(entry->place.accessed_pages);
	event.place.missed_pages = cut32(entry->place.missed_pages);
	event.place.n_reads = cut32(entry->place.n_reads);
	event.place.used_kib = cut32(entry->place.used_bytes >> 10);
	event.place.direct_kib = cut32(entry->place.direct_bytes >> 10);
	places->emit(places->user, &event);
	path_note(places, entry);
}

static uint64_t pause_ns(const struct places *places, uint64_t every_ns, uint64_t now_ns)
{
	return now_ns - places->begin_ns < BEGINNING_NS ? every_ns : LATER_FACTOR * every_ns;
}

static void places_report(struct places *places, pid_t job, uint64_t now_ns)
{
	size_t n_files = 0, n_folders = 0;
	char path[64];

	places_take(places);
	if (places->n_entries) {
		mounts_free(places->mounts);
		places->mounts = NULL;
		mounts_read("/proc/self/mountinfo", &places->mounts);
		if (!places->job_mounts) {
			snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)job);
			mounts_read(path, &places->job_mounts);
		}
		qsort(places->entries, places->n_entries, sizeof(*places->entries), entry_compare);
	}
	for (size_t i = 0; i < places->n_entries; i++) {
		size_t *n = places->entries[i].key.folder ? &n_folders : &n_files;

		if ((*n)++ < PLACES_TOP)
			place_emit(places, &places->entries[i], now_ns);
	}
	places->places_ns = now_ns;
	places->places_pause_ns = PLACES_SHARE * (clock_monotonic_ns() - now_ns);
	if (places->places_pause_ns < pause_ns(places, PLACES_EVERY_NS, now_ns))
		places->places_pause_ns = pause_ns(places, PLACES_EVERY_NS, now_ns);
}

void places_step(struct places *places, pid_t job, uint64_t now_ns, bool last)
{
	if (last || now_ns - places->totals_ns >= pause_ns(places, TOTALS_EVERY_NS, now_ns))
		totals_emit(places, now_ns);
	if (last || now_ns - places->places_ns >= places->places_pause_ns)
		places_report(places, job, now_ns);
}
