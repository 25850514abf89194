/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads members of JSON objects, for modules that link jansson: lib/ itself does not. */

#include <jansson.h>
#include <math.h>

static inline void json_freep(json_t **root)
{
	json_decref(*root);
}

/* Returns the number, or NAN if there is none. */
static inline double json_number_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Returns the string, or "" if there is none. */
static inline const char *json_string_of(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}
