/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checkpoints in the window, one by one, and how often to make them. */

#include <stddef.h>
#include <stdint.h>

struct checkpoint_item {
	uint64_t begin_ns, end_ns;
	uint64_t stall_ns;     /* of the trainer */
	uint64_t bytes;        /* written */
	uint64_t write_ns;     /* in write calls */
	uint64_t fsync_ns;     /* in fsync and the like */
	uint64_t writeback_ns; /* part of both: throttled by, or waiting for, writeback of dirty pages */
};

struct checkpoint_report {
	struct checkpoint_item *items;
	size_t n_items;
	double interval_steps;   /* mean number of steps between two; NAN: fewer than two */
	double overhead_max;     /* the bound that the advice is for: 0.05 */
	uint32_t advised_steps;  /* CheckFreq's interval (seeds: o = stall, no background part known) */
	double advised_overhead; /* with that interval */
};

void checkpoint_report_free(struct checkpoint_report *report);
