/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_rewrite.h"

#include "dataset/chunk.h"
#include "image/jpeg_restarts.h"
#include "lib/cleanup.h"

/* A file that has the largest size that a sample may have stays as it is. */
int ctl_add_restarts(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_note)
{
	_cleanup_(freep) void *made = NULL;
	size_t made_bytes = 0;
	int r = jpeg_restarts_add(data, bytes, &made, &made_bytes, ret_note);

	if (made_bytes > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(ret_note, JPEG_RESTARTS_KEPT, "it would have more than 1 GiB");
	if (made) {
		*ret = steal_pointer(made);
		*ret_bytes = made_bytes;
	}
	return r;
}
