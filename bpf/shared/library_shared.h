/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/* State of the files that the job has mapped executable, kept by the recorder (lifecycle.h). */

#include "bpf/event.h"

struct library_key {
	uint64_t inode, device;
};

enum library_told {
	LIBRARY_TOLD = 1,   /* the recorder has reported the file to the collector, once for all processes */
	LIBRARY_PROBED = 2, /* set by the collector: the recorder reports each process that maps the file */
};
