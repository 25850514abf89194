/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Places where a dataset's chunks are opened: the folder `chunks`, each as seen through one mount. All places
 * of a dataset are the same folder, but another process's mount namespace may have a file mounted over a
 * chunk in it. So each session opens chunks in the place that its client brought. If such a mount is in the
 * way, another place of the dataset is tried.
 *
 * A place lives as long as connections, sessions and loads refer to it. Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

struct place_list {
	struct chunk_place *first;
	uint64_t n_added; /* number of places ever added; tells whether one was added since */
};

struct chunk_place {
	struct chunk_place *next;
	struct place_list *list;
	uint32_t refs;
	uint64_t mount_id;
	int fd; /* O_PATH */
};

#define PLACE_MOUNT_UNKNOWN UINT64_MAX /* Linux before 5.8 reports no mount id */

/* Returns the place of this mount in the list, with one more reference. Takes ownership of the descriptor.
 * *ret_new: the list had no place of this mount before. NULL: no memory; the descriptor is closed. */
struct chunk_place *place_add(struct place_list *list, uint64_t mount_id, int fd, bool *ret_new);
struct chunk_place *place_ref(struct chunk_place *place);
/* Accepts NULL; returns NULL. */
struct chunk_place *place_unref(struct chunk_place *place);
