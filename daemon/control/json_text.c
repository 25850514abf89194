/* SPDX-License-Identifier: Apache-2.0 */
#include "json_text.h"

#include <math.h>

#include "lib/cleanup.h"
#include "lib/text.h"

json_t *json_text(const char *text)
{
	_cleanup_(freep) char *line = text_line_new(text);

	return line ? json_string(line) : NULL;
}

json_t *json_u64(uint64_t value)
{
	return json_integer((json_int_t)value);
}

json_t *json_known(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}
