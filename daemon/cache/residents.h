/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of a dataset's chunks in memory that clients map (client/residents.h): they read samples by
 * number from chunks in place. It exists from the first client that asks for it. Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/storage/shared_memory.h"

struct cached_dataset;

/* All zero: no client has asked yet. */
struct residents {
	struct shared_memory memory;
	uint32_t n_stays; /* number of the last stay; wraps, and is never 0 in an entry */
};

/* Opens the table for a client, which may read all chunks of the dataset. The caller closes *ret_fd. Returns
 * 0 or a negative errno. */
int residents_lend(struct cached_dataset *d, int *ret_fd);
/* Adds the chunk, which is ready as a whole. */
void residents_enter(struct cached_dataset *d, uint64_t chunk);
/* Removes the chunk; call it before its memory changes. Does nothing for a chunk that is not in the table. */
void residents_leave(struct cached_dataset *d, uint64_t chunk);
/* Returns true if the table has the chunk. */
bool residents_have(const struct cached_dataset *d, uint64_t chunk);
void residents_free(struct residents *r);
