/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/checksum.h"
#include "dataset/shuffle.h"
#include "lib/cleanup.h"

int snapshot_base_list(const struct snapshot *s, uint64_t **ret)
{
	uint64_t n = snapshot_info(s)->n_chunks;
	_cleanup_(freep) uint64_t *keys = calloc(n + 1, sizeof(*keys));
	_cleanup_(freep) uint64_t *list = calloc(n + 1, sizeof(*list));
	int r;

	if (!keys || !list)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		struct snapshot_chunk chunk;

		r = snapshot_chunk_get(s, i, &chunk);
		if (r < 0)
			return r;
		keys[i] = checksum_xxh3(chunk.id.bytes, sizeof(chunk.id.bytes));
	}
	r = shuffle_base_list(keys, n, list);
	if (r < 0)
		return r;
	*ret = steal_pointer(list);
	return 0;
}
