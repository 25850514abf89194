/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples and folders of a snapshot as inodes. An inode number identifies its item by itself, so the mount
 * keeps no table: a sample's contains the sample number, a folder's the place of its first sample in tree
 * order and its depth. The root is FUSE's 1.
 */

#include "dataset/snapshot.h"

#include <stdbool.h>
#include <sys/stat.h>

struct tree {
	const struct snapshot *snapshot;
	uid_t uid; /* owner of all files and folders */
	gid_t gid;
	mode_t mask; /* maximum permission bits of a sample; folders also get x where they have r */
};

#define TREE_ROOT 1u
/* Offsets in a listing: 0 is ".", 1 is "..". Others are cursors of snapshot_list() plus TREE_OFFSET_LISTED;
 * between entries these cursors are 2 or more. */
#define TREE_OFFSET_LISTED 2u

/* All functions below return -EIO if the snapshot contradicts itself, though its checksums are right. */

/* Finds the sample of an inode. -EISDIR; -ENOENT: no such inode. */
int tree_sample(const struct tree *t, uint64_t inode, uint64_t *ret_number, struct snapshot_sample *ret);
/* Finds the path of a folder's inode, without a slash at the end, borrowed from the snapshot; "" is the root.
 * -ENOTDIR, -ENOENT. */
int tree_folder(const struct tree *t, uint64_t inode, const char **ret_path, size_t *ret_length);
/* Finds the inode of a name in a folder. -ENOENT, -ENOTDIR, -ENAMETOOLONG. */
int tree_lookup(const struct tree *t, uint64_t folder, const char *name, uint64_t *ret_inode);
uint64_t tree_sample_inode(uint64_t number);
/* Finds the folder that contains the sample at this place, and the offset in its listing at which the sample
 * is next. Writes the folder's path, terminated, into CHUNK_NAME_MAX + 1 bytes. -ENOENT. */
int tree_locate(const struct tree *t, uint64_t place, char *ret_folder, uint64_t *ret_offset);
/* Computes the inode of an entry of snapshot_list(). folder_length: length of the folder's path. */
int tree_entry_inode(const struct snapshot_entry *entry, const char *folder, size_t folder_length,
		     uint64_t *ret_inode);
/* -ENOENT. */
int tree_stat(const struct tree *t, uint64_t inode, struct stat *ret);
