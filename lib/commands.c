/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/commands.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"

static const char *const programs[] = {"dieselctl", "diesel-analyze", "dieseld", "diesel-top"};

/* Characters that a shell does not interpret. */
#define PLAIN       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%"
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

/* Finds a program next to this one. Returns false if there is none, or a shell would change its path. */
static bool find_in_own_folder(const char *name, char ret[PATH_MAX])
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	return snprintf(ret, PATH_MAX, "%s/%s", self, name) < PATH_MAX && access(ret, X_OK) == 0 &&
	       ret[strspn(ret, PLAIN)] == '\0';
}

/* Returns the program whose command begins at `at`, after a backquote; NULL: none. */
static const char *program_at(const char *at)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		size_t n = strlen(programs[i]);

		if (strncmp(at, programs[i], n) == 0 && (at[n] == ' ' || at[n] == '`'))
			return programs[i];
	}
	return NULL;
}

/* Returns true if the words of a command, up to the backquote, are a verb of dieselctl that needs a dataset,
 * and options, but no dataset. */
static bool lacks_dataset(const char *words)
{
	static const char *const verbs[] = {" rebuild", " snapshot", " verify", " log", " purge", " ls"};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]) && n == 0; i++)
		if (strncmp(words, verbs[i], strlen(verbs[i])) == 0)
			n = strlen(verbs[i]);
	while (n && strncmp(words + n, " --", 3) == 0 && strncmp(words + n, " --help", 7) != 0) {
		n += 1 + strcspn(words + n + 1, " `");
		if (words[n] == ' ' && isdigit((unsigned char)words[n + 1]))
			n += 1 + strcspn(words + n + 1, " `");
	}
	return n && words[n] == '`';
}

static void put_word(FILE *out, const char *word, size_t n)
{
	bool is_plain = n && strspn(word, PLAIN) >= n;

	fputs(is_plain ? "" : "'", out);
	for (size_t i = 0; i < n; i++)
		if (word[i] == '\'')
			fputs("'\\''", out);
		else
			fputc(word[i], out);
	fputs(is_plain ? "" : "'", out);
}

char *commands_word_new(const char *word)
{
	char *made = NULL;
	size_t bytes;
	FILE *out = open_memstream(&made, &bytes);

	if (!out)
		return NULL;
	put_word(out, word, strlen(word));
	if (fclose(out) == 0)
		return made;
	free(made);
	return NULL;
}

char *commands_runnable_new(const char *text, const char *dataset)
{
	const char *end = NULL;  /* end of a command without a dataset: the place to add it */
	const char *stop = NULL; /* end of a command */
	size_t bytes, n = dataset ? strlen(dataset) : 0;
	char *made = NULL, path[PATH_MAX];
	FILE *out = open_memstream(&made, &bytes);

	if (!out)
		return NULL;
	while (n > 1 && dataset[n - 1] == '/')
		n--;
	for (const char *at = text; *at; at++) {
		bool sudo = *at == '`' && strncmp(at + 1, SUDO, strlen(SUDO)) == 0;
		const char *name = *at == '`' ? program_at(at + 1 + (sudo ? strlen(SUDO) : 0)) : NULL;

		if (at == end) {
			fputc(' ', out);
			put_word(out, dataset, strlen(dataset));
		}
		fputc(*at, out);
		if (n && stop && at < stop && *at == ' ' && strncmp(at + 1, dataset, n) == 0 &&
		    strchr(" `./", at[1 + n])) {
			put_word(out, dataset, n);
			at += n;
		}
		if (!name)
			continue;
		stop = strchr(at + 1, '`');
		if (dataset && name == programs[0] && !sudo && lacks_dataset(at + 1 + strlen(name)))
			end = stop;
		if (!is_in_path(name, sudo ? SECURE_PATH : getenv("PATH")) &&
		    find_in_own_folder(name, path)) {
			fprintf(out, "%s%s", sudo ? SUDO : "", path);
			at += (sudo ? strlen(SUDO) : 0) + strlen(name);
		}
	}
	if (fclose(out) == 0)
		return made;
	free(made);
	return NULL;
}
