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

struct mount {
	uint32_t id;
	uint32_t device;
	char *root;  /* the part of the file system that is mounted, usually "/" */
	char *point; /* the mount point */
	char *type;  /* type of the file system */
};

struct mounts {
	char *text; /* memory that roots and points refer to */
	struct mount *items;
	size_t n;
};

/* Parses "36 35 98:0 /root /point options optional ... - type source options", and splits the line in
 * place. */
static bool parse(char *line, struct mount *mount)
{
	char *rest = line, *field[5], *type = strstr(line, " - ");
	unsigned int id, major, minor;

	if (!type)
		return false;
	type += 3;
	type[strcspn(type, " ")] = '\0';
	for (size_t i = 0; i < 5; i++) {
		field[i] = strsep(&rest, " ");
		if (!field[i])
			return false;
	}
	if (sscanf(field[0], "%u", &id) != 1 || sscanf(field[2], "%u:%u", &major, &minor) != 2 ||
	    field[3][0] != '/' || field[4][0] != '/')
		return false;
	proc_unescape(field[3]);
	proc_unescape(field[4]);
	*mount = (struct mount){id, major << DEVICE_MINOR_BITS | minor, field[3], field[4], type};
	return true;
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

const char *mounts_type(const struct mounts *mounts, uint32_t id, uint32_t device)
{
	const char *type = NULL;

	for (size_t i = 0; mounts && i < mounts->n; i++) {
		if (mounts->items[i].id == id)
			return mounts->items[i].type;
		if (!type && device && mounts->items[i].device == device)
			type = mounts->items[i].type;
	}
	return type;
}

static bool is_below(const char *path, const char *point)
{
	size_t length = strlen(point);

	return !strcmp(point, "/") ||
	       (!strncmp(path, point, length) && (!path[length] || path[length] == '/'));
}

bool mounts_path_meets(const struct mounts *mounts, const char *path, bool (*is_met)(const char *type))
{
	for (size_t i = 0; mounts && i < mounts->n; i++)
		if (is_below(path, mounts->items[i].point) && is_met(mounts->items[i].type))
			return true;
	return false;
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

	/* Prefers mounts of the whole file system to those of a part, because their paths are more
	 * complete. */
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
