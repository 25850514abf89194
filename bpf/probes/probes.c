/* SPDX-License-Identifier: Apache-2.0 */
#include "probes.h"

#include <bpf/bpf.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bpf/collector.h"
#include "bpf/event.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "lib/sorted.h"
#include "library_shared.h"
#include "phases.h"
#include "probe_file.h"

/* Bounds for a job that maps files and makes processes without end; what is beyond them is not probed. */
#define FILES_MAX     65536 /* a job maps some hundreds */
#define PROCESSES_MAX 4096
#define PENDING_MAX   4096
#define BACKLOG_MAX   8192 /* links that are being taken off */

/* Each process gets its turn, however many files another one maps. */
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
	pid_t parent; /* a fork, which has mapped what its parent had; 0: look at what it has mapped */
};

struct probe_set {
	struct bpf_object *object;
	int members_fd, libraries_fd;
	struct phase_names *phases;
	struct probe_file **files; /* by device and inode */
	size_t n_files, n_files_allocated;
	struct probed **processes; /* by number */
	size_t n_processes, n_processes_allocated;
	struct pending *pending;
	size_t n_pending, n_pending_allocated;
	struct uprobe_reaper *reaper;
	bool limit_is_raised;
	uint64_t n_probes;
	uint64_t n_frequent, counted_ns; /* when the rate of launches was last looked at */
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
	uprobe_reaper_wait(probes->reaper);
}

void probes_free(struct probe_set *probes)
{
	if (!probes)
		return;
	if (probes->reaper)
		probes_detach(probes);
	for (size_t i = 0; i < probes->n_files; i++) {
		probe_file_free(probes->files[i]);
		free(probes->files[i]);
	}
	free(probes->files);
	free(probes->processes);
	free(probes->pending);
	uprobe_reaper_free(probes->reaper);
	if (probes->phases)
		phase_names_free(probes->phases);
	free(probes);
}

uint64_t probes_count(const struct probe_set *probes)
{
	return probes->n_probes;
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
	    array_room(probes->files, probes->n_files, probes->n_files_allocated) < 0)
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

/* Has the recorder tell of each process that maps this file. */
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
	    array_room(probes->processes, probes->n_processes, probes->n_processes_allocated) < 0)
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
	bool is_first = !file->was_attached;
	size_t n;

	if (file->fd < 0 || uprobe_reaper_backlog(probes->reaper) > BACKLOG_MAX)
		return;
	process = process_get(probes, tgid);
	for (size_t i = 0; process && i < process->n_files; i++)
		if (process->files[i] == file)
			return;
	if (!process || array_room(process->files, process->n_files, process->n_allocated) < 0)
		return;
	raise_limit(probes);
	process->files[process->n_files++] = file;
	n = probe_file_attach(file, tgid, &process->links, probes->work_dropped ? NULL : &process->frequent);
	file->was_attached = true;
	probes->n_probes += is_first ? n : 0;
}

struct scan {
	struct probe_set *probes;
	pid_t tgid;
	uint64_t until_ns;
	size_t n_looks;
	bool is_cut; /* files are left */
};

static int scan_mapping(void *user, const struct proc_mapping *mapping)
{
	struct scan *scan = user;
	struct probe_set *probes = scan->probes;
	struct probe_file *file;

	if (!mapping->executable || !mapping->inode || mapping->path[0] != '/')
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

/* A number may have become another process's since the event. So the process that has it must be of the job
 * before it is probed, and still be there afterwards. */
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
	if (!pending->parent)
		r = proc_mappings("/proc", pending->tgid, scan_mapping, &scan);
	if (r < 0)
		log_debug("/proc/%d/maps: %s", (int)pending->tgid, strerror(-r));
	if (has_ended(pidfd))
		process_drop(probes, pending->tgid);
	else if (scan.is_cut)
		probes_scan(probes, pending->tgid);
}

/* ---- what is due --------------------------------------------------------------------------------------- */

static void add_pending(struct probe_set *probes, struct pending pending)
{
	for (size_t i = 0; i < probes->n_pending; i++)
		if (probes->pending[i].tgid == pending.tgid && probes->pending[i].parent == pending.parent)
			return;
	if (probes->n_pending == PENDING_MAX ||
	    array_room(probes->pending, probes->n_pending, probes->n_pending_allocated) < 0)
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
		process_drop(probes, (pid_t)event->fork.child_tgid); /* of an earlier one with its number */
		if (process_find(probes, tgid))
			add_pending(probes, (struct pending){(pid_t)event->fork.child_tgid, tgid});
		break;
	default: break;
	}
}

/* Each is taken out first: a process whose files are not all looked at comes last again. */
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

/* A probe costs a breakpoint at each call. On a virtual machine that took 1.5 to 2 us emulated and 5 us
 * single-stepped; on bare metal it is half of that. */
#define CHEAP_NS     2000
#define EXPENSIVE_NS 6000

/* Returns true if launches and named ranges are so frequent that counting them costs too much. Looks once per
 * second. */
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
