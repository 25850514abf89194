/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <errno.h>
#include <string.h>

#include "lib/clock.h"

/* Inode of a sample: (number + 1) * 2. Inode of a folder: place << 13 | depth << 1 | 1, where depth is the
 * number of names in its path, at most CHUNK_NAME_MAX / 2. */
#define DEPTH_BITS 12
#define DEPTH_MASK ((1u << DEPTH_BITS) - 1)

static uint64_t folder_inode(uint64_t place, uint32_t depth)
{
	return (place << DEPTH_BITS | depth) << 1 | 1;
}

uint64_t tree_sample_inode(uint64_t number)
{
	return (number + 1) * 2;
}

static uint32_t count_names(const char *path, size_t length)
{
	uint32_t n = length > 0;

	for (size_t i = 0; i < length; i++)
		n += path[i] == '/';
	return n;
}

/* Maps the result of snapshot_sample_get() or snapshot_by_path() to an errno for the kernel. */
static int result_of(int r)
{
	return r == -ERANGE ? -ENOENT : r < 0 ? -EIO : 0;
}

int tree_sample(const struct tree *t, uint64_t inode, uint64_t *ret_number, struct snapshot_sample *ret)
{
	int r;

	if (inode & 1)
		return -EISDIR;
	r = inode ? result_of(snapshot_sample_get(t->snapshot, inode / 2 - 1, ret)) : -ENOENT;
	if (r == 0)
		*ret_number = inode / 2 - 1;
	return r;
}

int tree_folder(const struct tree *t, uint64_t inode, const char **ret_path, size_t *ret_length)
{
	uint64_t place = inode >> (DEPTH_BITS + 1), number;
	uint32_t depth = (uint32_t)(inode >> 1) & DEPTH_MASK;
	struct snapshot_sample s;
	size_t length = 0;
	int r;

	if (!(inode & 1))
		return -ENOTDIR;
	if (inode == TREE_ROOT) { /* the root exists even if it is empty */
		*ret_path = "";
		*ret_length = 0;
		return 0;
	}
	r = result_of(snapshot_by_path(t->snapshot, place, &number));
	if (r == 0)
		r = result_of(snapshot_sample_get(t->snapshot, number, &s));
	if (r < 0)
		return r;
	for (; depth > 0; depth--) {
		const char *slash = memchr(s.path + length, '/', s.path_length - length);

		if (!slash)
			return -ENOENT;
		length = (size_t)(slash - s.path) + 1;
	}
	*ret_path = s.path;
	*ret_length = length ? length - 1 : 0;
	return 0;
}

int tree_lookup(const struct tree *t, uint64_t folder, const char *name, uint64_t *ret_inode)
{
	struct snapshot_entry entry;
	char path[CHUNK_NAME_MAX + 1];
	const char *above;
	size_t length, n = strlen(name);
	uint64_t number, cursor = 0;
	int r = tree_folder(t, folder, &above, &length);

	if (r < 0)
		return r;
	if (length + 1 + n > CHUNK_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(path, above, length);
	if (length)
		path[length++] = '/';
	memcpy(path + length, name, n);
	length += n;
	if (snapshot_find(t->snapshot, path, length, &number) == 0)
		*ret_inode = tree_sample_inode(number);
	else if (snapshot_list(t->snapshot, path, length, &cursor, &entry) == 0)
		*ret_inode = folder_inode(entry.place, count_names(path, length));
	else
		return -ENOENT;
	return 0;
}

int tree_entry_inode(const struct snapshot_entry *entry, const char *folder, size_t folder_length,
		     uint64_t *ret_inode)
{
	if (!chunk_name_is_valid(entry->name, entry->name_length))
		return -EIO;
	*ret_inode = entry->is_directory ? folder_inode(entry->place, count_names(folder, folder_length) + 1)
					 : tree_sample_inode(entry->sample);
	return 0;
}

int tree_locate(const struct tree *t, uint64_t place, char *ret_folder, uint64_t *ret_offset)
{
	struct snapshot_sample s;
	uint64_t number;
	size_t length = 0;
	int r = result_of(snapshot_by_path(t->snapshot, place, &number));

	if (r == 0)
		r = result_of(snapshot_sample_get(t->snapshot, number, &s));
	if (r < 0)
		return r;
	for (size_t i = 0; i < s.path_length; i++)
		if (s.path[i] == '/')
			length = i;
	memcpy(ret_folder, s.path, length);
	ret_folder[length] = '\0';
	/* A cursor of snapshot_list() is the next place + 1. The entries "." and ".." come first. */
	*ret_offset = place + 1 + TREE_OFFSET_LISTED;
	return 0;
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* Sets the attributes that samples and folders share. */
static void set_common(struct stat *st, const struct tree *t, uint64_t inode, uint64_t ns)
{
	st->st_ino = inode;
	st->st_uid = t->uid;
	st->st_gid = t->gid;
	st->st_nlink = 1;
	st->st_blksize = 4096;
	st->st_mtim = st->st_ctim = st->st_atim = time_of(ns);
}

int tree_stat(const struct tree *t, uint64_t inode, struct stat *ret)
{
	struct stat st = {0};
	struct snapshot_sample s;
	uint64_t number, mtime_ns;
	const char *path;
	size_t length;
	int r = tree_sample(t, inode, &number, &s);

	if (r == 0) {
		st.st_mode = S_IFREG | (s.mode & t->mask & 0555);
		st.st_size = s.bytes;
		st.st_blocks = ((blkcnt_t)s.bytes + 511) / 512;
		if (snapshot_mtime(t->snapshot, number, &mtime_ns) < 0)
			return -EIO;
		set_common(&st, t, inode, mtime_ns);
	} else if (r == -EISDIR) {
		r = tree_folder(t, inode, &path, &length);
		st.st_mode = S_IFDIR | (t->mask & 0444) | (t->mask & 0444) >> 2;
		set_common(&st, t, inode, snapshot_info(t->snapshot)->created_ns);
	}
	if (r == 0)
		*ret = st;
	return r;
}
