/* SPDX-License-Identifier: Apache-2.0 */
#include "probe_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/collector.h"
#include "gpu_table.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/proc.h"
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

/* A library that is being probed. */
struct probing {
	struct probe_file *file;
	struct bpf_object *object;
	const struct symbol_file *symbols;
	const char *path; /* one that we can open */
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

static struct bpf_program *program_of(const struct probing *probing, const char *name)
{
	return bpf_object__find_program_by_name(probing->object, name);
}

static size_t attach_targets(struct probing *probing, enum library library)
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		struct uprobe_links *links =
		    targets[i].frequent ? &probing->file->work_links : &probing->file->links;
		struct uprobe_point point = {.cookie = targets[i].cookie};
		size_t n_attached = 0;
		int r;

		if (targets[i].library != library)
			continue;
		r = symbol_file_find(probing->symbols, targets[i].symbol, targets[i].exact, &point.offset,
				     NULL);
		if (r == 0)
			r = uprobe_attach(links, program_of(probing, targets[i].program), false,
					  probing->path, &point, 1, &n_attached);
		log_debug("%s: probe on %s: %s", probing->path, targets[i].symbol, strerror(-r));
		n += n_attached;
	}
	return n;
}

/* The places in libcuda to probe. */
struct gpu_points {
	struct uprobe_point works[GPU_FUNCTIONS], waits[GPU_FUNCTIONS];
	size_t n_works, n_waits;
};

static void gpu_points_find(struct probing *probing, struct gpu_points *points)
{
	struct gpu_probes *gpu = &probing->file->gpu;

	for (uint32_t i = 0; i < n_gpu_functions; i++) {
		const struct gpu_function *function = &gpu_functions[i];
		struct uprobe_point point = {.cookie = function->cookie};
		bool cheap;

		if (!function->name)
			continue;
		if (symbol_file_find(probing->symbols, function->name, true, &point.offset, &cheap)) {
			gpu->n_missing++;
			continue;
		}
		log_debug("%s: %s at offset %#llx, %s", probing->path, function->name,
			  (unsigned long long)point.offset, cheap ? "cheap" : "expensive");
		gpu->n_expensive += !cheap;
		if (gpu_function_waits(function))
			points->waits[points->n_waits++] = point;
		else
			points->works[points->n_works++] = point;
	}
}

/* Attaches returns first: the other way round, a call in between would look like one that never returns. */
static size_t attach_gpu(struct probing *probing)
{
	struct gpu_probes *gpu = &probing->file->gpu;
	struct probe_file *file = probing->file;
	struct bpf_program *enter = program_of(probing, "gpu_enter"),
			   *leave = program_of(probing, "gpu_leave");
	struct gpu_points points = {0};
	size_t n_returns, n_waits, n_works;

	gpu_points_find(probing, &points);
	uprobe_attach(&file->links, leave, true, probing->path, points.waits, points.n_waits, &n_returns);
	uprobe_attach(&file->links, enter, false, probing->path, points.waits, points.n_waits, &n_waits);
	uprobe_attach(&file->work_links, enter, false, probing->path, points.works, points.n_works, &n_works);
	gpu->n_probed = (uint32_t)(n_waits + n_works);
	gpu->n_refused = (uint32_t)(2 * points.n_waits - n_waits - n_returns + points.n_works - n_works);
	return gpu->n_probed;
}

/* USDT probes of our provider that begin or end a range. */
struct range_points {
	struct uprobe_point items[RANGE_POINTS_MAX];
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
	struct range_points *points = user;
	uint64_t end = 0;
	size_t length;

	if (strcmp(probe->provider, "diesel"))
		return 0;
	if (strip_suffix(probe->name, "_end", &length))
		end = PHASE_COOKIE_END;
	else if (!strip_suffix(probe->name, "_begin", &length))
		return 0;
	if (points->n == RANGE_POINTS_MAX || length >= PHASE_NAME_MAX)
		return 0;
	phase_names_add(points->phases, probe->name, length);
	points->items[points->n++] = (struct uprobe_point){.offset = probe->offset,
							   .cookie = phase_key(probe->name, length) | end,
							   .semaphore_offset = probe->semaphore_offset};
	return 0;
}

static size_t attach_ranges(struct probing *probing, struct phase_names *phases)
{
	struct range_points points = {.phases = phases};
	size_t n = 0;

	usdt_each(probing->symbols, range_visit, &points);
	if (points.n)
		uprobe_attach(&probing->file->work_links, program_of(probing, "usdt_phase"), false,
			      probing->path, points.items, points.n, &n);
	return n;
}

static bool is_inode(int fd, uint64_t inode)
{
	struct stat info;

	return fstat(fd, &info) == 0 && info.st_ino == inode;
}

static bool is_large(int fd)
{
	struct stat info;

	return fstat(fd, &info) == 0 && info.st_size >= STATIC_TORCH_MIN_BYTES;
}

/* Opens the file by its path in the process's own root, or, if it was deleted or replaced since, through the
 * mapping itself, which takes CAP_SYS_ADMIN. On some file systems (overlays) stat() shows another inode than
 * the map, and the path is right after all. Returns a descriptor or -errno; path is what was opened. */
static int mapping_open(pid_t tgid, const struct proc_mapping *mapping, char *path, size_t size)
{
	char link[96];
	int fd, link_fd;

	snprintf(path, size, "/proc/%d/root%s", (int)tgid, mapping->path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && is_inode(fd, mapping->inode))
		return fd;
	snprintf(link, sizeof(link), "/proc/%d/map_files/%llx-%llx", (int)tgid,
		 (unsigned long long)mapping->start, (unsigned long long)mapping->end);
	link_fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (link_fd < 0)
		return fd >= 0 ? fd : -errno;
	closep(&fd);
	snprintf(path, size, "%s", link);
	return link_fd;
}

size_t probe_file_attach(struct probe_file *file, struct bpf_object *object, struct phase_names *phases,
			 pid_t tgid, const struct proc_mapping *mapping)
{
	char path[4352];
	_cleanup_(closep) int fd = mapping_open(tgid, mapping, path, sizeof(path));
	struct probing probing = {.file = file, .object = object, .path = path};
	struct symbol_file *symbols;
	enum library library;
	size_t n = 0;

	if (fd < 0) {
		log_debug("%s: %s", path, strerror(-fd));
		return 0;
	}
	if (symbol_file_open(fd, &symbols))
		return 0;
	probing.symbols = symbols;
	library = library_of(strrchr(mapping->path, '/') + 1);
	if (library == LIBRARY_NONE)
		library = library_of(symbol_file_soname(symbols));
	/* A program that PyTorch is linked into may have any name; nothing else is as large and has its
	 * symbol. */
	if (library == LIBRARY_NONE && is_large(fd))
		library = LIBRARY_TORCH;
	switch (library) {
	case LIBRARY_NONE: n = attach_ranges(&probing, phases); break;
	case LIBRARY_TORCH:
	case LIBRARY_NVTX:
	case LIBRARY_DIESEL: n = attach_targets(&probing, library); break;
	case LIBRARY_CUDA:
		file->path = strdup(mapping->path);
		n = attach_gpu(&probing);
		break;
	}
	symbol_file_close(symbols);
	return n;
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

void probe_file_detach(struct probe_file *file)
{
	uprobe_detach(&file->links);
	uprobe_detach(&file->work_links);
}

void probe_file_drop_work(struct probe_file *file, uint64_t now_ns)
{
	if (!file->work_links.n)
		return;
	uprobe_detach(&file->work_links);
	file->gpu.launches_until_ns = now_ns;
	file->noted = false;
}
