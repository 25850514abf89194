/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides when to record in detail, so that a recording of any length stays small. Everything written is paid
 * from a budget of bytes (token bucket) that fills at a steady rate:
 *
 * - Start-up has its own budget: imports, compiling and new workers make more events than steps do, and must
 *   not use up the budget of the steps.
 * - The first minute of steps has its own budget, large enough to record a common job completely; many jobs
 *   are not longer.
 * - After that, at most burst_bytes accumulate, and a slice can overdraw by that amount. Detail then
 *   comes in slices, as many as the rate pays for.
 *
 * All detail together is limited, too. Above the limit, the slice whose removal leaves the shortest hole is
 * dropped, so the remaining slices stay evenly spread. The first and the last slice always stay.
 *
 * Pure: no clock, no I/O. docs/explanation/measuring-accuracy.md explains reports with gaps.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Minimum slice length: a shorter slice shows too few steps of a slow job. Only a slice that overdraws the
 * budget too far ends sooner. */
#define SLICE_MIN_NS UINT64_C(5000000000)

struct slices_config {
	uint64_t bytes_per_minute; /* growth of the budget; 0: everything is recorded in detail */
	uint64_t startup_bytes;    /* budget for the time before the first step */
	uint64_t first_bytes;      /* budget for the minute after the first step */
	uint64_t burst_bytes;      /* maximum of the budget after that minute */
	uint64_t total_bytes;      /* limit of the bytes of all retained slices; 0: no limit */
};

struct slice {
	uint64_t id; /* 1, 2, ... */
	uint64_t begin_ns, end_ns;
	uint64_t bytes;
};

struct slices {
	struct slices_config config;
	struct slice *items; /* retained slices, by time; the last one may be open, with end_ns 0 */
	size_t n, n_allocated;
	uint64_t next_id, kept_bytes, seen_bytes, seen_detail_bytes;
	uint64_t now_ns, filled_ns; /* the budget was filled up to this time */
	uint64_t first_end_ns; /* end of the first minute of steps; UINT64_MAX: no step yet, or the minute is
				  over */
	double tokens, tokens_max; /* remaining budget and its maximum, in bytes */
};

/* Opens the first slice. -ENOMEM. */
int slices_init(struct slices *slices, struct slices_config config, uint64_t now_ns);
void slices_free(struct slices *slices);

/* Begins the first minute of steps, when the job's first step is seen. */
void slices_steps_begin(struct slices *slices, uint64_t now_ns);

enum slices_change {
	SLICES_AS_BEFORE,
	SLICES_ON,  /* a slice has begun; it is the last item */
	SLICES_OFF, /* the last item has ended */
};

/* Updates the budget, and begins or ends a slice if necessary. Both counts are since the start; written_bytes
 * includes detail. Returns an enum slices_change, or -ENOMEM. */
int slices_step(struct slices *slices, uint64_t now_ns, uint64_t written_bytes, uint64_t detail_bytes);

bool slices_on(const struct slices *slices);

/* Drops one slice if detail exceeds its limit; returns false if there is none to drop. Call it after each
 * slices_step() until it returns false. */
bool slices_drop(struct slices *slices, struct slice *ret_slice);
