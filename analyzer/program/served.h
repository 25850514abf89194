/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Jobs that dieseld serves, out of `dieselctl jobs --json` ("diesel.jobs/1"), and the speed that the formulas
 * of the stall model give them. A recording does not show the daemon's work; its tuner measures it. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "analyzer/model.h"
#include "analyzer/predictions.h"
#include "lib/error.h"

#define SERVED_SCHEMA "diesel.jobs/1"

/* NAN: not known. */
struct served {
	char name[64];
	double rate;      /* samples/s now */
	double demand;    /* samples/s without any wait */
	double prep_rate; /* samples/s that preparing can deliver with the present workers */
	double cpu_s;     /* per sample: dieseld's workers and the job's own */
	double sample_bytes, storage_bytes_per_s;
	double dataset_bytes, need_bytes, cached_bytes;
};

/* Reads one job of the list. */
struct served served_read(const json_t *job);

/* Returns why the job's speed cannot be predicted (static text): too little was measured, or the formulas do
 * not give its present speed. NULL: it can. */
const char *served_why_unclear(const struct served *served);

/* Returns true if the speed with another share of the dataset in memory can be predicted. */
bool served_knows_memory(const struct served *served);

struct served_change {
	double cores;        /* NAN: with the present workers */
	double cached_ratio; /* NAN: no read waits for storage */
	double storage_factor, device_factor;
};

/* Returns V = min(F, P, G), samples/s, and which of them limits it. The trainer takes one core while it
 * computes or waits for its device: more than one with a GPU takes, and all that is known. */
double served_speed(const struct served *served, const struct served_change *change,
		    enum model_bound *ret_bound);

/* Reads a JSON file of at most 64 MiB, or a pipe that is open already (/dev/stdin, /dev/fd/N); other pipes
 * and devices are refused. *ret_root: to be freed with json_decref(). -ENOENT and the like, -EINVAL, -EFBIG.
 */
int served_load(const char *path, json_t **ret_root, struct error *err);

/* Checks that a file of SERVED_SCHEMA has jobs. -EINVAL. */
int served_check(const json_t *root, const char *path, struct error *err);

/* Returns 1 for a file of JSON and for a pipe that is open already, 0 for another one, or a negative errno.
 */
int served_is_json(const char *path);
