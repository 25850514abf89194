/* SPDX-License-Identifier: Apache-2.0 */
#include "refusal.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"

#define LOG_BEGIN "-- BEGIN PROG LOAD LOG --"

/* Thread-local, because libbpf's callback takes no argument of its user. */
static _Thread_local struct refusal said;

/* Keeps the verifier's last line, except its statistics. */
static void hear_verifier(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		if (n && strncmp(text, "-- ", 3) != 0 && strncmp(text, "processed ", 10) != 0) {
			snprintf(said.reason, sizeof(said.reason), "%.*s", (int)n, text);
			said.verified = true;
		}
		text += n + (text[n] == '\n');
	}
}

/* Receives a message: "libbpf: prog 'NAME': REASON" (the first one about a program is the most useful), or
 * the verifier's log. */
static void hear(const char *text)
{
	char program[sizeof(said.program)];
	const char *log = strstr(text, LOG_BEGIN);
	int at = 0;

	if (sscanf(text, "libbpf: prog '%47[^']': %n", program, &at) != 1 || !at)
		return;
	if (strcmp(program, said.program)) {
		memset(&said, 0, sizeof(said));
		memcpy(said.program, program, sizeof(program));
		snprintf(said.reason, sizeof(said.reason), "%.*s", (int)strcspn(text + at, "\n"), text + at);
	}
	if (log)
		hear_verifier(log + strlen(LOG_BEGIN));
}

static int libbpf_log(enum libbpf_print_level level, const char *format, va_list args)
{
	_cleanup_(freep) char *text = NULL;

	if (level == LIBBPF_DEBUG || vasprintf(&text, format, args) < 0)
		return 0;
	hear(text);
	/* The verifier's log arrives as one message of many lines. */
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		log_debug("%s", line);
	return 0;
}

void refusal_listen(void)
{
	memset(&said, 0, sizeof(said));
	libbpf_set_print(libbpf_log);
}

const struct refusal *refusal_get(void)
{
	return &said;
}

bool refusal_of_privilege(int r)
{
	return (r == -EPERM || r == -EACCES) && !said.verified;
}
