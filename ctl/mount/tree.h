/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples and folders of a snapshot as inodes. A number says by itself what it stands for, so that nothing
 * has to be remembered or forgotten: a sample's is made of its number, a folder's of the place of its first
 * sample in tree order and of how deep it is. The root is FUSE's 1.
 */

#include "dataset/snapshot.h"

#include <stdbool.h>
#include <sys/stat.h>

struct tree {
	const struct snapshot *snapshot;
	uid_t uid; /* whose everything is */
	gid_t gid;
	mode_t mask; /* permission bits that a sample may have at most; folders get x where they have r */
};

#define TREE_ROOT 1u
/* Offsets in a listing: 0 ".", 1 "..", and then cursors of snapshot_list(), which are 2 or more between
 * entries,
 * + this. */
#define TREE_OFFSET_LISTED 2u

/* In all of these -EIO: the snapshot contradicts itself, though its checksums are right. */

/* The sample of an inode. -EISDIR; -ENOENT: there is no such inode. */
int tree_sample(const struct tree *t, uint64_t inode, uint64_t *ret_number, struct snapshot_sample *ret);
/* The path of a folder's inode, without a slash at the end, borrowed from the snapshot; "" is the root.
 * -ENOTDIR, -ENOENT. */
int tree_folder(const struct tree *t, uint64_t inode, const char **ret_path, size_t *ret_length);
/* The inode of what has this name in a folder. -ENOENT, -ENOTDIR, -ENAMETOOLONG. */
int tree_lookup(const struct tree *t, uint64_t folder, const char *name, uint64_t *ret_inode);
uint64_t tree_sample_inode(uint64_t number);
/* The offset in a listing from which the entry at this place comes next. */
uint64_t tree_offset_of(uint64_t place);
/* The path of the folder that has the sample at this place, terminated; it has room for CHUNK_NAME_MAX + 1
 * bytes. -ENOENT. */
int tree_folder_of(const struct tree *t, uint64_t place, char *ret_path);
/* The inode of an entry of snapshot_list(). folder_length: of the folder's path. */
int tree_entry_inode(const struct snapshot_entry *entry, const char *folder, size_t folder_length,
		     uint64_t *ret_inode);
/* -ENOENT. */
int tree_stat(const struct tree *t, uint64_t inode, struct stat *ret);
