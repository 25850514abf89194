/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <string.h>

#include "lib/sorted.h"
#include "snapshot_map.h"

int snapshot_by_path(const struct snapshot *s, uint64_t i, uint64_t *ret_sample)
{
	if (i >= s->info.n_samples)
		return -ERANGE;
	if (s->tree[i] >= s->info.n_samples)
		return -EBADMSG;
	*ret_sample = s->tree[i];
	return 0;
}

static bool sorts_before(const struct snapshot *s, uint64_t place, struct path_text path)
{
	struct path_text other = snapshot_path(s, s->tree[place]);

	return other.text && path_order_compare(other, path) < 0;
}

int snapshot_place(const struct snapshot *s, uint64_t sample, uint64_t *ret_place)
{
	struct path_text path = snapshot_path(s, sample);
	uint64_t place;

	if (sample >= s->info.n_samples)
		return -ERANGE;
	if (!path.text)
		return -EBADMSG;
	place = sorted_count(s->info.n_samples, i, sorts_before(s, i, path));
	if (place == s->info.n_samples || s->tree[place] != sample)
		return -EBADMSG;
	*ret_place = place;
	return 0;
}

static bool is_before(const struct snapshot *s, uint64_t place, struct path_text directory, bool past)
{
	struct path_text path = snapshot_path(s, s->tree[place]);
	int order = path.text ? path_order_compare_directory(path, directory) : 1;

	return order < 0 || (past && order == 0);
}

/* Returns the first place in [first, n) whose path lies in the directory or after it (with past: only after
 * it), or n. In a damaged tree the place means nothing, but it is within [first, n]. */
static uint64_t find_place(const struct snapshot *s, struct path_text directory, uint64_t first, bool past)
{
	return first + sorted_count(s->info.n_samples - first, i, is_before(s, first + i, directory, past));
}

int snapshot_list(const struct snapshot *s, const char *directory, size_t directory_length, uint64_t *cursor,
		  struct snapshot_entry *ret)
{
	struct path_text dir = {directory, directory_length};
	/* *cursor is the next place + 1, or 0 before the first call. */
	uint64_t place = *cursor ? *cursor - 1 : find_place(s, dir, 0, false);
	struct path_text path;

	if (place >= s->info.n_samples)
		return -ENOENT;
	path = snapshot_path(s, s->tree[place]);
	if (!path.text || !path_is_below(path, dir))
		return -ENOENT;
	size_t start = dir.length ? dir.length + 1 : 0;
	const char *slash = memchr(path.text + start, '/', path.length - start);
	struct snapshot_entry entry = {.name = path.text + start, .place = place};

	if (slash) {
		entry.name_length = (size_t)(slash - entry.name);
		entry.is_directory = true;
		/* Continue at place + 1 or later, so that even in a damaged tree each call moves forward. */
		*cursor =
		    find_place(s, (struct path_text){path.text, start + entry.name_length}, place + 1, true) +
		    1;
	} else {
		entry.name_length = path.length - start;
		entry.sample = s->tree[place];
		*cursor = place + 2;
	}
	*ret = entry;
	return 0;
}
