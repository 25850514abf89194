/* SPDX-License-Identifier: Apache-2.0 */
#include "section_writer.h"

#include "lib/fd_io.h"

#define BLOCK_BYTES (1u << 20)

int section_begin(struct section_writer *w, int fd, uint64_t offset)
{
	*w = (struct section_writer){
	    .fd = fd, .offset = (offset + SNAPSHOT_ALIGN - 1) / SNAPSHOT_ALIGN * SNAPSHOT_ALIGN};
	return checksum_stream_new(&w->sum);
}

static int flush(struct section_writer *w)
{
	int r = fd_write_at(w->fd, w->block.data, w->block.bytes, w->offset + w->bytes - w->block.bytes);

	checksum_stream_add(w->sum, w->block.data, w->block.bytes);
	w->block.bytes = 0;
	return r;
}

int section_add(struct section_writer *w, const void *data, size_t bytes)
{
	int r = buffer_append(&w->block, data, bytes);

	if (r < 0)
		return r;
	w->bytes += bytes;
	return w->block.bytes >= BLOCK_BYTES ? flush(w) : 0;
}

int section_end(struct section_writer *w, struct snapshot_extent *ret)
{
	int r = w->block.bytes ? flush(w) : 0;

	if (r < 0)
		return r;
	*ret = (struct snapshot_extent){
	    .offset = w->offset, .bytes = w->bytes, .xxh3 = checksum_stream_xxh3(w->sum)};
	return 0;
}

void section_free(struct section_writer *w)
{
	buffer_free(&w->block);
	checksum_stream_free(w->sum);
	w->sum = NULL;
}
