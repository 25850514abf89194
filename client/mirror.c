/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of client/share.h: batches of the trainer's session. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/protocol.h"
#include "client/ring.h"
#include "client/share.h"
#include "lib/huge_pages.h"
#include "private_copies.h"
#include "segments.h"

struct diesel_mirror {
	struct diesel_memory memory;
	struct ring_layout layout;
	uint8_t *buffers; /* private copy-on-write, as in the trainer */
	struct diesel_item *items;
	struct segment_table segments;
};

int diesel_mirror_open(const struct diesel_memory *memory, int fd, struct diesel_mirror **ret)
{
	struct diesel_mirror *m;
	struct stat st;
	uint64_t bytes;
	void *p;

	if (memory->n_buffers > RING_MAX_FRAMES || memory->batch > WIRE_BATCH_MAX)
		return -EPROTO;
	if (fstat(fd, &st) < 0)
		return -errno;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->memory = *memory;
	m->layout = ring_layout(memory->batch, memory->item_bytes);
	bytes = memory->n_buffers * m->layout.slot_bytes;
	m->items = calloc((size_t)memory->batch + 1, sizeof(*m->items));
	if (!m->items || (uint64_t)st.st_size < bytes) {
		int r = m->items ? -EPROTO : -ENOMEM;

		diesel_mirror_close(m);
		return r;
	}
	p = huge_map(fd, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
	if (p == MAP_FAILED) {
		int r = -errno;

		diesel_mirror_close(m);
		return r;
	}
	m->buffers = p;
	*ret = m;
	return 0;
}

void diesel_mirror_close(struct diesel_mirror *m)
{
	if (!m)
		return;
	if (m->buffers)
		munmap(m->buffers, m->memory.n_buffers * m->layout.slot_bytes);
	segment_table_free(&m->segments);
	free(m->items);
	free(m);
}

int diesel_mirror_segment(struct diesel_mirror *m, uint32_t segment, int fd, uint64_t bytes)
{
	const struct segment_map *map;

	return segment_table_map(&m->segments, segment, fd, bytes, &map);
}

static int fill_items(struct diesel_mirror *m, const struct ring_item *in, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t segment = (uint32_t)(in[i].location >> 32), offset = (uint32_t)in[i].location;
		const struct segment_map *map = segment_table_find(&m->segments, segment);

		if (!map || (uint64_t)offset + in[i].bytes > map->bytes)
			return -EPROTO;
		m->items[i] = (struct diesel_item){.data = map->data + offset,
						   .sample = in[i].sample,
						   .bytes = in[i].bytes,
						   .label = in[i].label};
	}
	return 0;
}

int diesel_mirror_batch(struct diesel_mirror *m, uint32_t buffer, uint32_t n_items, struct diesel_batch *ret)
{
	uint8_t *at;

	if (buffer >= m->memory.n_buffers || n_items > m->memory.batch)
		return -EPROTO;
	at = m->buffers + buffer * m->layout.slot_bytes;
	*ret = (struct diesel_batch){.n_items = n_items,
				     .item_bytes = m->memory.item_bytes,
				     .items = m->items,
				     .labels = (const int64_t *)(at + m->layout.labels_offset)};
	if (m->memory.item_bytes)
		ret->packed = at + m->layout.payload_offset;
	if (m->memory.has_views)
		return fill_items(m, (const struct ring_item *)at, n_items);
	ret->items = (const struct diesel_item *)at;
	return 0;
}

void diesel_mirror_release(struct diesel_mirror *m, uint32_t buffer)
{
	if (buffer < m->memory.n_buffers)
		private_copies_drop(m->buffers + buffer * m->layout.slot_bytes, m->layout.slot_bytes);
}
