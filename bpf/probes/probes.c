/* SPDX-License-Identifier: Apache-2.0 */
#include "probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "bpf/collector.h"
#include "bpf/event.h"
#include "bpf/gpu.h"
#include "gpu_table.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "lib/sorted.h"
#include "bpf/shared/gpu_shared.h"
#include "bpf/shared/library_shared.h"
#include "bpf/symbols/mapped_file.h"
#include "bpf/shared/phase_shared.h"
#include "bpf/symbols/symbol.h"
#include "uprobe.h"
#include "bpf/symbols/usdt.h"
#include "lib/hash.h"

/* Names of ranges, and the keys that represent them in events. */

#define NAMES_MAX 2048
#define SLOTS     4096 /* slots of the hash table: at most half full */

struct phase_name {
	uint64_t key; /* 0: free */
	char text[PHASE_NAME_MAX];
};

struct phase_names {
	size_t n, n_noted;
	uint16_t order[NAMES_MAX]; /* slots, in order of arrival */
	struct phase_name slots[SLOTS];
};

static struct phase_names *phase_names_new(void)
{
	return calloc(1, sizeof(struct phase_names));
}

static void phase_names_free(struct phase_names *names)
{
	free(names);
}

/* Returns the key of a name: the same in every recording, without PHASE_COOKIE_END, and not 0. */
static uint64_t phase_key(const char *name, size_t length)
{
	uint64_t key = hash_bytes(HASH_START, name, length) & ~PHASE_COOKIE_END;

	return key ? key : 1;
}

/* Stores a name for the next phase_names_note(). Drops new names beyond a few thousand, because programs that
 * number their ranges would fill the recording. */
static void phase_names_add(struct phase_names *names, const char *name, size_t length)
{
	uint64_t key = phase_key(name, length);
	size_t at = key % SLOTS;

	while (names->slots[at].key && names->slots[at].key != key)
		at = (at + 1) % SLOTS;
	if (names->slots[at].key || names->n == NAMES_MAX || length >= PHASE_NAME_MAX)
		return;
	names->slots[at].key = key;
	memcpy(names->slots[at].text, name, length);
	names->order[names->n++] = (uint16_t)at;
}

/* Returns the record's event with the key of its name, and stores the name. */
static struct event phase_names_resolve(struct phase_names *names, const struct phase_record *record)
{
	size_t length = strnlen(record->name, sizeof(record->name) - 1);
	struct event event = record->event;

	if (length) {
		event.phase.value = phase_key(record->name, length);
		phase_names_add(names, record->name, length);
	}
	return event;
}

/* Passes new names to the sink. */
static void phase_names_note(struct phase_names *names, const struct collector_sink *sink)
{
	for (; names->n_noted < names->n; names->n_noted++) {
		const struct phase_name *name = &names->slots[names->order[names->n_noted]];

		sink->metadata(sink->user, PHASE_METADATA, name->key, name->text, strlen(name->text));
	}
}

/*
 * A file that the job maps, and its probed places. Only known libraries have any. A file is read once,
 * through a descriptor that stays open while the file is probed. Probes are set through that descriptor, so
 * it does not matter if another file has taken the name.
 */

/* Places for one program. */
struct probe_group {
	struct bpf_program *program;
	bool at_return;
	bool frequent; /* may be hit very often */
	struct uprobe_point *points;
	size_t n;
};

struct probe_file {
	uint64_t device, inode;
	int fd; /* -1: it has no probes */
	struct probe_group *groups;
	size_t n_groups;
	char *path; /* path of a libcuda, as the job sees it; else NULL */
	struct gpu_probes gpu;
	bool noted;
};

#define RANGE_POINTS_MAX 256 /* maximum per file; an inlined marker has several places */

#define STATIC_TORCH_MIN_BYTES (16 << 20) /* the library itself has 100 MB and more */

enum library {
	LIBRARY_NONE,
	LIBRARY_TORCH,
	LIBRARY_DIESEL,
	LIBRARY_CUDA,
	LIBRARY_NVTX,
};

/* Prefixes of a library's file name, and of the name that it was linked as. */
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
	bool frequent; /* may be hit very often */
} targets[] = {
    {LIBRARY_TORCH, "_ZN5torch8autograd6Engine7execute", false, "engine_execute", 0, false},
    /* Probes at ends come first: in the other order, a next() in between would seem never to end. */
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

/* A library that is being searched for functions to probe. */
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

/* Returns true if a file of this name (without folders; it may be cut) is one that is probed. */
static bool probe_file_is_named(const char *name)
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

/* Returns true if the function needs a probe at its return. */
static bool gpu_function_waits(const struct gpu_function *function)
{
	return function->cookie & (GPU_WAITS | GPU_WAITS_MAYBE);
}

/* Probes at returns come first: in the other order, a call in between would seem never to return. */
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

/* Searches a file that a process has mapped for places to probe; adds the names of its ranges to phases. Only
 * device and inode of `file` are set. */
static void probe_file_look(struct probe_file *file, struct bpf_object *object, struct phase_names *phases,
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

static void probe_file_free(struct probe_file *file)
{
	closep(&file->fd);
	for (size_t i = 0; i < file->n_groups; i++)
		free(file->groups[i].points);
	free(file->groups);
	free(file->path);
}

/* Sets the probes in a process, and adds those that may be hit very often to `frequent` (NULL: does not
 * set these). */
static void probe_file_attach(struct probe_file *file, pid_t tgid, struct uprobe_links *links,
			      struct uprobe_links *frequent)
{
	size_t n_entries = 0, n_refused = 0;

	for (size_t i = 0; i < file->n_groups; i++) {
		const struct probe_group *group = &file->groups[i];
		struct uprobe_links *into = group->frequent ? frequent : links;

		if (!into)
			continue;
		size_t n = uprobe_attach(into, group->program, group->at_return, file->fd, tgid,
					 group->points, group->n);

		log_debug("process %d: attached %zu of %zu probes for %s", (int)tgid, n, group->n,
			  bpf_program__name(group->program));
		n_entries += group->at_return ? 0 : n;
		n_refused += group->n - n;
	}
	file->gpu.n_probed = (uint32_t)n_entries;
	file->gpu.n_refused = (uint32_t)n_refused;
}

/* Passes the notes about a libcuda to the sink, once. */
static void probe_file_note(struct probe_file *file, const struct collector_sink *sink)
{
	uint64_t key = file->device << 40 ^ file->inode;

	if (!file->path || file->noted)
		return;
	file->noted = true;
	sink->metadata(sink->user, GPU_METADATA_LIBRARY, key, file->path, strlen(file->path));
	sink->metadata(sink->user, GPU_METADATA_PROBES, key, &file->gpu, sizeof(file->gpu));
}

/* Updates the notes about a libcuda: launches and copies are no longer probed. */
static void probe_file_note_drop(struct probe_file *file, uint64_t now_ns)
{
	file->gpu.launches_until_ns = now_ns;
	file->noted = false;
}

/* Limits for a job that maps files and creates processes without end; anything beyond them is not probed. */
#define FILES_MAX     65536 /* a job maps a few hundred */
#define PROCESSES_MAX 4096
#define PENDING_MAX   4096
#define BACKLOG_MAX   8192 /* maximum number of links that are being removed */

/* Time limits, so that each process gets its turn, however many files another one maps. */
#define STEP_NS   (20 * NS_PER_MS)
#define SETTLE_NS (500 * NS_PER_MS)

/* A process with probes in it. */
struct probed {
	pid_t tgid;
	struct probe_file **files;
	size_t n_files, n_allocated;
	struct uprobe_links links, frequent;
};

struct pending {
	pid_t tgid;
	pid_t parent; /* if forked: the parent, whose mappings it has; 0: read its mappings */
};

struct probe_set {
	struct bpf_object *object;
	int members_fd, libraries_fd;
	struct phase_names *phases;
	struct probe_file **files; /* sorted by device and inode */
	size_t n_files, n_files_allocated;
	struct probed **processes; /* sorted by number */
	size_t n_processes, n_processes_allocated;
	struct pending *pending;
	size_t n_pending, n_pending_allocated;
	struct uprobe_reaper *reaper;
	bool limit_is_raised;
	uint64_t n_frequent, counted_ns; /* state of the launch rate: hits and time at the last check */
	bool work_dropped;
};

struct probe_set *probes_new(struct bpf_object *object, int members_fd, int libraries_fd)
{
	struct probe_set *probes = calloc(1, sizeof(*probes));

	if (!probes)
		return NULL;
	probes->object = object;
	probes->members_fd = members_fd;
	probes->libraries_fd = libraries_fd;
	probes->phases = phase_names_new();
	probes->reaper = uprobe_reaper_new();
	if (!probes->phases || !probes->reaper) {
		probes_free(probes);
		return NULL;
	}
	return probes;
}

static void probed_free(struct probe_set *probes, struct probed *process)
{
	uprobe_reaper_take(probes->reaper, &process->links);
	uprobe_reaper_take(probes->reaper, &process->frequent);
	free(process->files);
	free(process);
}

void probes_detach(struct probe_set *probes)
{
	while (probes->n_processes)
		probed_free(probes, probes->processes[--probes->n_processes]);
	uprobe_reaper_free(probes->reaper);
	probes->reaper = NULL;
}

void probes_free(struct probe_set *probes)
{
	if (!probes)
		return;
	probes_detach(probes);
	for (size_t i = 0; i < probes->n_files; i++) {
		probe_file_free(probes->files[i]);
		free(probes->files[i]);
	}
	free(probes->files);
	free(probes->processes);
	free(probes->pending);
	if (probes->phases)
		phase_names_free(probes->phases);
	free(probes);
}

/* ---- files --------------------------------------------------------------------------------------------- */

static size_t file_index(const struct probe_set *probes, uint64_t device, uint64_t inode)
{
	return sorted_count(probes->n_files, i,
			    probes->files[i]->device < device ||
				(probes->files[i]->device == device && probes->files[i]->inode < inode));
}

static struct probe_file *file_find(const struct probe_set *probes, uint64_t device, uint64_t inode)
{
	size_t at = file_index(probes, device, inode);

	return at < probes->n_files && probes->files[at]->device == device &&
		       probes->files[at]->inode == inode
		   ? probes->files[at]
		   : NULL;
}

static struct probe_file *file_add(struct probe_set *probes, uint64_t device, uint64_t inode)
{
	size_t at = file_index(probes, device, inode);
	struct probe_file *file;

	if (probes->n_files == FILES_MAX ||
	    array_reserve(probes->files, probes->n_files, probes->n_files_allocated) < 0)
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	*file = (struct probe_file){.device = device, .inode = inode, .fd = -1};
	memmove(&probes->files[at + 1], &probes->files[at],
		(probes->n_files - at) * sizeof(struct probe_file *));
	probes->files[at] = file;
	probes->n_files++;
	return file;
}

/* Makes the recorder report each process that maps this file. */
static void tell_always(const struct probe_set *probes, uint64_t device, uint64_t inode)
{
	const struct library_key key = {.inode = inode, .device = device};
	const uint8_t told = LIBRARY_PROBED;

	(void)bpf_map_update_elem(probes->libraries_fd, &key, &told, BPF_ANY);
}

/* ---- processes ----------------------------------------------------------------------------------------- */

static size_t process_index(const struct probe_set *probes, pid_t tgid)
{
	return sorted_count(probes->n_processes, i, probes->processes[i]->tgid < tgid);
}

static struct probed *process_find(const struct probe_set *probes, pid_t tgid)
{
	size_t at = process_index(probes, tgid);

	return at < probes->n_processes && probes->processes[at]->tgid == tgid ? probes->processes[at] : NULL;
}

static struct probed *process_get(struct probe_set *probes, pid_t tgid)
{
	size_t at = process_index(probes, tgid);
	struct probed *process = process_find(probes, tgid);

	if (process || probes->n_processes == PROCESSES_MAX ||
	    array_reserve(probes->processes, probes->n_processes, probes->n_processes_allocated) < 0)
		return process;
	process = calloc(1, sizeof(*process));
	if (!process)
		return NULL;
	process->tgid = tgid;
	memmove(&probes->processes[at + 1], &probes->processes[at],
		(probes->n_processes - at) * sizeof(struct probed *));
	probes->processes[at] = process;
	probes->n_processes++;
	return process;
}

static void process_drop(struct probe_set *probes, pid_t tgid)
{
	size_t at = process_index(probes, tgid);

	if (!process_find(probes, tgid))
		return;
	probed_free(probes, probes->processes[at]);
	probes->n_processes--;
	memmove(&probes->processes[at], &probes->processes[at + 1],
		(probes->n_processes - at) * sizeof(struct probed *));
}

/* Each link is a descriptor. The limit is raised this late because the job must not inherit it. */
static void raise_limit(struct probe_set *probes)
{
	struct rlimit limit;

	if (probes->limit_is_raised || getrlimit(RLIMIT_NOFILE, &limit))
		return;
	probes->limit_is_raised = true;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void attach(struct probe_set *probes, pid_t tgid, struct probe_file *file)
{
	struct probed *process;

	if (file->fd < 0 || !probes->reaper || uprobe_reaper_backlog(probes->reaper) > BACKLOG_MAX)
		return;
	process = process_get(probes, tgid);
	for (size_t i = 0; process && i < process->n_files; i++)
		if (process->files[i] == file)
			return;
	if (!process || array_reserve(process->files, process->n_files, process->n_allocated) < 0)
		return;
	raise_limit(probes);
	process->files[process->n_files++] = file;
	probe_file_attach(file, tgid, &process->links, probes->work_dropped ? NULL : &process->frequent);
}

struct scan {
	struct probe_set *probes;
	pid_t tgid;
	uint64_t until_ns;
	size_t n_looks;
	bool named_only; /* only files that probe_file_is_named() */
	bool is_cut;     /* some files remain to be probed */
};

static int scan_mapping(void *user, const struct proc_mapping *mapping)
{
	struct scan *scan = user;
	struct probe_set *probes = scan->probes;
	struct probe_file *file;

	if (!mapping->executable || !mapping->inode || mapping->path[0] != '/' ||
	    (scan->named_only && !probe_file_is_named(strrchr(mapping->path, '/') + 1)))
		return 0;
	file = file_find(probes, mapping->device, mapping->inode);
	if (!file) {
		if (scan->n_looks && clock_monotonic_ns() >= scan->until_ns) {
			scan->is_cut = true;
			return 0;
		}
		file = file_add(probes, mapping->device, mapping->inode);
		if (!file)
			return 0;
		scan->n_looks++;
		probe_file_look(file, probes->object, probes->phases, scan->tgid, mapping);
		if (file->fd >= 0)
			tell_always(probes, file->device, file->inode);
	}
	attach(probes, scan->tgid, file);
	return 0;
}

bool probes_is_member(int members_fd, int pidfd)
{
	struct bpf_map_info info = {0};
	uint32_t length = sizeof(info);
	_cleanup_(freep) void *value = NULL;

	if (bpf_obj_get_info_by_fd(members_fd, &info, &length))
		return false;
	value = malloc(info.value_size);
	return value && !bpf_map_lookup_elem(members_fd, &pidfd, value);
}

static bool has_ended(int pidfd)
{
	struct pollfd fd = {.fd = pidfd, .events = POLLIN};

	return poll(&fd, 1, 0) != 0;
}

/* Sets probes in a process. Its number may have been reused since the event, so the process must be part
 * of the job before the probing, and still exist afterwards. */
static void process_probe(struct probe_set *probes, const struct pending *pending, uint64_t until_ns)
{
	_cleanup_(closep) int pidfd = kernel_pidfd_open(pending->tgid);
	const struct probed *parent = pending->parent ? process_find(probes, pending->parent) : NULL;
	struct scan scan = {.probes = probes, .tgid = pending->tgid, .until_ns = until_ns};
	int r = 0;

	if (pidfd < 0 || !probes_is_member(probes->members_fd, pidfd))
		return;
	for (size_t i = 0; parent && i < parent->n_files; i++)
		attach(probes, pending->tgid, parent->files[i]);
	/* On a busy machine, files of other names could take all the time until the job's first steps. */
	for (int i = 0; !pending->parent && r == 0 && i < 2; i++) {
		scan.named_only = i == 0;
		r = proc_mappings("/proc", pending->tgid, scan_mapping, &scan);
	}
	if (r < 0)
		log_debug("/proc/%d/maps: %s", (int)pending->tgid, strerror(-r));
	if (has_ended(pidfd))
		process_drop(probes, pending->tgid);
	else if (scan.is_cut)
		probes_scan(probes, pending->tgid);
}

/* ---- pending work -------------------------------------------------------------------------------------- */

static void add_pending(struct probe_set *probes, struct pending pending)
{
	for (size_t i = 0; i < probes->n_pending; i++)
		if (probes->pending[i].tgid == pending.tgid && probes->pending[i].parent == pending.parent)
			return;
	if (probes->n_pending == PENDING_MAX ||
	    array_reserve(probes->pending, probes->n_pending, probes->n_pending_allocated) < 0)
		return;
	probes->pending[probes->n_pending++] = pending;
}

void probes_scan(struct probe_set *probes, pid_t tgid)
{
	add_pending(probes, (struct pending){.tgid = tgid});
}

static void library_mapped(struct probe_set *probes, const struct event *event)
{
	const struct probe_file *file = file_find(probes, event->library.device, event->library.inode);

	if (file && file->fd < 0)
		return;
	/* The map of the process may show other numbers (overlays before Linux 6.8). */
	if (!file && probe_file_is_named(event->library.name))
		tell_always(probes, event->library.device, event->library.inode);
	probes_scan(probes, (pid_t)event->tgid);
}

void probes_event(struct probe_set *probes, const struct event *event)
{
	pid_t tgid = (pid_t)event->tgid;

	switch ((enum event_type)event->type) {
	case EVENT_LIBRARY: library_mapped(probes, event); break;
	case EVENT_EXEC:
		process_drop(probes, tgid);
		probes_scan(probes, tgid);
		break;
	case EVENT_EXIT:
		if (event->tid == event->tgid)
			process_drop(probes, tgid);
		break;
	case EVENT_FORK:
		if (event->fork.child_tgid == event->tgid)
			break;
		process_drop(probes,
			     (pid_t)event->fork.child_tgid); /* drops an earlier process with this pid */
		if (process_find(probes, tgid))
			add_pending(probes, (struct pending){(pid_t)event->fork.child_tgid, tgid});
		break;
	default: break;
	}
}

/* Removes each entry first: a process with remaining files is appended again. */
static void take_pending(struct probe_set *probes, uint64_t until_ns)
{
	for (size_t n = probes->n_pending; n && clock_monotonic_ns() < until_ns; n--) {
		struct pending first = probes->pending[0];

		memmove(probes->pending, probes->pending + 1, --probes->n_pending * sizeof(*probes->pending));
		process_probe(probes, &first, until_ns);
	}
}

void probes_settle(struct probe_set *probes)
{
	uint64_t until_ns = clock_monotonic_ns() + SETTLE_NS;

	while (probes->n_pending && clock_monotonic_ns() < until_ns)
		take_pending(probes, until_ns);
}

/* A probe costs a breakpoint at each call. On a virtual machine it took 1.5 to 2 us if emulated and 5 us if
 * single-stepped; on bare metal it takes half of that. */
#define CHEAP_NS     2000
#define EXPENSIVE_NS 6000

/* Returns true if launches and named ranges are so frequent that counting them is too expensive. Checks once
 * per second. */
static bool over_budget(struct probe_set *probes, uint64_t n_frequent, uint64_t now_ns)
{
	uint64_t elapsed_ns = now_ns - probes->counted_ns, n = n_frequent - probes->n_frequent;
	uint64_t price_ns = CHEAP_NS;
	bool first = !probes->counted_ns;

	if (!first && elapsed_ns < NS_PER_S)
		return false;
	probes->counted_ns = now_ns;
	probes->n_frequent = n_frequent;
	for (size_t i = 0; i < probes->n_files; i++)
		if (probes->files[i]->gpu.n_expensive)
			price_ns = EXPENSIVE_NS;
	return !first && (double)(n * price_ns) > PROBES_WORK_RATIO * (double)elapsed_ns;
}

static void drop_work(struct probe_set *probes, uint64_t now_ns)
{
	probes->work_dropped = true;
	for (size_t i = 0; i < probes->n_processes; i++)
		uprobe_reaper_take(probes->reaper, &probes->processes[i]->frequent);
	for (size_t i = 0; i < probes->n_files; i++)
		if (probes->files[i]->path)
			probe_file_note_drop(probes->files[i], now_ns);
}

bool probes_step(struct probe_set *probes, const struct collector_sink *sink, uint64_t n_frequent,
		 uint64_t now_ns)
{
	bool drop = !probes->work_dropped && over_budget(probes, n_frequent, now_ns);

	if (drop)
		drop_work(probes, now_ns);
	take_pending(probes, clock_monotonic_ns() + STEP_NS);
	for (size_t i = 0; i < probes->n_files; i++)
		probe_file_note(probes->files[i], sink);
	phase_names_note(probes->phases, sink);
	return drop;
}

struct event probes_phase(struct probe_set *probes, const struct phase_record *record)
{
	return phase_names_resolve(probes->phases, record);
}
