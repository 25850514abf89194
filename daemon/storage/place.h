/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a dataset's chunks are opened: the folder `chunks`, as seen through one mount. All places of a
 * dataset are one folder, but somebody else's mount namespace may have mounted something over a chunk of it.
 * So each session opens chunks in the place that its client brought, and if such a mount is in the way,
 * another place of the dataset is tried.
 *
 * A place lives as long as connections, sessions and loads refer to it. Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

struct place_list {
	struct chunk_place *first;
	uint64_t n_added; /* ever; tells whether one was added meanwhile */
};

struct chunk_place {
	struct chunk_place *next;
	struct place_list *list;
	uint32_t refs;
	uint64_t mount_id;
	int fd; /* O_PATH */
};

#define PLACE_MOUNT_UNKNOWN UINT64_MAX /* before Linux 5.8 */

/* The place of this mount in the list, with one more reference; takes the descriptor over. *ret_new: there
 * was no place of this mount before. NULL: no memory; the descriptor is closed. */
struct chunk_place *place_add(struct place_list *list, uint64_t mount_id, int fd, bool *ret_new);
struct chunk_place *place_ref(struct chunk_place *place);
/* Accepts NULL; returns NULL. */
struct chunk_place *place_unref(struct chunk_place *place);
