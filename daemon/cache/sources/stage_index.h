/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Contents of the staging folder (stage.h), derived from file names. A name identifies the chunk, its folder,
 * and the stamp that the chunk's own file had. So no index is ever written, and none can be wrong: a file
 * exists when its name does. Pure, except for memory.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/storage/access.h"
#include "dataset/chunk.h"
#include "daemon/sandboxed/stager.h"

/* Identifies a chunk by number and by the folder of its own file. */
struct staged_key {
	struct chunk_id id;
	uint64_t folder_dev, folder_ino;
};

enum staged_state {
	STAGED_WRITING, /* no such file yet */
	STAGED_READY,
	STAGED_GOING, /* no longer found; removed after its last reader */
	STAGED_LOST,  /* the contents of the folder are no longer known */
};

struct staged {
	struct staged_key key;
	struct access_stamp stamp; /* stamp of the chunk's own file when that was read */
	enum staged_state state;
	uint32_t refs; /* loads that may still read it */
	struct staged_set *set;
	struct staged *same_hash, *prev, *next; /* links of the set, or of the list to remove */
};

/* Staged files of one dataset's folder of chunks: the unit of eviction. */
struct staged_set {
	struct staged_set *next;
	uint64_t folder_dev, folder_ino, bytes;
	uint32_t uid; /* the dataset's owner */
	int64_t used_s;
	struct staged *first;
};

struct stage_index {
	struct staged **buckets;
	uint64_t n_buckets, n; /* n: number of files, without those to remove */
	uint64_t bytes;        /* disk space of all files */
	struct staged_set *sets;
	struct staged *going;
};

/* Returns the file's disk space in bytes. */
uint64_t staged_file_bytes(const struct staged *f);

void staged_name(const struct staged *f, char name[STAGER_NAME_BYTES]);

struct staged *stage_index_find(const struct stage_index *x, const struct staged_key *key);
/* Returns true if a file of this name is still waiting to be removed. */
bool stage_index_goes(const struct stage_index *x, const struct staged_key *key,
		      const struct access_stamp *stamp);

/* Adds a file. There must be no file of this chunk. NULL: no memory. */
struct staged *stage_index_add(struct stage_index *x, const struct staged_key *key, uint32_t uid,
			       const struct access_stamp *stamp, int64_t used_s);
/* Adds the file with this name, as ready; another file of the same chunk is retired. Returns NULL if the name
 * is none of ours, or if memory runs out. */
struct staged *stage_index_add_name(struct stage_index *x, const char *name, int64_t used_s);

/* Marks the file for removal. Its bytes count until stage_index_drop(). */
void stage_index_retire(struct stage_index *x, struct staged *f);
/* Drops a file that no longer exists. Nobody may refer to it. */
void stage_index_drop(struct stage_index *x, struct staged *f);
/* Forgets all files. Those with references become lost, and the end of their last reference frees them. */
void stage_index_clear(struct stage_index *x);

/* Returns the bytes of all datasets of this owner. */
uint64_t stage_index_bytes_of(const struct stage_index *x, uint32_t uid);
