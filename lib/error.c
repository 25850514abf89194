/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/text.h"

static void error_vset(struct error *err, int code, const char *format, va_list args)
{
	if (!err)
		return;
	char text[sizeof(err->text)];

	err->code = code;
	vsnprintf(text, sizeof(text), format, args);
	text_line(err->text, sizeof(err->text), text); /* names in the text are untrusted */
}

int error_set(struct error *err, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_vset(err, code, format, args);
	va_end(args);
	return code;
}

int error_errno(struct error *err, int code, const char *format, ...)
{
	va_list args;

	assert(code < 0);
	va_start(args, format);
	error_vset(err, code, format, args);
	va_end(args);
	if (err) {
		size_t used = strlen(err->text);

		snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror(-code));
	}
	return code;
}

void error_prefix(struct error *err, const char *format, ...)
{
	char prefixed[sizeof(err->text)];
	va_list args;

	if (!err)
		return;
	va_start(args, format);
	int n = vsnprintf(prefixed, sizeof(prefixed), format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(prefixed))
		return;
	int m = snprintf(prefixed + n, sizeof(prefixed) - n, ": %s", err->text);

	(void)m; /* if the two do not fit, the end of the text is cut and the prefix stays complete */
	text_line(err->text, sizeof(err->text), prefixed);
}

void error_advise(struct error *err, const char *remedy)
{
	size_t used = err ? strlen(err->text) : 0;

	if (err)
		snprintf(err->text + used, sizeof(err->text) - used, "; %s", remedy);
}
