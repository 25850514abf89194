/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/text.h"

#define LINE_BYTES 1024

/* Global, but main() sets it once, before any thread starts. */
static const char *log_program = "diesel";
static enum log_level log_max_level = LOG_LEVEL_INFO;
static int log_to_journal;

void log_init(const char *program, enum log_level max_level)
{
	log_program = program;
	log_max_level = max_level;
	log_to_journal = getenv("JOURNAL_STREAM") != NULL && !isatty(STDERR_FILENO);
}

static void write_line(enum log_level level, const char *text)
{
	static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
	static const int priorities[] = {3, 4, 6, 7};
	char line[LINE_BYTES];
	ssize_t ignored;
	int n;

	if (log_to_journal)
		n = snprintf(line, sizeof(line), "<%d>", priorities[level]);
	else
		n = snprintf(line, sizeof(line), "%s: %s", log_program, words[level]);
	text_line(line + n, sizeof(line) - (size_t)n - 1, text);
	n = (int)strlen(line);
	line[n] = '\n';
	ignored = write(STDERR_FILENO, line, (size_t)n + 1);
	(void)ignored; /* there is nowhere left to report to */
}

void log_write(enum log_level level, const char *format, ...)
{
	char text[LINE_BYTES];
	va_list args;

	if (level > log_max_level)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	write_line(level, text);
}

bool log_limit_take(struct log_limit *limit, uint64_t now_ns, uint64_t *ret_left_out)
{
	uint64_t full_ns = limit->full_ns > now_ns ? limit->full_ns : now_ns;

	if (full_ns + LOG_REFILL_NS > now_ns + LOG_BURST * LOG_REFILL_NS) {
		limit->n_left_out++;
		return false;
	}
	limit->full_ns = full_ns + LOG_REFILL_NS;
	*ret_left_out = limit->n_left_out;
	limit->n_left_out = 0;
	return true;
}

void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
{
	char text[LINE_BYTES];
	uint64_t left_out;
	va_list args;

	if (level > log_max_level || !log_limit_take(limit, clock_monotonic_ns(), &left_out))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (left_out > 0)
		log_write(level, "%s (%" PRIu64 " more of this kind left out before)", text, left_out);
	else
		write_line(level, text);
}
