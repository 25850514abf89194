/* SPDX-License-Identifier: Apache-2.0 */
#include "probe_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/collector.h"
#include "gpu_table.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "mapped_file.h"
#include "phase_shared.h"
#include "phases.h"
#include "symbol.h"
#include "usdt.h"

#define RANGE_POINTS_MAX 256 /* per file; an inlined marker is in several places */

#define STATIC_TORCH_MIN_BYTES (16 << 20) /* the library itself has 100 MB and more */

enum library {
	LIBRARY_NONE,
	LIBRARY_TORCH,
	LIBRARY_DIESEL,
	LIBRARY_CUDA,
	LIBRARY_NVTX,
};

/* What the file's name, and the name that it was linked as, begin with. */
static const struct known_library {
	enum library library;
	const char *name;
} known_libraries[] = {
    {LIBRARY_TORCH, "libtorch"},
    {LIBRARY_DIESEL, "libdiesel"},
    {LIBRARY_CUDA, "libcuda.so"},
    {LIBRARY_NVTX, "libnvToolsExt"},
};

static const struct target {
	enum library library;
	const char *symbol;
	bool exact;
	const char *program;
	uint64_t cookie;
	bool frequent; /* may come by the thousand */
} targets[] = {
    {LIBRARY_TORCH, "_ZN5torch8autograd6Engine7execute", false, "engine_execute", 0, false},
    /* Ends come first: the other way round, a next() in between would look like one that never ends. */
    {LIBRARY_TORCH, "_ZN2at14RecordFunction3endEv", true, "batch_end", 0, false},
    {LIBRARY_TORCH, "_ZN2at14RecordFunctionC1ENS_11RecordScopeE", true, "batch_begin", 0, false},
    {LIBRARY_TORCH, "_ZN5torch8autograd8profiler25record_function_enter_new", false, "batch_named", 0, false},
    {LIBRARY_DIESEL, "diesel_mark", true, "diesel_mark", 0, false},
    {LIBRARY_NVTX, "nvtxRangePushA", true, "nvtx_push", 0, true},
    {LIBRARY_NVTX, "nvtxRangePushEx", true, "nvtx_push_attributes", 0, true},
    {LIBRARY_NVTX, "nvtxDomainRangePushEx", true, "nvtx_push_attributes", 1, true},
    {LIBRARY_NVTX, "nvtxRangePop", true, "nvtx_pop", 0, true},
    {LIBRARY_NVTX, "nvtxDomainRangePop", true, "nvtx_pop", 0, true},
};

/* A library that is being looked at. */
struct looking {
	struct probe_file *file;
	struct bpf_object *object;
	struct symbol_file *symbols;
};

static enum library library_of(const char *name)
{
	for (size_t i = 0; i < sizeof(known_libraries) / sizeof(known_libraries[0]); i++)
		if (!strncmp(name, known_libraries[i].name, strlen(known_libraries[i].name)))
			return known_libraries[i].library;
	return LIBRARY_NONE;
}

bool probe_file_is_named(const char *name)
{
	return library_of(name) != LIBRARY_NONE;
}

/* Adds a place. Places of one program that follow each other are set at once. */
static void add_point(struct looking *looking, const char *program, bool at_return, bool frequent,
		      const struct uprobe_point *point)
{
	struct probe_file *file = looking->file;
	struct bpf_program *wanted = bpf_object__find_program_by_name(looking->object, program);
	struct probe_group *group = file->n_groups ? &file->groups[file->n_groups - 1] : NULL;
	struct uprobe_point *points;

	if (!group || group->program != wanted || group->at_return != at_return ||
	    group->frequent != frequent) {
		group = reallocarray(file->groups, file->n_groups + 1, sizeof(*group));
		if (!group)
			return;
		file->groups = group;
		group += file->n_groups++;
		*group =
		    (struct probe_group){.program = wanted, .at_return = at_return, .frequent = frequent};
	}
	points = reallocarray(group->points, group->n + 1, sizeof(*points));
	if (!points)
		return;
	group->points = points;
	points[group->n++] = *point;
}

static void look_for_targets(struct looking *looking, enum library library)
{
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		const struct target *target = &targets[i];
		struct uprobe_point point = {.cookie = target->cookie};
		int r;

		if (target->library != library)
			continue;
		r = symbol_file_find(looking->symbols, target->symbol, target->exact, &point.offset, NULL);
		if (r == 0)
			add_point(looking, target->program, false, target->frequent, &point);
		else
			log_debug("no probe on %s: %s", target->symbol, strerror(-r));
	}
}

/* Returns come first: the other way round, a call in between would look like one that never returns. */
static void look_for_gpu(struct looking *looking)
{
	struct gpu_probes *gpu = &looking->file->gpu;
	struct uprobe_point works[GPU_FUNCTIONS], waits[GPU_FUNCTIONS];
	size_t n_works = 0, n_waits = 0;

	for (uint32_t i = 0; i < n_gpu_functions; i++) {
		const struct gpu_function *function = &gpu_functions[i];
		struct uprobe_point point = {.cookie = function->cookie};
		bool cheap;

		if (!function->name)
			continue;
		if (symbol_file_find(looking->symbols, function->name, true, &point.offset, &cheap)) {
			gpu->n_missing++;
			continue;
		}
		log_debug("%s at offset %#llx, %s", function->name, (unsigned long long)point.offset,
			  cheap ? "cheap" : "expensive");
		gpu->n_expensive += !cheap;
		if (gpu_function_waits(function))
			waits[n_waits++] = point;
		else
			works[n_works++] = point;
	}
	for (size_t i = 0; i < n_waits; i++)
		add_point(looking, "gpu_leave", true, false, &waits[i]);
	for (size_t i = 0; i < n_waits; i++)
		add_point(looking, "gpu_enter", false, false, &waits[i]);
	for (size_t i = 0; i < n_works; i++)
		add_point(looking, "gpu_enter", false, true, &works[i]);
}

/* USDT probes of our provider that begin or end a range. */
struct range_search {
	struct looking *looking;
	size_t n;
	struct phase_names *phases;
};

static bool strip_suffix(const char *name, const char *suffix, size_t *ret_length)
{
	size_t length = strlen(name), cut = strlen(suffix);

	if (length <= cut || strcmp(name + length - cut, suffix))
		return false;
	*ret_length = length - cut;
	return true;
}

static int range_visit(void *user, const struct usdt_probe *probe)
{
	struct range_search *search = user;
	struct uprobe_point point = {.offset = probe->offset, .semaphore_offset = probe->semaphore_offset};
	uint64_t end = 0;
	size_t length;

	if (strcmp(probe->provider, "diesel"))
		return 0;
	if (strip_suffix(probe->name, "_end", &length))
		end = PHASE_COOKIE_END;
	else if (!strip_suffix(probe->name, "_begin", &length))
		return 0;
	if (search->n == RANGE_POINTS_MAX || length >= PHASE_NAME_MAX)
		return 0;
	search->n++;
	phase_names_add(search->phases, probe->name, length);
	point.cookie = phase_key(probe->name, length) | end;
	add_point(search->looking, "usdt_phase", false, true, &point);
	return 0;
}

static bool is_large(int fd)
{
	struct stat info;

	return fstat(fd, &info) == 0 && info.st_size >= STATIC_TORCH_MIN_BYTES;
}

static enum library library_of_file(int fd, const struct symbol_file *symbols, const char *path)
{
	enum library library = library_of(strrchr(path, '/') + 1);

	if (library == LIBRARY_NONE)
		library = library_of(symbol_file_soname(symbols));
	/* A program that PyTorch is linked into may have any name; nothing else is as large and has its
	 * symbol. */
	return library == LIBRARY_NONE && is_large(fd) ? LIBRARY_TORCH : library;
}

void probe_file_look(struct probe_file *file, struct bpf_object *object, struct phase_names *phases,
		     pid_t tgid, const struct proc_mapping *mapping)
{
	_cleanup_(closep) int fd = mapped_file_open("/proc", tgid, mapping);
	struct looking looking = {.file = file, .object = object};
	struct range_search ranges = {.looking = &looking, .phases = phases};
	enum library library;

	file->fd = -1;
	if (fd < 0) {
		log_debug("%s of process %d: %s", mapping->path, (int)tgid, strerror(-fd));
		return;
	}
	if (symbol_file_open(fd, &looking.symbols))
		return;
	library = library_of_file(fd, looking.symbols, mapping->path);
	switch (library) {
	case LIBRARY_NONE: usdt_each(looking.symbols, range_visit, &ranges); break;
	case LIBRARY_TORCH:
	case LIBRARY_NVTX:
	case LIBRARY_DIESEL: look_for_targets(&looking, library); break;
	case LIBRARY_CUDA:
		file->path = strdup(mapping->path);
		look_for_gpu(&looking);
		break;
	}
	symbol_file_close(looking.symbols);
	if (file->n_groups)
		file->fd = steal_fd(&fd);
}

void probe_file_free(struct probe_file *file)
{
	closep(&file->fd);
	for (size_t i = 0; i < file->n_groups; i++)
		free(file->groups[i].points);
	free(file->groups);
	free(file->path);
}

size_t probe_file_attach(struct probe_file *file, pid_t tgid, struct uprobe_links *links,
			 struct uprobe_links *frequent)
{
	size_t n_probes = 0, n_entries = 0, n_refused = 0;

	for (size_t i = 0; i < file->n_groups; i++) {
		const struct probe_group *group = &file->groups[i];
		size_t n;

		if (group->frequent && !frequent)
			continue;
		uprobe_attach(group->frequent ? frequent : links, group->program, group->at_return, file->fd,
			      tgid, group->points, group->n, &n);
		log_debug("process %d: %zu of %zu probes are set for %s", (int)tgid, n, group->n,
			  bpf_program__name(group->program));
		n_probes += n;
		n_entries += group->at_return ? 0 : n;
		n_refused += group->n - n;
	}
	file->gpu.n_probed = (uint32_t)n_entries;
	file->gpu.n_refused = (uint32_t)n_refused;
	return file->path ? n_entries : n_probes;
}

void probe_file_note(struct probe_file *file, const struct collector_sink *sink)
{
	uint64_t key = file->device << 40 ^ file->inode;

	if (!file->path || file->noted)
		return;
	file->noted = true;
	sink->note(sink->user, GPU_NOTE_LIBRARY, key, file->path, strlen(file->path));
	sink->note(sink->user, GPU_NOTE_PROBES, key, &file->gpu, sizeof(file->gpu));
}

void probe_file_note_drop(struct probe_file *file, uint64_t now_ns)
{
	file->gpu.launches_until_ns = now_ns;
	file->noted = false;
}
