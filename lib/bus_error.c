/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/bus_error.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* All functions except bus_error_init() run in a signal handler, so they use only system calls and memory of
 * their own. */

#define UNKNOWN "a file"

static const char *program_name;

struct source_line {
	char text[PATH_MAX + 128];
	size_t length;
};

static const char *parse_hex(const char *p, uintptr_t *ret)
{
	*ret = 0;
	for (;; p++) {
		if (*p >= '0' && *p <= '9')
			*ret = *ret << 4 | (uintptr_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			*ret = *ret << 4 | (uintptr_t)(*p - 'a' + 10);
		else
			return p;
	}
}

/* Returns the path in a line of /proc/PID/maps if the line's range contains the address, else NULL. */
static const char *path_at(const char *line, uintptr_t address)
{
	uintptr_t first, end;
	const char *p = parse_hex(line, &first);

	if (*p != '-')
		return NULL;
	p = parse_hex(p + 1, &end);
	return address >= first && address < end ? strchr(p, '/') : NULL;
}

/* Adds a character that was read. Returns true if it completed the line. Characters that do not fit are
 * dropped. */
static bool line_add(struct source_line *line, char c)
{
	if (c != '\n') {
		if (line->length < sizeof(line->text) - 1)
			line->text[line->length++] = (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
		return false;
	}
	line->text[line->length] = '\0';
	line->length = 0;
	return true;
}

static const char *find_path(struct source_line *line, uintptr_t address)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char buffer[512];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buffer, sizeof(buffer))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			const char *path = line_add(line, buffer[i]) ? path_at(line->text, address) : NULL;

			if (path)
				return path;
		}
	}
	return UNKNOWN;
}

static size_t add(char *text, size_t length, size_t size, const char *more)
{
	while (*more && length < size)
		text[length++] = *more++;
	return length;
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
	static struct source_line line;
	static char text[PATH_MAX + 512];
	size_t n = 0;

	(void)context;
	if (info->si_code != BUS_ADRERR) {
		raise(signal); /* SA_RESETHAND has restored the default action */
		return;
	}
	n = add(text, n, sizeof(text), program_name);
	n = add(text, n, sizeof(text), ": ");
	n = add(text, n, sizeof(text), find_path(&line, (uintptr_t)info->si_addr));
	n = add(text, n, sizeof(text),
		" can no longer be read: the file was truncated, or its storage failed. Try again\n");
	(void)!write(STDERR_FILENO, text, n);
	_exit(1);
}

void bus_error_init(const char *program)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};

	program_name = program;
	sigaction(SIGBUS, &action, NULL);
}
