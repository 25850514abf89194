/* SPDX-License-Identifier: Apache-2.0 */
#include "mounts.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/proc.h"

#define MOUNTINFO_MAX_BYTES (1 << 20)
#define MINOR_BITS          20 /* of the kernel's dev_t */

struct mount {
	uint32_t device;
	char *root;  /* which part of the file system is mounted, mostly "/" */
	char *point; /* where it is mounted */
};

struct mounts {
	char *text; /* roots and points are in here */
	struct mount *items;
	size_t n;
};

/* Parses "36 35 98:0 /root /point options ...", and cuts the line in pieces. */
static bool parse(char *line, struct mount *mount)
{
	char *rest = line, *field[5];
	unsigned int major, minor;

	for (size_t i = 0; i < 5; i++) {
		field[i] = strsep(&rest, " ");
		if (!field[i])
			return false;
	}
	if (sscanf(field[2], "%u:%u", &major, &minor) != 2 || field[3][0] != '/' || field[4][0] != '/')
		return false;
	proc_unescape(field[3]);
	proc_unescape(field[4]);
	*mount = (struct mount){major << MINOR_BITS | minor, field[3], field[4]};
	return true;
}

static void mounts_freep(struct mounts **mounts)
{
	mounts_free(*mounts);
}

int mounts_read(const char *mountinfo_path, struct mounts **ret_mounts)
{
	_cleanup_(mounts_freep) struct mounts *mounts = calloc(1, sizeof(*mounts));
	size_t n_lines = 1;
	char *rest, *line;
	int r;

	if (!mounts)
		return -ENOMEM;
	r = proc_read_file(mountinfo_path, MOUNTINFO_MAX_BYTES, &mounts->text, NULL);
	if (r < 0)
		return r;
	for (const char *at = mounts->text; *at; at++)
		n_lines += *at == '\n';
	mounts->items = calloc(n_lines, sizeof(*mounts->items));
	if (!mounts->items)
		return -ENOMEM;
	rest = mounts->text;
	while ((line = strsep(&rest, "\n")))
		mounts->n += parse(line, &mounts->items[mounts->n]);
	*ret_mounts = steal_pointer(mounts);
	return 0;
}

void mounts_free(struct mounts *mounts)
{
	if (!mounts)
		return;
	free(mounts->items);
	free(mounts->text);
	free(mounts);
}

/* Returns the length of the part of inner that root stands for, or -1 if inner is not below root. */
static long covered(const char *root, const char *inner)
{
	size_t length = strlen(root);

	if (length == 1)
		return 0;
	if (strncmp(root, inner, length) || (inner[length] && inner[length] != '/'))
		return -1;
	return (long)length;
}

int mounts_path(const struct mounts *mounts, uint32_t device, const char *inner, char *path, size_t size)
{
	const struct mount *best = NULL;
	long best_length = -1;

	/* Mounts of the whole file system come before those of a part, because their paths say more. */
	for (size_t i = 0; mounts && i < mounts->n; i++) {
		const struct mount *mount = &mounts->items[i];
		long length = mount->device == device ? covered(mount->root, inner) : -1;

		if (length >= 0 && (!best || length < best_length)) {
			best = mount;
			best_length = length;
		}
	}
	if (!best) {
		snprintf(path, size, "%s", inner);
		return -ENOENT;
	}
	inner += best_length;
	if (!strcmp(best->point, "/"))
		snprintf(path, size, "%s", *inner ? inner : "/");
	else
		snprintf(path, size, "%s%s", best->point, strcmp(inner, "/") ? inner : "");
	return 0;
}
