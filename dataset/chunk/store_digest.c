/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from store.c, so that who reads samples only, as libdiesel does, needs no libcrypto. */
#include "dataset/store.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"

#define DIGEST_READ_BYTES (4u << 20)

int store_digest(struct store *s, const struct chunk_id *id, struct digest *ret, struct error *err)
{
	_cleanup_(freep) void *buffer = malloc(DIGEST_READ_BYTES);
	struct digest_stream *stream = NULL;
	char name[STORE_NAME_MAX];
	uint64_t bytes = 0;
	int r = buffer ? digest_stream_new(&stream) : -ENOMEM;

	if (r < 0)
		return error_errno(err, r, "cannot compute the SHA-256 of %s", store_describe(s, id, name));
	r = store_size(s, id, &bytes, err);
	for (uint64_t offset = 0; offset < bytes && r == 0;) {
		size_t n = bytes - offset < DIGEST_READ_BYTES ? bytes - offset : DIGEST_READ_BYTES;

		r = store_read(s, id, offset, buffer, n, err);
		if (r == 0 && digest_stream_add(stream, buffer, n) < 0)
			r = error_errno(err, -ENOTSUP, "cannot compute the SHA-256 of %s",
					store_describe(s, id, name));
		offset += n;
	}
	if (r == 0 && digest_stream_finish(stream, ret) < 0)
		r = error_errno(err, -ENOTSUP, "cannot compute the SHA-256 of %s",
				store_describe(s, id, name));
	digest_stream_free(stream);
	return r;
}
