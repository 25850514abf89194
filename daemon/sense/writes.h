/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Detects heavy writes of a trainer, as for a checkpoint, and their file systems, from the kernel's
 * counters for its process, once per second. The kernel does not count writes to memory (tmpfs, pipes)
 * there. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/proc.h"

#define WRITES_MANY_BYTES (UINT64_C(16) << 20) /* bytes between two calls that count as heavy writing */

struct writes {
	bool known; /* false: this process may not read the counters */
	uint64_t bytes;
};

/* File systems to which many bytes may have been written since the last call; n_devices is 0 if there were
 * few. */
struct writes_seen {
	uint32_t known, n_devices;
	uint64_t devices[PROC_WRITE_DEVICES];
};

void writes_sample(struct writes *w, const char *proc_root, pid_t pid, struct writes_seen *ret);
