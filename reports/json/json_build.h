/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pieces of the JSON report. Values are new references, NULL when memory ran out; json_object_set_new() takes
 * a NULL value as a failure and keeps it as its result, so that one sum of all results tells whether memory
 * ran out anywhere. Setters return 0, or not 0 when it did.
 */

#include <jansson.h>
#include <stdint.h>

struct analysis;
struct estimate;

json_t *json_seconds(uint64_t ns);
json_t *json_count(uint64_t n);
/* null for what is not a finite number. */
json_t *json_number(double value);
/* Bytes from outside: what is no UTF-8 is written as lib/utf8.h says. NULL: null. */
json_t *json_bytes(const char *bytes);
/* {"value", "low", "high"}, or null when the value is not known. */
json_t *json_estimate(const struct estimate *estimate);

/* Each sets one key of root, to null where the analysis does not have the part. */
int json_set_page_cache(json_t *root, const struct analysis *analysis);
int json_set_profile(json_t *root, const struct analysis *analysis);
int json_set_gpu(json_t *root, const struct analysis *analysis);
int json_set_phases(json_t *root, const struct analysis *analysis);
int json_set_checkpoints(json_t *root, const struct analysis *analysis);
int json_set_predictions(json_t *root, const struct analysis *analysis);
int json_set_ranks(json_t *root, const struct analysis *analysis);
