/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file that the job maps, and the probes in it. Only libraries that are known here get any. */

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

/* Zeroed, with device and inode set, before probe_file_attach(). */
struct probe_file {
	uint64_t device, inode;
	struct uprobe_links links;
	struct uprobe_links work_links; /* of a libcuda: what queues work, and may come too often */
	char *path;                     /* of a libcuda, as the job sees it; else NULL */
	struct gpu_probes gpu;
	bool noted;
};

/* Returns true if a file of this name (without folders; it may be cut) is one that is probed. */
bool probe_file_is_named(const char *name);

/* Looks at a file that a process has mapped, and probes it; adds the names of its ranges to phases. Returns
 * the number of functions that are probed. */
size_t probe_file_attach(struct probe_file *file, struct bpf_object *object, struct phase_names *phases,
			 pid_t tgid, const struct proc_mapping *mapping);

/* Gives the sink the notes about a libcuda, once. */
void probe_file_note(struct probe_file *file, const struct collector_sink *sink);

/* Takes off the probes on launches and copies of a libcuda, and says so in its notes. */
void probe_file_drop_work(struct probe_file *file, uint64_t now_ns);

void probe_file_detach(struct probe_file *file);
