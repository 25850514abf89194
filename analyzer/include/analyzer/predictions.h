/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the stall model says of the recorded job: rates, what-if curves and the least that removes the stall.
 * Estimates come as value, low, high: a 95 % interval by resampling the recorded steps. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct estimate {
	double value, low, high; /* NAN: not known */
};

enum what_if_axis {
	WHAT_IF_CACHE,       /* x: share of the dataset in memory, 0 to 1 */
	WHAT_IF_WORKERS,     /* x: worker processes */
	WHAT_IF_STORAGE,     /* x: storage bandwidth over the recorded one */
	WHAT_IF_DEVICE,      /* x: device speed over the recorded one */
	WHAT_IF_SAMPLE_SIZE, /* x: bytes per sample over the recorded ones */
	WHAT_IF_AXES,
};

struct what_if_point {
	double x;
	struct estimate speedup;                /* steps/s over the recorded steps/s */
	double fetch_stall, prep_stall, device; /* shares of the predicted wall time */
};

struct what_if_curve {
	struct what_if_point *points; /* by x */
	size_t n_points;
	double here; /* x of the recording; NAN: not known */
};

/* With images decoded and transformed by dieseld, on all cores. */
struct native_prediction {
	struct estimate part; /* of preparing's CPU time; NAN: no decoding of images was seen */
	struct estimate speedup;
	double fetch_stall, prep_stall, device; /* shares of the predicted wall time */
};

struct predictions {
	/* samples/s (batches/s where batch_samples is not known): what reading, preparing and the device
	 * could do each by itself, if the other two took nothing */
	struct estimate fetch_rate, prep_rate, device_rate;
	struct estimate storage_bytes_per_s, memory_bytes_per_s;
	double batch_samples; /* NAN: not known */
	double bytes_per_step;
	double recorded_step_s, replayed_step_s; /* the second is the model's own: they should agree */
	struct what_if_curve curves[WHAT_IF_AXES];
	/* The least of each that, by itself, leaves less than 2 % data wait, not counting the handing over of
	 * batches, which nothing removes; NAN: no amount does. */
	struct estimate cache_ratio_needed, workers_needed, storage_factor_needed;
	struct estimate half_prep_speedup; /* with half the computing per batch */
	/* With workers that stay from epoch to epoch; NAN: they do, or one epoch was seen. */
	struct estimate persistent_speedup;
	struct native_prediction native;
	struct what_if_answer *answer; /* to analysis_input's question; NULL: none was asked */
};

/* What one scenario would do. */
struct what_if_answer {
	struct estimate speedup, steps_per_s;
	double cached_ratio;                    /* of what a node needs, the share that its memory holds */
	double fetch_stall, prep_stall, device; /* shares of the predicted wall time */
	double recorded_fetch_stall, recorded_prep_stall,
	    recorded_device; /* the same by the replay, unchanged */
};

/* A question: factors and shares as on the axes; NAN: as recorded. */
struct what_if_question {
	double cache_ratio;
	double n_workers;
	double storage_factor;      /* over the recorded bandwidth */
	double storage_bytes_per_s; /* or outright; needs a recording that read from storage */
	double device_factor;
	double sample_factor;
	bool native;        /* images are decoded by dieseld; needs native.part */
	double n_nodes;     /* by dieseld: each with as much memory, and with lanes of its own */
	double forms_ratio; /* samples that come out of decoded forms in dieseld's cache; with native alone */
};

/* "fetch-bound", "prep-bound" or "device-bound", as the verdict on such shares would be. */
const char *what_if_bound(double fetch_stall, double prep_stall);

void predictions_free(struct predictions *predictions);
