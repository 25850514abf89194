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

json_t *json_count(uint64_t n)
{
	return json_integer((json_int_t)n);
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

json_t *json_whole(json_t *object, int r)
{
	if (r >= 0)
		return object;
	json_decref(object);
	return NULL;
}

int json_write(json_t *root, FILE *stream, size_t flags)
{
	_cleanup_(freep) char *text = json_dumps(root, flags);

	json_decref(root);
	if (!text)
		return -ENOMEM;
	errno = 0;
	text_put_json(stream, text);
	if (ferror(stream) || fflush(stream))
		return errno ? -errno : -EIO;
	return 0;
}

json_t *json_estimate(const struct estimate *estimate)
{
	json_t *object;
	int r = 0;

	if (!isfinite(estimate->value))
		return json_null();
	object = json_object();
	r |= json_object_set_new(object, "value", json_real(estimate->value));
	r |= json_object_set_new(object, "low", json_number(estimate->low));
	r |= json_object_set_new(object, "high", json_number(estimate->high));
	return json_whole(object, r);
}
