/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log.h"

#include <ctype.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

#define LINE_BYTES 1024

/* Global, but main() sets it once, before any thread starts. */
static const char *log_program = "diesel";
static enum log_level log_max_level = LOG_LEVEL_INFO;
static int log_to_journal;
static bool log_waits = true;
static atomic_uint n_not_taken;

void log_init(const char *program, enum log_level max_level)
{
	log_program = program;
	log_max_level = max_level;
	log_to_journal = getenv("JOURNAL_STREAM") != NULL && !isatty(STDERR_FILENO);
}

void log_never_wait(void)
{
	log_waits = false;
}

/* Returns true if a line can be written without waiting. Writable pipes and sockets have space for a line. */
static bool is_taken_at_once(void)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&out, 1, 0) != 0; /* true on an error of the descriptor, which write() then reports */
}

static void put_line(enum log_level level, const char *text)
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
	(void)ignored; /* a log that cannot be written has nowhere to report that */
}

static void write_line(enum log_level level, const char *text)
{
	char said[80];
	unsigned int n;

	if (!log_waits && !is_taken_at_once()) {
		atomic_fetch_add_explicit(&n_not_taken, 1, memory_order_relaxed);
		return;
	}
	n = atomic_exchange_explicit(&n_not_taken, 0, memory_order_relaxed);
	if (n > 0) {
		snprintf(said, sizeof(said), "%u lines left out: nobody read the log", n);
		put_line(LOG_LEVEL_WARNING, said);
	}
	put_line(level, text);
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

/* The journal's own protocol: "NAME=value" lines in a datagram. The line has no newline of its own. */
static bool send_to_journal(const char *event, const char *line, const struct log_field *fields, size_t n)
{
	static const struct sockaddr_un journal = {.sun_family = AF_UNIX,
						   .sun_path = "/run/systemd/journal/socket"};
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	_cleanup_(freep) char *text = NULL;
	size_t size;
	FILE *stream = fd < 0 ? NULL : open_memstream(&text, &size);
	char value[sizeof(fields->value)];

	if (!stream)
		return false;
	fprintf(stream, "MESSAGE=%s\nPRIORITY=6\nSYSLOG_IDENTIFIER=%s\nDIESEL_EVENT=%s\n", line, log_program,
		event);
	for (size_t i = 0; i < n; i++) {
		if (!fields[i].value[0])
			continue;
		fputs("DIESEL_", stream);
		for (const char *c = fields[i].name; *c; c++)
			fputc(toupper((unsigned char)*c), stream);
		fprintf(stream, "=%s\n", text_line(value, sizeof(value), fields[i].value));
	}
	return fclose(stream) == 0 && sendto(fd, text, size, MSG_NOSIGNAL, (const struct sockaddr *)&journal,
					     sizeof(journal)) == (ssize_t)size;
}

void log_event(const char *event, const char *text, const struct log_field *fields, size_t n)
{
	char line[LINE_BYTES], clean[LINE_BYTES];
	size_t used = (size_t)snprintf(line, sizeof(line), "%s", text);

	for (size_t i = 0; i < n && used < sizeof(line); i++)
		if (fields[i].value[0])
			used += (size_t)snprintf(line + used, sizeof(line) - used, " %s=%s", fields[i].name,
						 fields[i].value);
	text_line(clean, sizeof(clean), line);
	if (log_max_level >= LOG_LEVEL_INFO && (!log_to_journal || !send_to_journal(event, clean, fields, n)))
		write_line(LOG_LEVEL_INFO, clean);
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
		log_write(level, "%s (%" PRIu64 " similar lines left out before this one)", text, left_out);
	else
		write_line(level, text);
}
