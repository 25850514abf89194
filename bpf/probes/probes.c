/* SPDX-License-Identifier: Apache-2.0 */
#include "probes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/collector.h"
#include "bpf/event.h"
#include "lib/array.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "phases.h"
#include "probe_file.h"

#define FILES_MAX   65536 /* a job maps some hundreds; beyond this, new ones are not looked at */
#define PENDING_MAX 32

struct probe_set {
	struct bpf_object *object;
	struct phase_names *phases;
	struct probe_file *files;
	size_t n_files, n_allocated;
	pid_t pending[PENDING_MAX]; /* processes to scan in the next step */
	size_t n_pending;
	uint64_t n_probes;
	uint64_t n_frequent, counted_ns; /* when the rate of launches was last looked at */
	bool work_dropped;
};

struct probe_set *probes_new(struct bpf_object *object)
{
	struct probe_set *probes = calloc(1, sizeof(*probes));

	if (!probes)
		return NULL;
	probes->object = object;
	probes->phases = phase_names_new();
	if (!probes->phases) {
		free(probes);
		return NULL;
	}
	return probes;
}

void probes_detach(struct probe_set *probes)
{
	for (size_t i = 0; i < probes->n_files; i++)
		probe_file_detach(&probes->files[i]);
}

void probes_free(struct probe_set *probes)
{
	if (!probes)
		return;
	probes_detach(probes);
	for (size_t i = 0; i < probes->n_files; i++)
		free(probes->files[i].path);
	free(probes->files);
	phase_names_free(probes->phases);
	free(probes);
}

uint64_t probes_count(const struct probe_set *probes)
{
	return probes->n_probes;
}

static bool is_known(const struct probe_set *probes, uint64_t device, uint64_t inode)
{
	for (size_t i = 0; i < probes->n_files; i++) {
		if (probes->files[i].device == device && probes->files[i].inode == inode)
			return true;
	}
	return false;
}

static struct probe_file *file_add(struct probe_set *probes)
{
	if (probes->n_files == FILES_MAX)
		return NULL;
	if (array_room(probes->files, probes->n_files, probes->n_allocated) < 0)
		return NULL;
	return memset(&probes->files[probes->n_files++], 0, sizeof(*probes->files));
}

struct scan {
	struct probe_set *probes;
	pid_t tgid;
};

static int scan_mapping(void *user, const struct proc_mapping *mapping)
{
	struct scan *scan = user;
	struct probe_set *probes = scan->probes;
	struct probe_file *file;

	if (!mapping->executable || !mapping->inode || mapping->path[0] != '/' ||
	    is_known(probes, mapping->device, mapping->inode))
		return 0;
	file = file_add(probes);
	if (!file)
		return 0;
	file->device = mapping->device;
	file->inode = mapping->inode;
	probes->n_probes += probe_file_attach(file, probes->object, probes->phases, scan->tgid, mapping);
	return 0;
}

void probes_scan(struct probe_set *probes, pid_t tgid)
{
	struct scan scan = {probes, tgid};
	int r = proc_mappings("/proc", tgid, scan_mapping, &scan);

	if (r < 0)
		log_debug("/proc/%d/maps: %s", (int)tgid, strerror(-r));
}

void probes_event(struct probe_set *probes, const struct event *event)
{
	pid_t tgid = (pid_t)event->tgid;

	if (event->type == EVENT_LIBRARY && is_known(probes, event->library.device, event->library.inode))
		return;
	if (event->type == EVENT_EXEC || !probe_file_is_named(event->library.name)) {
		for (size_t i = 0; i < probes->n_pending; i++)
			if (probes->pending[i] == tgid)
				return;
		if (probes->n_pending < PENDING_MAX) {
			probes->pending[probes->n_pending++] = tgid;
			return;
		}
	}
	probes_scan(probes, tgid);
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
		if (probes->files[i].gpu.n_expensive)
			price_ns = EXPENSIVE_NS;
	return !first && (double)(n * price_ns) > PROBES_WORK_RATIO * (double)elapsed_ns;
}

bool probes_step(struct probe_set *probes, const struct collector_sink *sink, uint64_t n_frequent,
		 uint64_t now_ns)
{
	bool drop = !probes->work_dropped && over_budget(probes, n_frequent, now_ns);

	for (size_t i = 0; i < probes->n_pending; i++)
		probes_scan(probes, probes->pending[i]);
	probes->n_pending = 0;
	probes->work_dropped |= drop;
	for (size_t i = 0; i < probes->n_files; i++) {
		if (probes->work_dropped)
			probe_file_drop_work(&probes->files[i], now_ns);
		probe_file_note(&probes->files[i], sink);
	}
	phase_names_note(probes->phases, sink);
	return drop;
}

struct event probes_phase(struct probe_set *probes, const struct phase_record *record)
{
	return phase_names_resolve(probes->phases, record);
}
