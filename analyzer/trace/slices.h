/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When to record in detail, so that a recording of any length stays small: all that is written is paid for
 * from a budget of bytes that fills at a steady rate. Starting up has a budget of its own: imports, compiling
 * and new workers make more events than steps do, and must not use up what the steps need. So has the first
 * minute of the steps, large enough for a common job to be recorded whole: many are not longer. From then on
 * a short reserve is all that can be saved up. A slice can overdraw it by as much again. After that detail
 * comes in slices, as many as the rate pays for. All detail together has a limit too: above it the slice
 * whose absence leaves the shortest hole goes, which keeps what stays evenly spread. The first and the last
 * slice always stay.
 *
 * Pure: no clock, no I/O. docs/explanation/measuring.md says what a report with holes means.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A shorter slice shows too few steps of a slow job. Only one that overdraws the budget too far ends sooner.
 */
#define SLICE_MIN_NS UINT64_C(5000000000)

struct slices_config {
	uint64_t bytes_per_minute; /* 0: all in detail */
	uint64_t startup_bytes;    /* for the time before the first step */
	uint64_t first_bytes;      /* for the minute from the first step on */
	uint64_t burst_bytes;      /* what can be saved up later */
	uint64_t total_bytes;      /* of all slices that are kept */
};

struct slice {
	uint64_t id; /* 1, 2, ... */
	uint64_t begin_ns, end_ns;
	uint64_t bytes;
};

struct slices {
	struct slices_config config;
	struct slice *items; /* kept, by time; the last one may be open: end_ns 0 */
	size_t n, n_allocated;
	uint64_t next_id, kept_bytes, seen_bytes, seen_detail_bytes;
	uint64_t now_ns, filled_ns; /* the budget was filled up to this time */
	uint64_t first_end_ns; /* of the first minute of steps; UINT64_MAX: none was seen, or it is over */
	double tokens, tokens_max; /* bytes */
};

/* Opens the first slice. -ENOMEM. */
int slices_init(struct slices *slices, struct slices_config config, uint64_t now_ns);
void slices_free(struct slices *slices);

/* The job's first step was seen. */
void slices_steps_begin(struct slices *slices, uint64_t now_ns);

enum slices_change {
	SLICES_AS_BEFORE,
	SLICES_ON,  /* a slice has begun: the last item */
	SLICES_OFF, /* the last item has ended */
};

/* Both counts are since the start; written_bytes includes detail. Returns an enum slices_change, or -ENOMEM.
 */
int slices_step(struct slices *slices, uint64_t now_ns, uint64_t written_bytes, uint64_t detail_bytes);

bool slices_on(const struct slices *slices);

/* Removes the next slice that has to go; false: none has. Call it after each slices_step() until it returns
 * false. */
bool slices_drop(struct slices *slices, struct slice *ret_slice);
