/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of client/share.h. */
#include "client/share.h"

#include <errno.h>
#include <sys/mman.h>

#include "dataset.h"
#include "session.h"

int diesel_session_memory(const struct diesel_session *session, struct diesel_memory *ret, int *ret_fd)
{
	const struct attachment *a = session->attachment;

	if (!a)
		return -ENOTCONN;
	*ret = (struct diesel_memory){.life = a->life,
				      .n_buffers = a->n_buffers,
				      .batch = a->batch,
				      .item_bytes = a->item_bytes,
				      .has_views = a->has_views};
	*ret_fd = a->batch_buffers_fd;
	return 0;
}

int diesel_session_map_pinnable(const struct diesel_session *session, struct diesel_pinnable *ret)
{
	const struct attachment *a = session->attachment;
	uint64_t bytes;
	void *p;

	if (!a)
		return -ENOTCONN;
	if (a->n_buffers != a->n_slots)
		return -EBUSY;
	bytes = a->n_buffers * a->layout.slot_bytes;
	p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, a->batch_buffers_fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	*ret = (struct diesel_pinnable){.life = a->life, .data = p, .bytes = bytes, .buffers = a->buffers};
	return 0;
}

void diesel_pinnable_unmap(const uint8_t *data, uint64_t bytes)
{
	if (data)
		munmap((void *)data, bytes);
}

int diesel_session_segment(struct diesel_session *session, uint32_t segment, int *ret_fd, uint64_t *ret_bytes)
{
	struct error err = ERROR_INIT;
	int r;

	if (!session->attachment)
		return -ENOTCONN;
	r = attachment_segment_fd(session->attachment, segment, ret_fd, ret_bytes, &err);
	return r < 0 ? report_error(&err, r, session->error, sizeof(session->error)) : 0;
}

uint64_t diesel_batch_life(const void *lease)
{
	return ((const struct lease *)lease)->attachment->life;
}

uint32_t diesel_batch_buffer(const void *lease)
{
	return ((const struct lease *)lease)->buffer;
}

uint32_t diesel_batch_segments(const struct diesel_batch *batch, uint32_t *ret)
{
	const struct lease *lease = batch->lease;
	struct attachment *a = lease->attachment;
	const struct ring_item *items;
	uint32_t stamp, n = 0;

	if (!a->has_views)
		return 0;
	items = (const struct ring_item *)(a->buffers + lease->buffer * a->layout.slot_bytes);
	stamp = ++a->segments.stamp;
	for (uint32_t i = 0; i < batch->n_items; i++) {
		uint32_t segment = (uint32_t)(items[i].location >> 32);
		struct segment_map *map = segment_table_find(&a->segments, segment);

		if (map && map->stamp != stamp) {
			map->stamp = stamp;
			ret[n++] = segment;
		}
	}
	return n;
}

void diesel_session_forget(struct diesel_session *session)
{
	if (session->attachment)
		attachment_forget(session->attachment);
}
