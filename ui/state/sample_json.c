/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/json_read.h"
#include "lib/text.h"
#include "sample_fields.h"

/* Maximum length of a list. Real lists have hundreds of items; more than this can only be damage. */
#define LIST_MAX 65536

/* Converts a text to UTF-8, as JSON requires: command lines may hold any bytes. */
static json_t *text_to_json(const char *text)
{
	json_t *json = json_string(text);
	_cleanup_(freep) char *utf8 = json ? NULL : text_utf8_new(text);

	return utf8 ? json_string(utf8) : json;
}

static json_t *field_to_json(const struct sample_field *field, const char *item)
{
	const void *at = item + field->offset;
	double real;
	uint64_t count;

	switch (field->kind) {
	case FIELD_TEXT: return *(const char *)at ? text_to_json(at) : NULL;
	case FIELD_REAL: real = *(const double *)at; return isfinite(real) ? json_real(real) : NULL;
	case FIELD_COUNT:
		count = *(const uint64_t *)at;
		return count <= INT64_MAX ? json_integer((json_int_t)count) : NULL;
	case FIELD_FLAG: return json_boolean(*(const bool *)at);
	}
	return NULL;
}

static json_t *item_to_json(const struct field_table *table, const char *item)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < table->n_fields; i++) {
		json_t *value = field_to_json(&table->fields[i], item);

		if (value)
			json_object_set_new_nocheck(object, table->fields[i].name, value);
	}
	return object;
}

static json_t *list_to_json(const struct field_table *table, const struct top_sample *sample)
{
	const char *items = *(char *const *)((const char *)sample + table->items_offset);
	size_t n = *(const size_t *)((const char *)sample + table->n_offset);
	json_t *list = json_array();

	for (size_t i = 0; list && i < n; i++)
		json_array_append_new(list, item_to_json(table, items + i * table->item_size));
	return list;
}

char *sample_to_json(const struct top_sample *sample, bool pretty)
{
	json_t *root = json_pack("{s:s}", "schema", SAMPLE_SCHEMA);
	char *text;

	if (!root)
		return NULL;
	if (isfinite(sample->time_s))
		json_object_set_new(root, "time_s", json_real(sample->time_s));
	if (isfinite(sample->interval_s))
		json_object_set_new(root, "interval_s", json_real(sample->interval_s));
	for (size_t i = 0; i < SAMPLE_OBJECTS; i++)
		json_object_set_new(
		    root, sample_objects[i].name,
		    item_to_json(&sample_objects[i], (const char *)sample + sample_objects[i].items_offset));
	for (size_t i = 0; i < SAMPLE_LISTS; i++)
		json_object_set_new(root, sample_lists[i].name, list_to_json(&sample_lists[i], sample));
	text = json_dumps(root, (pretty ? JSON_INDENT(2) : JSON_COMPACT) | JSON_REAL_PRECISION(13));
	json_decref(root);
	return text;
}

static void text_from_json(const char *text, char *buffer, size_t size)
{
	size_t n = strnlen(text, size - 1);

	/* Avoids a cut in the middle of a character. */
	if (text[n])
		while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
	memcpy(buffer, text, n);
	buffer[n] = '\0';
}

static void field_from_json(const struct sample_field *field, char *item, const json_t *value)
{
	void *at = item + field->offset;

	switch (field->kind) {
	case FIELD_TEXT:
		if (json_is_string(value))
			text_from_json(json_string_value(value), at, field->size);
		break;
	case FIELD_REAL:
		if (json_is_number(value))
			*(double *)at = json_number_value(value);
		break;
	case FIELD_COUNT:
		if (json_is_integer(value) && json_integer_value(value) >= 0)
			*(uint64_t *)at = (uint64_t)json_integer_value(value);
		break;
	case FIELD_FLAG: *(bool *)at = json_is_true(value); break;
	}
}

static void item_from_json(const struct field_table *table, void *item, const json_t *object)
{
	for (size_t i = 0; i < table->n_fields; i++) {
		const json_t *value = json_object_get(object, table->fields[i].name);

		if (value)
			field_from_json(&table->fields[i], item, value);
	}
}

static int list_from_json(enum sample_list list, struct top_sample *sample, const json_t *values)
{
	size_t n = json_array_size(values);

	for (size_t i = 0; i < n && i < LIST_MAX; i++) {
		void *item = sample_add(sample, list);

		if (!item)
			return -ENOMEM;
		item_from_json(&sample_lists[list], item, json_array_get(values, i));
	}
	return 0;
}

/* Checks the schema, "diesel.top/1". A higher number means a newer program. */
static int schema_check(const json_t *root, struct error *err)
{
	const char *schema = json_string_value(json_object_get(root, "schema"));

	if (schema && !strcmp(schema, SAMPLE_SCHEMA))
		return 0;
	if (schema && !strncmp(schema, "diesel.top/", 11))
		return error_set(err, -EPROTONOSUPPORT,
				 "written by a newer diesel-top (%.40s, this one reads " SAMPLE_SCHEMA ")",
				 schema);
	return error_set(err, -EBADMSG, "not a sample of diesel-top");
}

int sample_from_json(const char *text, size_t length, struct top_sample **ret_sample, struct error *err)
{
	json_error_t problem;
	json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
	struct top_sample *sample = NULL;
	int r;

	if (!root)
		return error_set(err, -EBADMSG, "damaged JSON at byte %d: %s", problem.position,
				 problem.text);
	r = schema_check(root, err);
	if (r == 0 && !(sample = sample_new()))
		r = error_set(err, -ENOMEM, "no memory for a sample");
	if (r == 0) {
		sample->time_s = json_number_of(root, "time_s");
		sample->interval_s = json_number_of(root, "interval_s");
	}
	for (size_t i = 0; r == 0 && i < SAMPLE_OBJECTS; i++)
		item_from_json(&sample_objects[i], (char *)sample + sample_objects[i].items_offset,
			       json_object_get(root, sample_objects[i].name));
	for (enum sample_list i = 0; r == 0 && i < SAMPLE_LISTS; i++)
		if (list_from_json(i, sample, json_object_get(root, sample_lists[i].name)))
			r = error_set(err, -ENOMEM, "no memory for a sample");
	json_decref(root);
	if (r < 0)
		sample_free(sample);
	else
		*ret_sample = sample;
	return r;
}
