/* SPDX-License-Identifier: Apache-2.0 */
#include "processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "elf_symbols.h"
#include "lib/clock.h"
#include "lib/log.h"

#define PROCESSES_MAX 1024
/* A process maps many files at its start and few later, so reads that find nothing new become rarer. */
#define PAUSE_MIN_NS (100 * NS_PER_MS)
#define PAUSE_MAX_NS (10 * NS_PER_S)

int processes_init(struct processes *processes, const char *root)
{
	*processes = (struct processes){.root = root};
	processes->items = calloc(PROCESSES_MAX, sizeof(struct process *));
	return processes->items ? 0 : -ENOMEM;
}

static void process_free(struct process *process)
{
	address_space_free(&process->space);
	free(process);
}

void processes_free(struct processes *processes)
{
	for (size_t i = 0; i < processes->n; i++)
		process_free(processes->items[i]);
	free(processes->items);
	code_files_free(&processes->files);
	*processes = (struct processes){0};
}

struct process *processes_find(const struct processes *processes, uint32_t tgid)
{
	const struct process *last = processes->index[tgid % PROCESSES_INDEX];

	if (last && last->tgid == tgid)
		return processes->index[tgid % PROCESSES_INDEX];
	for (size_t i = 0; i < processes->n; i++)
		if (processes->items[i]->tgid == tgid)
			return processes->items[i];
	return NULL;
}

/* Frees a slot. Ended processes need no special treatment: they just have no more samples. */
static void drop_oldest(struct processes *processes)
{
	struct process **slot;
	size_t oldest = 0;

	for (size_t i = 1; i < processes->n; i++)
		if (processes->items[i]->sample_ns < processes->items[oldest]->sample_ns)
			oldest = i;
	slot = &processes->index[processes->items[oldest]->tgid % PROCESSES_INDEX];
	if (*slot == processes->items[oldest])
		*slot = NULL;
	process_free(processes->items[oldest]);
	processes->items[oldest] = processes->items[--processes->n];
}

struct process *processes_get(struct processes *processes, uint32_t tgid)
{
	struct process *process = processes_find(processes, tgid);

	if (process) {
		processes->index[tgid % PROCESSES_INDEX] = process;
		return process;
	}
	process = calloc(1, sizeof(*process));
	if (!process)
		return NULL;
	if (processes->n == PROCESSES_MAX)
		drop_oldest(processes);
	process->tgid = tgid;
	process->serial = ++processes->last_serial;
	processes->items[processes->n++] = process;
	processes->index[tgid % PROCESSES_INDEX] = process;
	return process;
}

void processes_renew(struct processes *processes, uint32_t tgid, uint32_t parent)
{
	struct process *process = processes_get(processes, tgid);

	if (!process)
		return;
	address_space_free(&process->space);
	process->serial = ++processes->last_serial;
	process->parent = parent;
	process->read_ns = process->pause_ns = 0;
	process->has_python = process->python_refused = false;
}

/* Returns 0x030b for 3.11, 0 if it is not known. Since 3.11 the version is in the file, before that only in
 * its name. */
static uint32_t version_of(struct elf_symbols *symbols, const struct code_mapping *mapping, pid_t pid)
{
	uint32_t number = 0;
	int64_t distance;

	if (elf_symbols_distance(symbols, "Py_Version", mapping->offset_bytes, &distance))
		return python_version_of_name(mapping->file->name);
	if (python_read_process(pid, mapping->begin + (uint64_t)distance, &number, sizeof(number)))
		return 0;
	return number >> 16;
}

static void find_python(struct processes *processes, struct process *process)
{
	pid_t pid = (pid_t)process->tgid;
	const struct python_memory memory = python_memory_of(&pid);

	for (size_t i = 0; i < process->space.n && !process->has_python && !process->python_refused; i++) {
		const struct code_mapping *mapping = &process->space.mappings[i];
		struct elf_symbols *symbols;
		uint32_t version;
		int64_t distance;
		int r;

		if (!mapping->file || (strncmp(mapping->file->name, "python", 6) &&
				       strncmp(mapping->file->name, "libpython", 9)))
			continue;
		symbols = code_file_open(&processes->files, processes->root, pid, mapping);
		if (!symbols || elf_symbols_distance(symbols, "_PyRuntime", mapping->offset_bytes, &distance))
			continue;
		version = version_of(symbols, mapping, pid);
		r = python_describe(version, mapping->begin + (uint64_t)distance, &memory, &process->python);
		process->has_python = r == 0;
		process->python_refused = r == -ENOTSUP;
		log_debug("process %u: %s, Python %u.%u: %s", process->tgid, mapping->file->name,
			  version >> 8, version & 0xff, r < 0 ? strerror(-r) : "reading its Python frames");
	}
}

/* -ENOMEM. */
static int address_space_copy(const struct process_space *from, struct process_space *ret_space)
{
	struct process_space copy = {.n = from->n};

	copy.mappings = calloc(from->n + 1, sizeof(*copy.mappings));
	if (!copy.mappings)
		return -ENOMEM;
	if (from->n)
		memcpy(copy.mappings, from->mappings, from->n * sizeof(*copy.mappings));
	*ret_space = copy;
	return 0;
}

/* Treats a process that ended before it was read as a copy of the one that forked it. */
static void inherit(struct processes *processes, struct process *process)
{
	const struct process *parent = process->parent ? processes_find(processes, process->parent) : NULL;
	struct process_space copy;

	if (!parent || !parent->space.n || address_space_copy(&parent->space, &copy))
		return;
	address_space_free(&process->space);
	process->space = copy;
	process->python = parent->python;
	process->has_python = parent->has_python;
}

static void look(struct processes *processes, struct process *process, uint64_t now_ns)
{
	int r = address_space_read(processes->root, (pid_t)process->tgid, &processes->files, &process->space);

	process->read_ns = now_ns;
	if (r == 0 && !process->has_python)
		find_python(processes, process);
	else if (r < 0 && !process->space.n)
		inherit(processes, process);
}

bool process_python(struct processes *processes, struct process *process, uint64_t now_ns)
{
	look(processes, process, now_ns);
	return process->has_python;
}

const struct code_mapping *process_code(struct processes *processes, struct process *process,
					uint64_t address, uint64_t now_ns)
{
	const struct code_mapping *mapping = address_space_find(&process->space, address);

	if (mapping || (process->read_ns && now_ns - process->read_ns < process->pause_ns))
		return mapping;
	look(processes, process, now_ns);
	mapping = address_space_find(&process->space, address);
	process->pause_ns = mapping || !process->pause_ns ? PAUSE_MIN_NS : 2 * process->pause_ns;
	if (process->pause_ns > PAUSE_MAX_NS)
		process->pause_ns = PAUSE_MAX_NS;
	return mapping;
}
