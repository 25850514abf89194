/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads members of JSON objects, for modules that link jansson: lib/ itself does not. */

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

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

/* Copies the string, cut to size. Without a string, the buffer stays as it is. */
static inline void json_get_text(const json_t *object, const char *key, char *buffer, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (text)
		snprintf(buffer, size, "%s", text);
}

/* Sets *ret, unless the value is no integer or below 0. */
static inline void json_get_count(const json_t *object, const char *key, uint64_t *ret)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value) && json_integer_value(value) >= 0)
		*ret = (uint64_t)json_integer_value(value);
}
