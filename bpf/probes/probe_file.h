/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A file that the job maps, and the places in it that are probed. Only libraries that are known here have
 * any.
 *
 * A file is looked at once, through a descriptor that is kept while it is probed. Probes are set through the
 * same descriptor, so whatever has the file's name by then is no matter.
 */

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/gpu.h"
#include "uprobe.h"

struct collector_sink;
struct phase_names;
struct proc_mapping;

/* Places for one program. */
struct probe_group {
	struct bpf_program *program;
	bool at_return;
	bool frequent; /* may come by the thousand */
	struct uprobe_point *points;
	size_t n;
};

struct probe_file {
	uint64_t device, inode;
	int fd; /* -1: nothing in it is probed */
	bool was_attached;
	struct probe_group *groups;
	size_t n_groups;
	char *path; /* of a libcuda, as the job sees it; else NULL */
	struct gpu_probes gpu;
	bool noted;
};

/* Returns true if a file of this name (without folders; it may be cut) is one that is probed. */
bool probe_file_is_named(const char *name);

/* Looks at a file that a process has mapped for the places to probe; adds the names of its ranges to phases.
 * file has device and inode set, and nothing else. */
void probe_file_look(struct probe_file *file, struct bpf_object *object, struct phase_names *phases,
		     pid_t tgid, const struct proc_mapping *mapping);
void probe_file_free(struct probe_file *file);

/* Sets the probes in a process, those that may come by the thousand into frequent (NULL: not these). Returns
 * how many. */
size_t probe_file_attach(struct probe_file *file, pid_t tgid, struct uprobe_links *links,
			 struct uprobe_links *frequent);

/* Gives the sink the notes about a libcuda, once. */
void probe_file_note(struct probe_file *file, const struct collector_sink *sink);

/* Says in the notes about a libcuda that launches and copies are not probed any more. */
void probe_file_note_drop(struct probe_file *file, uint64_t now_ns);
