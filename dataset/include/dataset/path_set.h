/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which paths were there already. A path takes some 30 bytes, however long it is: it is known by a checksum
 * of 128 bits. {0} is an empty set. Not thread-safe.
 */

#include <stddef.h>
#include <stdint.h>

struct path_set {
	struct path_set_slot {
		uint64_t low, high; /* both 0: free */
	} * slots;
	size_t n, n_slots;
};

/* 1, or 0: it was there; -ENOMEM, which leaves the set as it was. */
int path_set_add(struct path_set *s, const char *path, size_t length);
void path_set_free(struct path_set *s);
