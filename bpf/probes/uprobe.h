/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Attaching user-space probes to one process, many at once where the kernel can (6.6, with its filter by
 * process as of 6.10). No other process that maps the same file gets a breakpoint, nor a process that the
 * probed one forks.
 *
 * Removing probes waits for all CPUs, 30 to 150 ms for each link. So a reaper's threads remove them.
 */

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct uprobe_point {
	uint64_t offset; /* offset in the file */
	uint64_t cookie;
	uint64_t semaphore_offset; /* offset of a counter that is above 0 while the probe is set; 0: none */
};

struct uprobe_link {
	struct bpf_link *link; /* NULL: fd is the link */
	int fd;                /* a link with many points */
};

struct uprobe_links {
	struct uprobe_link *items;
	size_t n;
};

/* Lets the object's uprobe programs be attached to many points at once. Call it before the load. */
void uprobe_use_multi(struct bpf_object *object);

/* Returns true if this kernel can attach to many points at once, in all threads of one process and in no
 * other process. Needs privilege. */
bool uprobe_has_multi(void);

/* Probes every point of the file behind file_fd in a process, and appends to links. Returns how many were
 * attached: points that the kernel refuses are left out. */
size_t uprobe_attach(struct uprobe_links *links, struct bpf_program *program, bool at_return, int file_fd,
		     pid_t tgid, const struct uprobe_point *points, size_t n_points);

struct uprobe_reaper;

/* NULL: no memory. */
struct uprobe_reaper *uprobe_reaper_new(void);
/* Takes over the links, which are empty afterwards, and removes the probes asynchronously. */
void uprobe_reaper_take(struct uprobe_reaper *reaper, struct uprobe_links *links);
/* Returns the number of links that are not removed yet. */
size_t uprobe_reaper_backlog(struct uprobe_reaper *reaper);
/* Waits until all links are removed, and frees the reaper. NULL is fine. */
void uprobe_reaper_free(struct uprobe_reaper *reaper);
