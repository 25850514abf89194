/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/commands.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"

static const char *const programs[] = {"dieselctl", "diesel-analyze", "dieseld", "diesel-top"};

#define SUDO        "sudo "
#define SECURE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" /* sudo's, mostly */

static bool is_in_path(const char *name, const char *at)
{
	char path[PATH_MAX];

	for (size_t n; at && *at; at += n + (at[n] == ':')) {
		n = strcspn(at, ":");
		if (snprintf(path, sizeof(path), "%.*s/%s", (int)n, at, name) < (int)sizeof(path) &&
		    access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* Returns false if a shell would take the path for something else. */
static bool find_beside(const char *name, char ret[PATH_MAX])
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	return snprintf(ret, PATH_MAX, "%s/%s", self, name) < PATH_MAX && access(ret, X_OK) == 0 &&
	       ret[strspn(ret, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%")] ==
		   '\0';
}

/* The program whose command begins at `at`, behind a backquote, or NULL. */
static const char *program_at(const char *at)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		size_t n = strlen(programs[i]);

		if (strncmp(at, programs[i], n) == 0 && (at[n] == ' ' || at[n] == '`'))
			return programs[i];
	}
	return NULL;
}

/* Whether words of a command, up to the backquote, are a verb of dieselctl's and options, without the dataset
 * that it is of. */
static bool lacks_dataset(const char *words)
{
	static const char *const verbs[] = {" rebuild", " snapshot", " verify", " log", " purge"};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]) && n == 0; i++)
		if (strncmp(words, verbs[i], strlen(verbs[i])) == 0)
			n = strlen(verbs[i]);
	while (n && strncmp(words + n, " --", 3) == 0 && strncmp(words + n, " --help", 7) != 0)
		n += 1 + strcspn(words + n + 1, " `");
	return n && words[n] == '`';
}

char *commands_runnable_new(const char *text, const char *dataset)
{
	const char *end = NULL; /* of a command that lacks it */
	char *made = NULL, path[PATH_MAX];
	size_t bytes;
	FILE *out = open_memstream(&made, &bytes);

	if (!out)
		return NULL;
	for (const char *at = text; *at; at++) {
		bool sudo = *at == '`' && strncmp(at + 1, SUDO, strlen(SUDO)) == 0;
		const char *name = *at == '`' ? program_at(at + 1 + (sudo ? strlen(SUDO) : 0)) : NULL;

		if (at == end)
			fprintf(out, " %s", dataset);
		fputc(*at, out);
		if (!name)
			continue;
		if (dataset && name == programs[0] && !sudo && lacks_dataset(at + 1 + strlen(name)))
			end = strchr(at + 1, '`');
		if (!is_in_path(name, sudo ? SECURE_PATH : getenv("PATH")) && find_beside(name, path)) {
			fprintf(out, "%s%s", sudo ? SUDO : "", path);
			at += (sudo ? strlen(SUDO) : 0) + strlen(name);
		}
	}
	if (fclose(out) == 0)
		return made;
	free(made);
	return NULL;
}
