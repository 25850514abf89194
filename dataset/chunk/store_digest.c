/* SPDX-License-Identifier: Apache-2.0 */
/* Separate from store.c, so that programs which only read samples, such as libdiesel's, need no libcrypto. */
#include "dataset/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/blocks.h"
#include "dataset/compress.h"
#include "lib/cleanup.h"

#define DIGEST_READ_BYTES (4u << 20)

static int cannot(struct store *s, const struct chunk_id *id, int code, struct error *err)
{
	char name[STORE_NAME_MAX];

	return error_errno(err, code, "cannot compute the SHA-256 of %s", store_describe(s, id, name));
}

/* Computes the digest of the plain form of a compressed chunk. buffer: DIGEST_READ_BYTES. */
static int digest_plain(struct store *s, const struct chunk_id *id, unsigned char *buffer,
			struct digest_stream *stream, struct error *err)
{
	unsigned char *plain = buffer + CHUNK_BLOCK_MAX_BYTES;
	_cleanup_(freep) void *head = NULL;
	struct chunk_blocks blocks;
	struct chunk_view view;
	int r = store_read_head(s, id, &head, &view, err);

	if (r < 0)
		return r;
	uint64_t offset = view.header->payload_offset;

	if (chunk_blocks_in_head(view.header, &blocks) < 0 || digest_stream_add(stream, head, offset) < 0)
		return cannot(s, id, -ENOTSUP, err);
	for (uint32_t i = 0; i < blocks.n; i++) {
		r = store_read(s, id, offset, buffer, chunk_block_stored(&blocks, i), err);
		if (r < 0)
			return r;
		r = chunk_block_decode(&blocks, i, buffer, plain, compress_decode);
		if (r == 0)
			r = digest_stream_add(stream, plain, chunk_block_plain(&blocks, i));
		if (r < 0)
			return cannot(s, id, r, err);
		offset += chunk_block_stored(&blocks, i);
	}
	return 0;
}

static bool is_compressed(const unsigned char *file, size_t bytes)
{
	const struct chunk_header *h = (const void *)file;

	return bytes >= sizeof(*h) && memcmp(h->magic, CHUNK_MAGIC, sizeof(h->magic)) == 0 &&
	       (h->flags & CHUNK_FLAG_COMPRESSED);
}

int store_digest(struct store *s, const struct chunk_id *id, struct digest *ret, struct error *err)
{
	_cleanup_(freep) unsigned char *buffer = malloc(DIGEST_READ_BYTES);
	struct digest_stream *stream = NULL;
	uint64_t bytes = 0;
	int r = buffer ? digest_stream_new(&stream) : -ENOMEM;

	if (r < 0)
		return cannot(s, id, r, err);
	r = store_size(s, id, &bytes, err);
	for (uint64_t offset = 0; offset < bytes && r == 0;) {
		size_t n = bytes - offset < DIGEST_READ_BYTES ? bytes - offset : DIGEST_READ_BYTES;

		r = store_read(s, id, offset, buffer, n, err);
		if (r == 0 && offset == 0 && is_compressed(buffer, n)) {
			r = digest_plain(s, id, buffer, stream, err);
			break;
		}
		if (r == 0 && digest_stream_add(stream, buffer, n) < 0)
			r = cannot(s, id, -ENOTSUP, err);
		offset += n;
	}
	if (r == 0 && digest_stream_finish(stream, ret) < 0)
		r = cannot(s, id, -ENOTSUP, err);
	digest_stream_free(stream);
	return r;
}
