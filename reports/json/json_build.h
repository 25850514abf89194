/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds parts of the JSON report. Values are new references, or NULL if memory ran out. An object or a list
 * with a value that is NULL becomes NULL as a whole, so one check at the end shows whether memory ran out
 * anywhere.
 */

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct analysis;
struct estimate;

json_t *json_seconds(uint64_t ns);
/* For times that may have a fraction of a nanosecond, or be unknown. */
json_t *json_seconds_of(double ns);
json_t *json_count(uint64_t n);
/* Returns null for 0, which stands for a number that is not known. */
json_t *json_known_count(uint64_t n);
/* Returns a number, or null if it is not finite. */
json_t *json_number(double value);
/* Returns a string of untrusted bytes; bytes that are not UTF-8 are written as lib/utf8.h says. NULL becomes
 * null. */
json_t *json_bytes(const char *bytes);
/* Returns {"value", "low", "high"}, or null if the value is not known. */
json_t *json_estimate(const struct estimate *estimate);

struct json_member {
	const char *key; /* NULL: the member is left out */
	json_t *value;
};

/* Makes an object of these members. */
json_t *json_object_of(const struct json_member *members, size_t n);
#define JSON_OBJECT(...)                                                                                     \
	json_object_of((const struct json_member[]){__VA_ARGS__},                                            \
		       sizeof((const struct json_member[]){__VA_ARGS__}) / sizeof(struct json_member))

/* Adds a value to an object or a list, which becomes NULL if that fails, and may be NULL already. */
void json_set(json_t **object, const char *key, json_t *value);
void json_append(json_t **list, json_t *value);
/* Adds the members of another object, which is freed, likewise. */
void json_merge(json_t **object, json_t *members);

/* Writes root as one or more lines, safe for a terminal (lib/text.h). Frees root. -EIO and the like; -ENOMEM:
 * it is NULL. */
int json_write(json_t *root, FILE *stream, size_t flags);

/* Returns null if the analysis has no predictions. */
json_t *json_predictions(const struct analysis *analysis);
