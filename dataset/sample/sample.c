/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/sample.h"

#include <errno.h>

#include "dataset/checksum/checksum.h"
#include "lib/text.h"

int sample_read(const struct snapshot *snapshot, struct store *store, const struct snapshot_sample *sample,
		void *buffer, size_t size, struct error *err)
{
	struct snapshot_chunk chunk;
	char name[STORE_NAME_MAX], path[160];
	int r = snapshot_chunk_get(snapshot, sample->chunk, &chunk);

	if (r < 0 || sample->encoding != CHUNK_ENCODING_RAW || size < sample->stored_bytes)
		return error_errno(err, -EINVAL, "cannot read sample '%s'",
				   text_printable(path, sizeof(path), sample->path, sample->path_length));
	r = store_read(store, &chunk.id, sample->offset, buffer, sample->stored_bytes, err);
	if (r < 0)
		return r;
	if (!checksum_matches(sample->xxh3, chunk.is_external, buffer, sample->stored_bytes))
		return error_set(err, -EBADMSG, "%s: sample '%s' at byte %llu is damaged (checksum mismatch)",
				 store_describe(store, &chunk.id, name),
				 text_printable(path, sizeof(path), sample->path, sample->path_length),
				 (unsigned long long)sample->offset);
	return 0;
}
