/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What lies in the staging folder (stage.h), as its names tell: a file's name says which chunk it is, of
 * which folder, and which stamp the chunk's own file had. So there is no index to be written, and none that
 * could be wrong: a file is there when its name is. Pure, but for memory.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/storage/access.h"
#include "dataset/chunk.h"
#include "daemon/apart/stager.h"

/* The chunk with this number, in a file of this folder. */
struct staged_key {
	struct chunk_id id;
	uint64_t folder_dev, folder_ino;
};

enum staged_state {
	STAGED_WRITING, /* there is no such file yet */
	STAGED_READY,
	STAGED_GOING, /* found by nobody any more, and removed when nobody reads it */
	STAGED_LOST,  /* nobody knows what is in the folder any more */
};

struct staged {
	struct staged_key key;
	struct access_stamp stamp; /* of the chunk's own file when it was read */
	enum staged_state state;
	uint32_t refs; /* loads that may still read it */
	struct staged_set *set;
	struct staged *same_hash, *previous, *next; /* next and previous: of the set, or of those that go */
};

/* Files of one dataset's folder of chunks: what is given up together. */
struct staged_set {
	struct staged_set *next;
	uint64_t folder_dev, folder_ino, bytes;
	uint32_t uid; /* the dataset's owner */
	int64_t used_s;
	struct staged *first;
};

struct stage_index {
	struct staged **buckets;
	uint64_t n_buckets, n; /* n: without those that go */
	uint64_t bytes;        /* on the disk, of all of them */
	struct staged_set *sets;
	struct staged *going;
};

/* Bytes on the disk. */
uint64_t staged_file_bytes(const struct staged *f);

void staged_name(const struct staged *f, char name[STAGER_NAME_BYTES]);

struct staged *stage_index_find(const struct stage_index *x, const struct staged_key *key);
/* Returns true if a file of this name is still to be removed. */
bool stage_index_goes(const struct stage_index *x, const struct staged_key *key,
		      const struct access_stamp *stamp);

/* NULL: no memory. There must be no file of this chunk. */
struct staged *stage_index_add(struct stage_index *x, const struct staged_key *key, uint32_t uid,
			       const struct access_stamp *stamp, int64_t used_s);
/* Adds what this name tells of, as ready; another file of the chunk goes. Returns NULL if it is no name of
 * ours, or no memory is left. */
struct staged *stage_index_add_name(struct stage_index *x, const char *name, int64_t used_s);

/* The file is to be removed; until stage_index_drop() its bytes count. */
void stage_index_retire(struct stage_index *x, struct staged *f);
/* There is no such file. Nobody may refer to it. */
void stage_index_drop(struct stage_index *x, struct staged *f);
/* Forgets all; those that somebody refers to become lost, and the last staged_unref() frees them. */
void stage_index_clear(struct stage_index *x);

/* Bytes of all datasets of this owner. */
uint64_t stage_index_bytes_of(const struct stage_index *x, uint32_t uid);
