/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/* Files that the job has mapped executable, as the recorder keeps them in mind (lifecycle.h). */

#include "bpf/event.h"

struct library_key {
	uint64_t inode, device;
};

enum library_told {
	LIBRARY_TOLD = 1,   /* the collector was told of the file, once for all processes */
	LIBRARY_PROBED = 2, /* set by the collector: it wants to know of each process that maps the file */
};
