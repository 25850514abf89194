/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The one exception to "no global mutable state": set once by main() before any thread starts. */
static const char *log_program = "diesel";
static enum log_level log_max_level = LOG_LEVEL_INFO;
static int log_to_journal;

void log_init(const char *program, enum log_level max_level)
{
	log_program = program;
	log_max_level = max_level;
	log_to_journal = getenv("JOURNAL_STREAM") != NULL && !isatty(STDERR_FILENO);
}

void log_write(enum log_level level, const char *format, ...)
{
	static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
	static const int priorities[] = {3, 4, 6, 7};
	char line[1024];
	va_list args;
	int n;

	if (level > log_max_level)
		return;
	if (log_to_journal)
		n = snprintf(line, sizeof(line), "<%d>", priorities[level]);
	else
		n = snprintf(line, sizeof(line), "%s: %s", log_program, words[level]);
	va_start(args, format);
	int m = vsnprintf(line + n, sizeof(line) - n, format, args);
	va_end(args);
	if (m < 0)
		return;
	size_t length = (size_t)n + m;

	if (length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, length);

	(void)ignored; /* there is nowhere left to report to */
}
