/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether a trainer writes much, as a checkpoint does, and on which file systems: by what the kernel counts
 * for its process, once a second. Writes to memory (tmpfs, pipes) are not counted there.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/proc.h"

#define WRITES_MANY_BYTES (UINT64_C(16) << 20) /* from one look to the next */

struct writes {
	bool known; /* false: nobody here may look */
	uint64_t bytes;
};

/* Where many bytes were written since the last look; n_devices is 0 otherwise. */
struct writes_seen {
	uint32_t known, n_devices;
	uint64_t devices[PROC_WRITE_DEVICES];
};

void writes_look(struct writes *w, const char *proc_root, pid_t pid, struct writes_seen *ret);
