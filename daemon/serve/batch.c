/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/sandboxed/codec.h"
#include "daemon/cache/decoded.h"
#include "batch_buffers.h"
#include "lib/copy_ahead.h"
#include "lib/error.h"
#include "lib/text.h"

/* Records to prefetch ahead: samples of a batch are scattered over the records, so each access waits for
 * memory. About as many as a processor can have in flight. */
#define RECORDS_AHEAD 8

static uint32_t max_chunks(uint32_t batch, uint64_t n_chunks)
{
	return n_chunks < batch ? (uint32_t)n_chunks : batch;
}

uint64_t batch_bytes(uint32_t batch, uint64_t n_chunks)
{
	return (uint64_t)batch * (sizeof(struct batch_item) + sizeof(uint32_t)) +
	       (uint64_t)max_chunks(batch, n_chunks) * sizeof(uint32_t);
}

int batch_init(struct batch *b, uint32_t batch, uint64_t n_chunks)
{
	b->items = calloc(batch, sizeof(*b->items));
	b->chunks = calloc(max_chunks(batch, n_chunks), sizeof(*b->chunks));
	b->made_bytes = calloc(batch, sizeof(*b->made_bytes));
	return b->items && b->chunks && b->made_bytes ? 0 : -ENOMEM;
}

void batch_free(struct batch *b)
{
	free(b->items);
	free(b->chunks);
	free(b->made_bytes);
}

void batch_fail(struct batch *b, int status, const char *why)
{
	b->status = status;
	snprintf(b->error, sizeof(b->error), "%s; batch %llu of epoch %llu", why,
		 (unsigned long long)b->index, (unsigned long long)b->epoch);
}

static void fail_by_sample(struct batch *b, int status, const char *why, const struct snapshot_sample *s)
{
	size_t n;

	batch_fail(b, status, why);
	n = strlen(b->error);
	snprintf(b->error + n, sizeof(b->error) - n, " needs its sample %.*s", (int)s->path_length, s->path);
}

/* Fails the batch because of an invalid record, found only now: most records of a large snapshot are not read
 * before their samples are needed. */
static void fail_by_number(struct batch *b, const struct cached_dataset *d, uint64_t sample)
{
	char text[sizeof(b->error)];

	snprintf(text, sizeof(text),
		 "%s/" SNAPSHOT_FILE ": record %llu is invalid. Run `dieselctl snapshot %s` to rebuild it",
		 d->path, (unsigned long long)sample, d->path);
	batch_fail(b, -EBADMSG, text);
}

/* Writes one line that names the sample of the item and says what is wrong with it. */
static void batch_describe_item(const struct batch *b, const struct cached_dataset *d, uint32_t item,
				const char *why, char *text, size_t size)
{
	struct snapshot_sample s = {.path = ""};

	(void)snapshot_sample_get(d->snapshot, b->items[item].sample, &s);
	snprintf(text, size, "%s: %.*s: %s", d->path, (int)s.path_length, s.path, why);
}

/* Fails the batch because of one of its samples, which the error names. */
static void batch_fail_by_item(struct batch *b, const struct cached_dataset *d, uint32_t item, int status,
			       const char *why)
{
	char text[sizeof(b->error)];

	batch_describe_item(b, d, item, why, text, sizeof(text));
	batch_fail(b, status, text);
}

void batch_set_samples(struct batch *b, const struct cached_dataset *d, const uint64_t *samples, uint32_t n,
		       uint32_t *stamps, uint32_t stamp)
{
	b->n_items = b->n_all = n;
	b->n_chunks = 0;
	b->bytes = 0;
	b->status = 0;
	b->n_decoded = b->n_damaged = 0;
	b->damage[0] = '\0';
	for (uint32_t i = 0; i < n; i++) {
		struct snapshot_sample s;

		if (i + RECORDS_AHEAD < n)
			snapshot_sample_prefetch(d->snapshot, samples[i + RECORDS_AHEAD]);
		if (snapshot_sample_get(d->snapshot, samples[i], &s) < 0 || s.chunk >= d->info.n_chunks) {
			fail_by_number(b, d, samples[i]);
			return;
		}
		if (s.encoding != CHUNK_ENCODING_RAW || s.bytes != s.stored_bytes ||
		    s.offset + s.bytes > d->chunks[s.chunk].bytes) {
			fail_by_sample(b, -EBADMSG,
				       "this version of dieseld does not support the encoding of a sample",
				       &s);
			return;
		}
		b->items[i] = (struct batch_item){.sample = samples[i],
						  .location = s.offset,
						  .chunk = s.chunk,
						  .bytes = s.bytes,
						  .label = s.class_index};
		b->bytes += s.bytes;
		if (stamps[s.chunk] != stamp) {
			stamps[s.chunk] = stamp;
			b->chunks[b->n_chunks++] = s.chunk;
		}
	}
}

static void fail_by_chunk(struct batch *b, const struct cached_dataset *d, uint32_t chunk)
{
	for (uint32_t i = 0; i < b->n_items; i++) {
		struct snapshot_sample s;

		if (b->items[i].chunk != chunk)
			continue;
		(void)snapshot_sample_get(d->snapshot, b->items[i].sample, &s);
		fail_by_sample(
		    b, d->chunks[chunk].failure,
		    d->chunks[chunk].error ? d->chunks[chunk].error : "dieseld cannot serve a chunk", &s);
		return;
	}
}

static enum batch_wait reading_from(const struct cached_chunk *k)
{
	return k->from == CHUNK_FROM_NODE      ? BATCH_PEERS
	       : k->from == CHUNK_FROM_STAGING ? BATCH_STAGING
					       : BATCH_FETCH;
}

static void wait_for(enum batch_wait *wait, enum batch_wait what)
{
	if (what > *wait)
		*wait = what;
}

/* Returns true if chunks that are only partly in memory have all of the batch's samples. */
static bool has_samples(const struct batch *b, const struct cached_dataset *d)
{
	struct snapshot_chunk meta;
	uint64_t known = UINT64_MAX;

	for (uint32_t i = 0; i < b->n_items; i++) {
		const struct batch_item *item = &b->items[i];
		const struct cached_chunk *k = &d->chunks[item->chunk];

		if (k->state != CHUNK_READY || !k->part)
			continue;
		if (item->chunk != known && snapshot_chunk_get(d->snapshot, item->chunk, &meta) < 0)
			return false;
		known = item->chunk;
		if (!cached_part_has(k->part, item->sample - meta.first_sample))
			return false;
	}
	return true;
}

enum batch_wait batch_check(struct batch *b, struct cached_dataset *d, uint64_t now_ns)
{
	enum batch_wait wait = BATCH_READY;
	bool has_parts = false;

	if (b->status < 0)
		return BATCH_READY;
	for (uint32_t i = 0; i < b->n_chunks; i++) {
		struct cached_chunk *k = &d->chunks[b->chunks[i]];

		switch (k->state) {
		case CHUNK_ABSENT:
		case CHUNK_RESTORED: wait_for(&wait, BATCH_FETCH); break;
		case CHUNK_READING: wait_for(&wait, reading_from(k)); break;
		case CHUNK_VERIFYING: wait_for(&wait, BATCH_VERIFY); break;
		case CHUNK_READY: has_parts = has_parts || k->part; break;
		case CHUNK_BAD:
			if (k->retry_ns && now_ns >= k->retry_ns) {
				k->state = CHUNK_ABSENT;
				d->loads.n_bad--;
				wait_for(&wait, BATCH_FETCH);
				break;
			}
			fail_by_chunk(b, d, b->chunks[i]);
			return BATCH_READY;
		}
	}
	if (has_parts && !has_samples(b, d))
		wait_for(&wait, BATCH_FETCH);
	return wait;
}

void batch_unpin(struct batch *b, struct cached_dataset *d)
{
	if (!b->pinned)
		return;
	for (uint32_t i = 0; i < b->n_chunks; i++)
		cache_unpin(d, b->chunks[i]);
	b->pinned = false;
}

void batch_write(const struct batch *b, uint8_t *buffer, const struct ring_layout *layout,
		 uint32_t item_bytes)
{
	struct ring_item *items = (struct ring_item *)buffer;
	int64_t *labels = (int64_t *)(buffer + layout->labels_offset);
	uint8_t *payload = buffer + layout->payload_offset;
	uint32_t ahead = copy_ahead_distance(item_bytes);

	if (b->status < 0) {
		/* A buffer is at least a page. */
		text_line((char *)buffer, layout->slot_bytes, b->error);
		return;
	}
	for (uint32_t i = 0; i < b->n_items; i++) {
		const struct batch_item *item = &b->items[i];

		items[i] = (struct ring_item){.location = item_bytes ? 0 : item->location,
					      .sample = item->sample,
					      .bytes = item->bytes,
					      .label = item->label};
		labels[i] = item->label;
		if (item_bytes)
			copy_ahead(payload + (size_t)i * item_bytes, item->source, item_bytes,
				   i + ahead < b->n_items ? b->items[i + ahead].source : item->source);
	}
}

/* ---- decoded copies of its samples ---- */

void batch_decoded_grant(struct batch *b, struct cache *c, struct decoded_cache *decoded_cache)
{
	bool any = false;

	for (uint32_t i = b->n_decoded; decoded_cache && b->status == 0 && i < b->n_items; i++)
		any = any || !b->items[i].decoded_copy;
	b->grant = any ? decoded_grant(c, decoded_cache) : NULL;
}

/* ---- decoding: a process of its own (codec.h) fills the buffer, a slice at a time ---- */

struct decode_slice {
	const struct shared_memory *memory[CODEC_MAX_SEGMENTS]; /* memory of chunks and of decoded copies */
	struct codec_segment segments[CODEC_MAX_SEGMENTS];
	uint32_t n;
};

/* Returns the number of the memory in the slice, from 1; adds it if needed. 0: the slice is full. */
static uint32_t number_of(struct decode_slice *s, const struct shared_memory *memory)
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

/* Lays out the items to decode, as far as their chunks and decoded copies fit in a slice. Returns the index
 * after the last one. */
static uint32_t lay_out(const struct batch *b, const struct cached_dataset *d, struct ring_item *items,
			int64_t *labels, struct decode_slice *s)
{
	for (uint32_t i = b->n_decoded; i < b->n_items; i++) {
		const struct batch_item *item = &b->items[i];
		uint32_t number = number_of(s, &d->chunks[item->chunk].segment->memory);
		uint32_t decoded_copy =
		    number > 0 && item->decoded_copy ? number_of(s, &item->decoded_copy->memory) : 0;

		if (number == 0 || (item->decoded_copy && decoded_copy == 0))
			return i;
		items[i] = (struct ring_item){.location = (uint64_t)number << 32 | (uint32_t)item->location,
					      .sample = item->sample,
					      .bytes = item->bytes,
					      .label = item->label};
		labels[i] =
		    item->decoded_copy ? (int64_t)((uint64_t)decoded_copy << 32 | item->decoded_offset) : 0;
	}
	return b->n_items;
}

static void close_segments(const struct decode_slice *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		close(s->segments[i].fd);
}

/* Opens read-only descriptors: an attacker who takes over a decoder must not write into chunks. */
static int open_segments(struct decode_slice *s)
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

/* Writes the item table and the labels of n items. */
static void write_items(const struct batch *b, uint32_t n, uint8_t *slot, const struct ring_layout *layout,
			bool has_views)
{
	struct ring_item *items = (struct ring_item *)slot;
	int64_t *labels = (int64_t *)(slot + layout->labels_offset);

	for (uint32_t i = 0; i < n; i++) {
		const struct batch_item *item = &b->items[i];

		items[i] = (struct ring_item){.location = has_views ? item->location : 0,
					      .sample = item->sample,
					      .bytes = item->bytes,
					      .label = item->label};
		labels[i] = item->label;
	}
}

/* Makes the slot safe for clients: rewrites everything except pixels, because decoders are not trusted.
 * Moves damaged samples that are left out to the end. */
static void finish(struct batch *b, uint8_t *slot, const struct batch_decoder *how)
{
	const struct ring_layout *layout = how->layout;
	const struct recipe *recipe = how->recipe;
	uint64_t item_bytes = recipe_item_bytes(recipe);
	const struct ring_item *items = (const struct ring_item *)slot;
	uint8_t *payload = slot + layout->payload_offset;
	uint32_t n = 0;

	b->n_damaged = 0;
	for (uint32_t i = 0; i < b->n_items; i++) {
		bool damaged = recipe->damage != RECIPE_DAMAGE_ERROR && items[i].bytes == 0;

		b->n_damaged += damaged;
		b->items[i].bytes = damaged ? 0 : how->has_views ? b->items[i].bytes : (uint32_t)item_bytes;
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
	write_items(b, b->n_items, slot, layout, how->has_views);
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

void batch_copy(const struct buffer_batch *from, uint8_t *buffer, const uint8_t *from_buffer,
		const struct ring_layout *layout, const struct recipe *recipe)
{
	memcpy(buffer, from_buffer, from->n_all * sizeof(struct ring_item));
	memcpy(buffer + layout->labels_offset, from_buffer + layout->labels_offset,
	       from->n_all * sizeof(int64_t));
	/* In one call, because large copies bypass the CPU caches. */
	memcpy(buffer + layout->payload_offset, from_buffer + layout->payload_offset,
	       from->n_items * recipe_item_bytes(recipe));
}

/* Takes the sizes of new decoded copies from the decoder's result. */
static void take_decoded(struct batch *b, const struct codec_work *work, const struct codec_result *result)
{
	for (uint32_t i = work->first; i < result->next && i < work->end; i++)
		b->items[i].made_bytes = b->made_bytes[i - work->first];
	b->grant_full = result->full;
	memcpy(b->ways, result->ways, sizeof(b->ways));
	b->prospect = result->prospect;
}

void batch_decode(struct batch *b, const struct batch_decoder *how, struct batch_decoded *ret)
{
	const struct ring_layout *layout = how->layout;
	uint32_t item_bytes = (uint32_t)recipe_item_bytes(how->recipe);
	uint8_t *ours = how->memory;
	struct codec_work work = {.pool = b->pool,
				  .task = b->task,
				  .epoch = b->epoch,
				  .slot = how->buffer,
				  .first = b->n_decoded,
				  .grant = {.fd = -1},
				  .made_bytes = b->made_bytes};
	struct codec_result result = {.error = ERROR_INIT};
	struct decode_slice slice = {.n = 0};
	int64_t *labels = (int64_t *)(ours + layout->labels_offset);
	int r;

	*ret = (struct batch_decoded){.sandbox = 0};
	memset(b->ways, 0, sizeof(b->ways));
	b->prospect = (struct codec_prospect){0};
	b->grant_full = false;
	if (b->status < 0) {
		batch_write(b, ours, layout, item_bytes);
		b->n_decoded = b->n_items;
		return;
	}
	if (b->grant) {
		work.grant =
		    (struct codec_segment){.fd = b->grant->memory.fd, .bytes = b->grant->memory.bytes};
		work.grant_offset = b->grant->used_bytes;
	}
	work.end = lay_out(b, how->dataset, (struct ring_item *)ours, labels, &slice);
	r = open_segments(&slice);
	if (r == 0) {
		work.segments = slice.segments;
		work.n_segments = slice.n;
		r = codecs_decode(how->codecs, &work, &result);
		close_segments(&slice, slice.n);
		count(&work, &result, r, ret);
		take_decoded(b, &work, &result);
	} else {
		error_errno(&result.error, r, "dieseld cannot share a chunk in memory with a decoder");
		result.item = work.first;
	}
	if (r == 0 && result.n_damaged && !b->damage[0])
		batch_describe_item(b, how->dataset, result.item, result.error.text, b->damage,
				    sizeof(b->damage));
	b->n_decoded = result.next;
	if (r < 0) {
		batch_fail_by_item(b, how->dataset, result.item, r, result.error.text);
		batch_write(b, ours, layout, item_bytes);
		b->n_decoded = b->n_items;
	} else if (b->n_decoded >= b->n_items) {
		finish(b, ours, how);
		b->n_decoded = b->n_items;
	}
}
