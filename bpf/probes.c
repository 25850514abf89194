/* SPDX-License-Identifier: Apache-2.0 */
#include "probes.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/event.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "symbol.h"

/* A job has a handful of these libraries; copies in containers may add some. */
#define FILES_MAX 256

static const struct target {
	const char *library; /* the file's name begins so */
	const char *symbol;
	bool exact;
	const char *program;
} targets[] = {
    {"libtorch", "_ZN5torch8autograd6Engine7execute", false, "engine_execute"},
    {"libdiesel", "diesel_mark", true, "diesel_mark"},
};

struct probed_file {
	uint64_t device, inode;
	struct bpf_link *link; /* NULL: nothing to probe in there */
};

struct probe_set {
	struct bpf_object *object;
	struct probed_file files[FILES_MAX];
	size_t n_files;
	uint64_t n_probes;
};

struct probe_set *probes_new(struct bpf_object *object)
{
	struct probe_set *probes = calloc(1, sizeof(*probes));

	if (probes)
		probes->object = object;
	return probes;
}

void probes_detach(struct probe_set *probes)
{
	for (size_t i = 0; i < probes->n_files; i++) {
		bpf_link__destroy(probes->files[i].link);
		probes->files[i].link = NULL;
	}
}

void probes_free(struct probe_set *probes)
{
	if (!probes)
		return;
	probes_detach(probes);
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

static struct bpf_link *probe_attach(struct probe_set *probes, const struct target *target, const char *path)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts);
	struct bpf_program *program = bpf_object__find_program_by_name(probes->object, target->program);
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct bpf_link *link;
	uint64_t offset;
	int r;

	if (fd < 0) {
		log_debug("%s: %s", path, strerror(errno));
		return NULL;
	}
	r = symbol_find(fd, target->symbol, target->exact, &offset);
	if (r) {
		log_debug("%s: no %s to probe: %s", path, target->symbol, strerror(-r));
		return NULL;
	}
	/* pid -1: a probe with a pid would miss forked children. */
	link = bpf_program__attach_uprobe_opts(program, -1, path, offset, &opts);
	if (!link)
		log_debug("%s: cannot probe %s at offset %#llx: %s", path, target->symbol,
			  (unsigned long long)offset, strerror(errno));
	else
		log_debug("%s: %s probed at offset %#llx", path, target->symbol, (unsigned long long)offset);
	return link;
}

static const struct target *target_of(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		if (!strncmp(name, targets[i].library, strlen(targets[i].library)))
			return &targets[i];
	}
	return NULL;
}

struct scan {
	struct probe_set *probes;
	pid_t tgid;
};

static int scan_mapping(void *user, const struct proc_mapping *mapping)
{
	struct scan *scan = user;
	struct probe_set *probes = scan->probes;
	const struct target *target;
	struct probed_file *file;
	char path[4352];

	if (!mapping->executable || !mapping->inode || mapping->path[0] != '/')
		return 0;
	target = target_of(mapping->path);
	if (!target || is_known(probes, mapping->device, mapping->inode) || probes->n_files == FILES_MAX)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)scan->tgid, mapping->path);
	file = &probes->files[probes->n_files++];
	file->device = mapping->device;
	file->inode = mapping->inode;
	file->link = probe_attach(probes, target, path);
	if (file->link)
		probes->n_probes++;
	return 0;
}

void probes_scan(struct probe_set *probes, pid_t tgid)
{
	struct scan scan = {probes, tgid};
	int r = proc_mappings("/proc", tgid, scan_mapping, &scan);

	if (r)
		log_debug("/proc/%d/maps: %s", (int)tgid, strerror(-r));
}

void probes_event(struct probe_set *probes, const struct event *event)
{
	if (event->type == EVENT_LIBRARY && is_known(probes, event->library.device, event->library.inode))
		return;
	probes_scan(probes, (pid_t)event->tgid);
}
