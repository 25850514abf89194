/* SPDX-License-Identifier: Apache-2.0 */
#include "address_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "elf_symbols.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "lib/sorted.h"
#include "mapped_file.h"

#define FILES_MAX    4096
#define OPEN_MAX     400  /* files; a process may have 1024 descriptors */
#define MAPPINGS_MAX 8192 /* no job has more code */
#define DEBUG_ROOT   "/usr/lib/debug"

static struct code_file *file_get(struct code_files *files, const struct proc_mapping *mapping)
{
	struct code_file *file;
	char *deleted;

	for (size_t i = 0; i < files->n; i++)
		if (files->items[i]->inode == mapping->inode && files->items[i]->device == mapping->device)
			return files->items[i];
	if (files->n == FILES_MAX)
		return NULL;
	if (!files->items)
		files->items = calloc(FILES_MAX, sizeof(struct code_file *));
	file = files->items ? calloc(1, sizeof(*file)) : NULL;
	if (!file)
		return NULL;
	file->path = strdup(mapping->path);
	if (!file->path) {
		free(file);
		return NULL;
	}
	deleted = strstr(file->path, " (deleted)");
	if (deleted && !deleted[strlen(" (deleted)")])
		*deleted = '\0';
	file->name = strrchr(file->path, '/');
	file->name = file->name ? file->name + 1 : file->path;
	file->device = mapping->device;
	file->inode = mapping->inode;
	files->items[files->n++] = file;
	return file;
}

void code_files_free(struct code_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		elf_symbols_close(files->items[i]->symbols);
		free(files->items[i]->path);
		free(files->items[i]);
	}
	free(files->items);
	*files = (struct code_files){0};
}

struct memory_reading {
	struct code_files *files;
	struct process_space space;
	size_t n_allocated;
};

static int take_mapping(void *user, const struct proc_mapping *mapping)
{
	struct memory_reading *reading = user;
	struct process_space *space = &reading->space;

	if (!mapping->executable || mapping->end <= mapping->start || space->n == MAPPINGS_MAX)
		return 0;
	if (array_reserve(space->mappings, space->n, reading->n_allocated) < 0)
		return -ENOMEM;
	space->mappings[space->n++] = (struct code_mapping){
	    .begin = mapping->start,
	    .end = mapping->end,
	    .offset_bytes = mapping->offset_bytes,
	    .file = mapping->inode && mapping->path[0] == '/' ? file_get(reading->files, mapping) : NULL,
	};
	return 0;
}

static int mapping_compare(const void *left, const void *right)
{
	const struct code_mapping *a = left, *b = right;

	return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* PROCMAP_QUERY of Linux 6.11 gives one mapping per call, without the text. A process that has imported
 * PyTorch has a thousand mappings, and writing and parsing their text takes 10 ms; asking for its code alone
 * takes less than one. */
struct procmap_query {
	uint64_t size, flags, address;
	uint64_t begin, end, vma_flags, page_bytes, offset_bytes, inode;
	uint32_t device_major, device_minor, name_bytes, build_id_bytes;
	uint64_t name, build_id;
};

_Static_assert(sizeof(struct procmap_query) == 104, "must match the kernel's layout");

#define PROCMAP_QUERY         _IOWR('f', 17, struct procmap_query)
#define PROCMAP_EXECUTABLE    0x04
#define PROCMAP_COVERING_NEXT 0x10

/* Reads the mappings by PROCMAP_QUERY. -ENOTTY: this kernel lacks it. */
static int query_mappings(const char *root, pid_t pid, struct memory_reading *reading)
{
	_cleanup_(closep) int fd = -1;
	char path[4096 + 16], maps[256];
	uint64_t address = 0;

	snprintf(maps, sizeof(maps), "%s/%d/maps", root, (int)pid);
	fd = open(maps, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	for (;;) {
		struct procmap_query query = {
		    .size = sizeof(query),
		    .flags = PROCMAP_EXECUTABLE | PROCMAP_COVERING_NEXT,
		    .address = address,
		    .name_bytes = sizeof(path),
		    .name = (uintptr_t)path,
		};
		struct proc_mapping mapping = {.executable = true, .path = path};
		int r;

		path[0] = '\0';
		if (ioctl(fd, PROCMAP_QUERY, &query))
			return errno == ENOENT ? 0 : -errno;
		if (query.end <= address)
			return 0;
		address = query.end;
		mapping.start = query.begin;
		mapping.end = query.end;
		mapping.offset_bytes = query.offset_bytes;
		mapping.device = (uint64_t)query.device_major << 20 | query.device_minor;
		mapping.inode = query.inode;
		r = take_mapping(reading, &mapping);
		if (r < 0)
			return r;
	}
}

int address_space_read(const char *root, pid_t pid, struct code_files *files, struct process_space *space)
{
	struct memory_reading reading = {.files = files};
	int r = query_mappings(root, pid, &reading);

	if (r == -ENOTTY || r == -EINVAL)
		r = proc_mappings(root, pid, take_mapping, &reading);

	/* The maps of a process that just ended can be read, but are empty. */
	if (r == 0 && !reading.space.n)
		r = -ESRCH;
	if (r < 0) {
		address_space_free(&reading.space);
		return r;
	}
	qsort(reading.space.mappings, reading.space.n, sizeof(*reading.space.mappings), mapping_compare);
	address_space_free(space);
	*space = reading.space;
	return 0;
}

void address_space_free(struct process_space *space)
{
	free(space->mappings);
	*space = (struct process_space){0};
}

const struct code_mapping *address_space_find(const struct process_space *space, uint64_t address)
{
	size_t at = sorted_count(space->n, i, space->mappings[i].end <= address);

	return at < space->n && space->mappings[at].begin <= address ? &space->mappings[at] : NULL;
}

struct elf_symbols *code_file_open(struct code_files *files, const char *root, pid_t pid,
				   const struct code_mapping *mapping)
{
	struct code_file *file = mapping->file;
	struct proc_mapping mapped;
	int fd, r;

	if (!file)
		return NULL;
	if (file->opened || files->n_open == OPEN_MAX)
		return file->symbols;
	mapped = (struct proc_mapping){.start = mapping->begin,
				       .end = mapping->end,
				       .device = file->device,
				       .inode = file->inode,
				       .path = file->path};
	fd = mapped_file_open(root, pid, &mapped);
	if (fd < 0) {
		log_debug("%s of process %d: %s", file->name, (int)pid, strerror(-fd));
		return NULL; /* another process may still map the file and open it */
	}
	file->opened = true;
	r = elf_symbols_open(fd, DEBUG_ROOT, &file->symbols);
	if (r < 0)
		log_debug("%s: no symbols: %s", file->name, strerror(-r));
	else
		files->n_open++;
	return file->symbols;
}
