/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Predictions of the stall model for the recorded job: rates, what-if curves and the smallest changes that
 * remove the stall. An estimate has value, low and high: a 95 % interval by resampling the recorded steps. */

#include <math.h>
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
	WHAT_IF_CORES,       /* x: cores that the job may use */
	WHAT_IF_AXES,
};

struct what_if_point {
	double x;
	struct estimate speedup;                /* steps/s over the recorded steps/s */
	double fetch_stall, prep_stall, device; /* shares of the predicted wall time */
};

struct what_if_curve {
	struct what_if_point *points; /* sorted by x */
	size_t n_points;
	double here; /* x of the recorded job; NAN: not known */
};

/* Prediction for images that dieseld decodes and transforms on all cores. */
struct native_prediction {
	struct estimate part; /* part of the CPU time of preparing that dieseld could take over; NAN: no image
				 decoding seen */
	struct estimate speedup;
	double fetch_stall, prep_stall, device; /* shares of the predicted wall time */
};

struct predictions {
	/* Samples/s (batches/s where batch_samples is not known) that reading, preparing and the device could
	 * each reach if the other two took no time. */
	struct estimate fetch_rate, prep_rate, device_rate;
	struct estimate storage_bytes_per_s, memory_bytes_per_s;
	double batch_samples; /* NAN: not known */
	double bytes_per_step;
	double recorded_step_s, replayed_step_s; /* replayed by the model; both should agree */
	struct what_if_curve curves[WHAT_IF_AXES];
	/* Smallest amount that, on its own, leaves less than 2 % data wait. The hand-over of batches does not
	 * count, because nothing removes it. NAN: no amount suffices. */
	struct estimate cache_ratio_needed, workers_needed, storage_factor_needed;
	struct estimate half_prep_speedup; /* with half the computing per batch */
	/* Speed-up with workers that persist between epochs. NAN: they already persist, or only one epoch
	 * was seen. */
	struct estimate persistent_speedup;
	struct native_prediction native;
	double foreign_ratio; /* part of the time of making batches, outside of reading, in which other
				 programs had the cores */
	bool waits_known;     /* enough of its reads waited for storage to know how long others would */
	struct what_if_cell
	    *cells; /* answers to the grid in analysis_input, [core * n_ratios + ratio]; NULL: none */
	struct what_if_answer *answer; /* answer to the question in analysis_input; NULL: no question */
};

/* Prediction for one what_if_question. */
struct what_if_answer {
	struct estimate speedup, steps_per_s;
	double cached_ratio;                    /* share of a node's data that its memory holds */
	double fetch_stall, prep_stall, device; /* shares of the predicted wall time */
	double recorded_fetch_stall, recorded_prep_stall,
	    recorded_device; /* fetch_stall, prep_stall and device by the replay without a change */
};

/* Shares at which the job's speed is wanted: each number of cores with each cached share of the dataset, both
 * ascending. Cores are as in what_if_question. */
struct what_if_grid {
	const double *cores, *cache_ratios; /* a ratio of NAN: as recorded */
	size_t n_cores, n_ratios;
	double peers_wait; /* factor on the waits for other ranks; 1: as recorded */
};

struct what_if_cell {
	double steps_per_s;
	uint32_t n_workers; /* as recorded, or one per core if that is faster by 2 % */
};

/* A question: factors and shares as on the axes; NAN: as recorded. */
struct what_if_question {
	double cache_ratio;
	double n_workers;
	double n_cores; /* at least MODEL_CORES_MIN; a number that is not whole is a quota of CPU time */
	double storage_factor;      /* over the recorded bandwidth */
	double storage_bytes_per_s; /* instead of the factor; needs a recording that read from storage */
	double device_factor;
	double sample_factor;
	bool native;          /* images are decoded by dieseld; needs native.part */
	double n_nodes;       /* number of nodes that share data through dieseld, each with the same amount of
				 memory and its own lanes */
	double decoded_ratio; /* share of samples from dieseld's cache of decoded copies; only with native */
};
/* A question that changes nothing. */
#define WHAT_IF_NOTHING                                                                                      \
	((struct what_if_question){.cache_ratio = NAN,                                                       \
				   .n_workers = NAN,                                                         \
				   .n_cores = NAN,                                                           \
				   .storage_factor = NAN,                                                    \
				   .storage_bytes_per_s = NAN,                                               \
				   .device_factor = NAN,                                                     \
				   .sample_factor = NAN,                                                     \
				   .n_nodes = NAN,                                                           \
				   .decoded_ratio = NAN})

/* Returns the verdict on such shares: "fetch-bound", "prep-bound" or "device-bound". */
const char *what_if_bound(double fetch_stall, double prep_stall);

void predictions_free(struct predictions *predictions);
