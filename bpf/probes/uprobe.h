/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Attaching user-space probes, many at once where the kernel can (6.6). Taking one off waits for all CPUs, 50
 * to 150 ms, so a library with forty of them would hold up the end of a recording for seconds.
 *
 * Links belong to a file for all processes; a probe with a PID would miss forked children.
 */

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uprobe_point {
	uint64_t offset; /* in the file */
	uint64_t cookie;
	uint64_t
	    semaphore_offset; /* in the file: a counter that is above 0 while the probe is set; 0: none */
};

struct uprobe_link {
	struct bpf_link *link; /* NULL: fd is the link */
	int fd;                /* a link with many points */
};

struct uprobe_links {
	struct uprobe_link *items;
	size_t n;
};

/* Call it before load: lets the object's uprobe programs be attached to many points at once. */
void uprobe_use_multi(struct bpf_object *object);

/* Probes every point and appends to links; *ret_n says how many were attached. Points that the kernel refuses
 * are left out; the result is 0 or the -errno of the last refusal. */
int uprobe_attach(struct uprobe_links *links, struct bpf_program *program, bool at_return, const char *path,
		  const struct uprobe_point *points, size_t n_points, size_t *ret_n);

void uprobe_detach(struct uprobe_links *links);
