/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/compress.h"
#include "lib/cleanup.h"

int chunk_make_plain(const void *file, const char *origin, void **ret, uint32_t *ret_damaged,
		     struct error *err)
{
	const struct chunk_header *h = file;
	_cleanup_(freep) unsigned char *plain = NULL;
	struct chunk_blocks blocks;
	uint64_t at = h->payload_offset;
	uint32_t n_damaged = 0;

	if (chunk_blocks_in_head(h, &blocks) < 0)
		return error_set(err, -EBADMSG, "%s: the chunk's header contradicts itself", origin);
	plain = malloc(h->file_bytes);
	if (!plain)
		return error_errno(err, -ENOMEM, "%s", origin);
	memcpy(plain, file, h->payload_offset);
	for (uint32_t i = 0; i < blocks.n; i++) {
		uint64_t place = h->payload_offset + (uint64_t)i * blocks.block_bytes;
		int r = chunk_block_decode(&blocks, i, (const unsigned char *)file + at, plain + place,
					   compress_decode);

		if (r == -EBADMSG && ret_damaged) {
			memset(plain + place, 0, chunk_block_plain(&blocks, i));
			n_damaged++;
		} else if (r == -EBADMSG) {
			return error_set(err, r,
					 "%s: the block at byte %llu is damaged (cannot be decompressed)",
					 origin, (unsigned long long)at);
		} else if (r < 0) {
			return error_errno(err, r, "%s: cannot decompress it", origin);
		}
		at += chunk_block_stored(&blocks, i);
	}
	if (ret_damaged)
		*ret_damaged = n_damaged;
	*ret = steal_pointer(plain);
	return 0;
}
