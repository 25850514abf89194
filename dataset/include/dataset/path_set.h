/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A set of paths that were seen. A path of any length takes about 30 bytes, because only its 128-bit checksum
 * is stored. {0} is an empty set. Not thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct path_set {
	struct path_set_slot {
		uint64_t low, high; /* both 0: free */
	} * slots;
	size_t n, n_slots;
};

/* Adds a path. Returns 1, or 0 if the set had it already. -ENOMEM leaves the set as it was. */
int path_set_add(struct path_set *s, const char *path, size_t length);
bool path_set_has(const struct path_set *s, const char *path, size_t length);
void path_set_free(struct path_set *s);
