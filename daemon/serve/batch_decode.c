/* SPDX-License-Identifier: Apache-2.0 */
/* Batches whose samples are decoded: the slot is filled by a process of its own (codec.h), a slice at a time.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "batch.h"
#include "daemon/apart/codec.h"
#include "daemon/cache/forms.h"
#include "frames.h"
#include "lib/error.h"

struct slice {
	const struct shared_memory *memory[CODEC_MAX_SEGMENTS]; /* of chunks and of forms */
	struct codec_segment segments[CODEC_MAX_SEGMENTS];
	uint32_t n;
};

/* The number of the memory in the slice, from 1; 0: the slice is full. */
static uint32_t number_of(struct slice *s, const struct shared_memory *memory)
{
	for (uint32_t i = s->n; i > 0; i--) {
		if (s->memory[i - 1] == memory)
			return i;
	}
	if (s->n == CODEC_MAX_SEGMENTS)
		return 0;
	s->memory[s->n++] = memory;
	return s->n;
}

/* Lays out what is to be decoded, as far as its chunks and forms fit in a slice. Returns the item behind the
 * last one. */
static uint32_t lay_out(const struct batch *b, const struct cached_dataset *d, struct ring_item *items,
			int64_t *labels, struct slice *s)
{
	for (uint32_t i = b->n_decoded; i < b->n_items; i++) {
		const struct batch_item *item = &b->items[i];
		uint32_t number = number_of(s, &d->chunks[item->chunk].segment->memory);
		uint32_t form = number > 0 && item->form ? number_of(s, &item->form->memory) : 0;

		if (number == 0 || (item->form && form == 0))
			return i;
		items[i] = (struct ring_item){.location = (uint64_t)number << 32 | (uint32_t)item->location,
					      .sample = item->sample,
					      .bytes = item->bytes,
					      .label = item->label};
		labels[i] = item->form ? (int64_t)((uint64_t)form << 32 | item->form_offset) : 0;
	}
	return b->n_items;
}

static void close_segments(const struct slice *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		close(s->segments[i].fd);
}

/* Descriptors for reading: who takes over a decoder must not write into chunks. */
static int open_segments(struct slice *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		const struct shared_memory *m = s->memory[i];
		int r = shared_memory_reader(m->fd, &s->segments[i].fd);

		if (r < 0) {
			close_segments(s, i);
			return r;
		}
		s->segments[i].bytes = m->bytes;
	}
	return 0;
}

/* What the slot says of n items. */
static void write_items(const struct batch *b, uint32_t n, uint8_t *slot, const struct ring_layout *layout)
{
	struct ring_item *items = (struct ring_item *)slot;
	int64_t *labels = (int64_t *)(slot + layout->labels_offset);

	for (uint32_t i = 0; i < n; i++) {
		const struct batch_item *item = &b->items[i];

		items[i] =
		    (struct ring_item){.sample = item->sample, .bytes = item->bytes, .label = item->label};
		labels[i] = item->label;
	}
}

/* The slot as clients may see it: what the decoder wrote there besides pixels is not believed. Damaged
 * samples that are left out move behind the others. */
static void finish(struct batch *b, uint8_t *slot, const struct ring_layout *layout,
		   const struct recipe *recipe)
{
	uint64_t item_bytes = recipe_item_bytes(recipe);
	const struct ring_item *items = (const struct ring_item *)slot;
	uint8_t *payload = slot + layout->payload_offset;
	uint32_t n = 0;

	b->n_damaged = 0;
	for (uint32_t i = 0; i < b->n_items; i++) {
		bool damaged = recipe->damage != RECIPE_DAMAGE_ERROR && items[i].bytes == 0;

		b->n_damaged += damaged;
		b->items[i].bytes = damaged ? 0 : (uint32_t)item_bytes;
		if (damaged && recipe->damage == RECIPE_DAMAGE_SKIP)
			continue;
		if (n < i) {
			struct batch_item item = b->items[i];

			b->items[i] = b->items[n];
			b->items[n] = item;
			memmove(payload + n * item_bytes, payload + i * item_bytes, item_bytes);
		}
		n++;
	}
	write_items(b, b->n_items, slot, layout);
	b->n_items = n;
}

static void count(const struct codec_work *work, const struct codec_result *result, int status,
		  struct batch_decoded *ret)
{
	uint32_t end = status < 0 ? result->item : result->next,
		 n = end > work->first ? end - work->first : 0;
	uint32_t n_damaged = status < 0 ? 0 : result->n_damaged;

	ret->counted = (struct decode_counters){.samples = n > n_damaged ? n - n_damaged : 0,
						.damaged = result->n_damaged,
						.cpu_ns = result->cpu_ns,
						.replaced = result->n_replaced};
	ret->sandbox = result->sandbox;
}

void batch_adopt(struct batch *b, const struct frame_batch *from)
{
	b->n_items = b->n_decoded = from->n_items;
	b->n_damaged = from->n_damaged;
}

void batch_copy(const struct frame_batch *from, uint8_t *frame, const uint8_t *from_frame,
		const struct ring_layout *layout, const struct recipe *recipe)
{
	memcpy(frame, from_frame, from->n_all * sizeof(struct ring_item));
	memcpy(frame + layout->labels_offset, from_frame + layout->labels_offset,
	       from->n_all * sizeof(int64_t));
	/* At once, because what is large goes past the caches. */
	memcpy(frame + layout->payload_offset, from_frame + layout->payload_offset,
	       from->n_items * recipe_item_bytes(recipe));
}

/* What the decoder says of forms. */
static void take_forms(struct batch *b, const struct codec_work *work, const struct codec_result *result)
{
	for (uint32_t i = work->first; i < result->next && i < work->end; i++)
		b->items[i].made_bytes = b->made_bytes[i - work->first];
	b->grant_full = result->full;
	memcpy(b->ways, result->ways, sizeof(b->ways));
	b->prospect = result->prospect;
}

void batch_decode(struct batch *b, const struct cached_dataset *d, struct codecs *codecs,
		  const struct recipe *recipe, uint8_t *frames, uint32_t frame,
		  const struct ring_layout *layout, struct batch_decoded *ret)
{
	uint8_t *ours = frames + (size_t)frame * layout->slot_bytes;
	struct codec_work work = {.pool = b->pool,
				  .task = b->task,
				  .epoch = b->epoch,
				  .slot = frame,
				  .first = b->n_decoded,
				  .grant = {.fd = -1},
				  .made_bytes = b->made_bytes};
	struct codec_result result = {.error = ERROR_INIT};
	struct slice slice = {.n = 0};
	int64_t *labels = (int64_t *)(ours + layout->labels_offset);
	int r;

	*ret = (struct batch_decoded){.sandbox = 0};
	memset(b->ways, 0, sizeof(b->ways));
	b->prospect = (struct codec_prospect){0};
	b->grant_full = false;
	if (b->status < 0) {
		batch_write(b, ours, layout, (uint32_t)recipe_item_bytes(recipe));
		b->n_decoded = b->n_items;
		return;
	}
	if (b->grant) {
		work.grant =
		    (struct codec_segment){.fd = b->grant->memory.fd, .bytes = b->grant->memory.bytes};
		work.grant_offset = b->grant->used_bytes;
	}
	work.end = lay_out(b, d, (struct ring_item *)ours, labels, &slice);
	r = open_segments(&slice);
	if (r == 0) {
		work.segments = slice.segments;
		work.n_segments = slice.n;
		r = codecs_decode(codecs, &work, &result);
		close_segments(&slice, slice.n);
		count(&work, &result, r, ret);
		take_forms(b, &work, &result);
	} else {
		error_errno(&result.error, r, "dieseld cannot open a chunk in memory for a decoder");
		result.item = work.first;
	}
	if (r == 0 && result.n_damaged && !b->damage[0])
		batch_describe_item(b, d, result.item, result.error.text, b->damage, sizeof(b->damage));
	b->n_decoded = result.next;
	if (r < 0) {
		batch_fail_by_item(b, d, result.item, r, result.error.text);
		batch_write(b, ours, layout, (uint32_t)recipe_item_bytes(recipe));
		b->n_decoded = b->n_items;
	} else if (b->n_decoded >= b->n_items) {
		finish(b, ours, layout, recipe);
		b->n_decoded = b->n_items;
	}
}
