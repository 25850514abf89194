/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds parts of the JSON report. Values are new references, or NULL if memory ran out.
 * json_object_set_new() fails for a NULL value, so OR-ing all results shows whether memory ran out anywhere.
 * Setters return 0, or nonzero if memory ran out.
 */

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct analysis;
struct estimate;

json_t *json_seconds(uint64_t ns);
json_t *json_count(uint64_t n);
/* Returns a number, or null if it is not finite. */
json_t *json_number(double value);
/* Returns a string of untrusted bytes; bytes that are not UTF-8 are written as lib/utf8.h says. NULL becomes
 * null. */
json_t *json_bytes(const char *bytes);
/* Returns {"value", "low", "high"}, or null if the value is not known. */
json_t *json_estimate(const struct estimate *estimate);

/* Returns the object, or frees it and returns NULL if r is negative: its setters' results, OR-ed. */
json_t *json_whole(json_t *object, int r);

/* Writes root as one or more lines, safe for a terminal (lib/text.h). Frees root. -EIO and the like, -ENOMEM.
 */
int json_write(json_t *root, FILE *stream, size_t flags);

/* Each function sets one key of root, to null if the analysis lacks that part. */
int json_set_predictions(json_t *root, const struct analysis *analysis);
