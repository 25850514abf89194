/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of a dataset's chunks in memory that clients map (client/residents.h): they read samples by
 * number from chunks in place. It exists from the first client that asks for it. Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/storage/shared_memory.h"

struct cache;
struct cached_dataset;

/* Marks of the chunks that one client has read in place. Only this client and the daemon write to the memory.
 */
struct resident_uses {
	struct resident_uses *next;
	struct shared_memory memory;
};

/* All zero: no client has asked yet. */
struct residents {
	struct shared_memory memory;
	struct resident_uses *uses; /* of all clients */
	uint64_t used_ns;           /* when a use was last found */
	uint32_t n_stays;           /* number of the last stay; wraps, and is never 0 in an entry */
};

/* Opens the table for a client, which may read all chunks of the dataset, and memory for its uses. The caller
 * closes both descriptors, and ends with residents_take_back(). Returns 0 or a negative errno. */
int residents_lend(struct cached_dataset *d, struct resident_uses **ret, int *ret_table_fd, int *ret_uses_fd);
/* Accepts NULL. */
void residents_take_back(struct cached_dataset *d, struct resident_uses *uses);
/* Takes the chunks that clients have read in place as used, at most ten times per second. For victim.c: a
 * client gains no more by this than by requests for these chunks. */
void residents_note_uses(struct cache *c);
/* Returns true if a client has read from the dataset in place during the last seconds. */
bool residents_are_used(const struct cached_dataset *d);
/* Adds the chunk, which is ready as a whole. */
void residents_enter(struct cached_dataset *d, uint64_t chunk);
/* Removes the chunk; call it before its memory changes. Does nothing for a chunk that is not in the table. */
void residents_leave(struct cached_dataset *d, uint64_t chunk);
/* Returns true if the table has the chunk. */
bool residents_have(const struct cached_dataset *d, uint64_t chunk);
