/* SPDX-License-Identifier: Apache-2.0 */
#include "json_build.h"

#include <errno.h>
#include <math.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

json_t *json_seconds(uint64_t ns)
{
	return json_real((double)ns / (double)NS_PER_S);
}

json_t *json_seconds_of(double ns)
{
	return json_number(ns / (double)NS_PER_S);
}

json_t *json_count(uint64_t n)
{
	return json_integer((json_int_t)n);
}

json_t *json_known_count(uint64_t n)
{
	return n ? json_count(n) : json_null();
}

json_t *json_number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

json_t *json_bytes(const char *bytes)
{
	json_t *string = bytes ? json_string(bytes) : json_null();
	_cleanup_(freep) char *utf8 = string ? NULL : text_utf8_new(bytes);

	return utf8 ? json_string(utf8) : string;
}

json_t *json_estimate(const struct estimate *estimate)
{
	if (!isfinite(estimate->value))
		return json_null();
	return JSON_OBJECT({"value", json_real(estimate->value)}, {"low", json_number(estimate->low)},
			   {"high", json_number(estimate->high)});
}

/* Frees the object or list if adding to it failed. */
static void keep_whole(json_t **whole, int r)
{
	if (r == 0)
		return;
	json_decref(*whole);
	*whole = NULL;
}

void json_set(json_t **object, const char *key, json_t *value)
{
	keep_whole(object, json_object_set_new(*object, key, value));
}

void json_append(json_t **list, json_t *value)
{
	keep_whole(list, json_array_append_new(*list, value));
}

void json_merge(json_t **object, json_t *members)
{
	keep_whole(object, json_object_update(*object, members));
	json_decref(members);
}

json_t *json_object_of(const struct json_member *members, size_t n)
{
	json_t *object = json_object();

	for (size_t i = 0; i < n; i++) {
		if (members[i].key)
			json_set(&object, members[i].key, members[i].value);
		else
			json_decref(members[i].value);
	}
	return object;
}

int json_write(json_t *root, FILE *stream, size_t flags)
{
	_cleanup_(freep) char *text = root ? json_dumps(root, flags) : NULL;

	json_decref(root);
	if (!text)
		return -ENOMEM;
	errno = 0;
	text_put_json(stream, text);
	if (ferror(stream) || fflush(stream))
		return errno ? -errno : -EIO;
	return 0;
}
