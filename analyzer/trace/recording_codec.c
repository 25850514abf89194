/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "lib/cleanup.h"
#include "lib/zstd_frame.h"

#define MAGIC        "DLE1"
#define HEADER_BYTES 8
#define ZSTD_LEVEL   3
#define VARINT_MAX   10   /* bytes for 64 bits, 7 bits per byte */
#define N_SLOTS      4096 /* slots for predecessors; a collision costs only bytes */
#define N_COLUMNS    ((size_t)10)

enum column {
	COLUMN_END,      /* difference from the previous event */
	COLUMN_DURATION, /* end_ns - start_ns */
	COLUMN_TID,
	COLUMN_TGID, /* difference from tid */
	COLUMN_KIND, /* type, flags */
	COLUMN_CPU,
	COLUMN_PAYLOAD, /* four words */
};

struct recording_codec {
	ZSTD_CCtx *compressor;
	ZSTD_DCtx *decompressor;
	uint8_t *columns[N_COLUMNS]; /* when encoding: space for RECORDING_CODEC_EVENTS_MAX varints each */
	size_t lengths[N_COLUMNS];
	uint8_t *plain, *block;
	size_t plain_size, block_size;
	struct event slots[N_SLOTS]; /* the last event of a thread and type */
};

struct recording_codec *recording_codec_free(struct recording_codec *codec)
{
	if (!codec)
		return NULL;
	ZSTD_freeCCtx(codec->compressor);
	ZSTD_freeDCtx(codec->decompressor);
	for (size_t i = 0; i < N_COLUMNS; i++)
		free(codec->columns[i]);
	free(codec->plain);
	free(codec->block);
	free(codec);
	return NULL;
}

struct recording_codec *recording_codec_new(void)
{
	struct recording_codec *codec = calloc(1, sizeof(*codec));

	if (!codec)
		return NULL;
	codec->compressor = ZSTD_createCCtx();
	codec->decompressor = ZSTD_createDCtx();
	if (!codec->compressor || !codec->decompressor)
		return recording_codec_free(codec);
	ZSTD_CCtx_setParameter(codec->compressor, ZSTD_c_compressionLevel, ZSTD_LEVEL);
	ZSTD_CCtx_setParameter(codec->compressor, ZSTD_c_checksumFlag, 1);
	return codec;
}

static int reserve(uint8_t **buffer, size_t *size, size_t wanted)
{
	uint8_t *grown;

	if (*size >= wanted)
		return 0;
	grown = realloc(*buffer, wanted);
	if (!grown)
		return -ENOMEM;
	*buffer = grown;
	*size = wanted;
	return 0;
}

/* Maps small negative numbers to small positive ones. */
static uint64_t zigzag(uint64_t difference)
{
	return (difference << 1) ^ -(difference >> 63);
}

static uint64_t unzigzag(uint64_t value)
{
	return (value >> 1) ^ -(value & 1);
}

static void put(struct recording_codec *codec, unsigned column, uint64_t difference)
{
	uint8_t *at = codec->columns[column] + codec->lengths[column];
	uint64_t value = zigzag(difference);
	size_t n = 0;

	for (; value >= 0x80; value >>= 7)
		at[n++] = (uint8_t)(value | 0x80);
	at[n++] = (uint8_t)value;
	codec->lengths[column] += n;
}

/* Returns the last event of the same thread and type, or zeros. Encoder and decoder find the same event. */
static struct event *slot_of(struct recording_codec *codec, uint32_t tid, uint16_t type)
{
	return &codec->slots[(tid * 31 + type) % N_SLOTS];
}

/* Predicts a payload word: for example, a thread's CPU time grew by the time that it ran since its last
 * interval off the CPU. */
static uint64_t expected(const struct event *event, const struct event *last, unsigned word)
{
	if (event->type != EVENT_SWITCH)
		return last->payload[word];
	if (word == 0)
		return event->start_ns; /* waking */
	if (word == 1 && last->type == EVENT_SWITCH && last->tid == event->tid)
		return last->sw.exec_ns + (event->start_ns - last->end_ns);
	return last->payload[word];
}

static void encode_events(struct recording_codec *codec, const struct event *events, size_t n_events)
{
	uint64_t last_ns = 0;

	memset(codec->slots, 0, sizeof(codec->slots));
	memset(codec->lengths, 0, sizeof(codec->lengths));
	for (size_t i = 0; i < n_events; i++) {
		const struct event *event = &events[i];
		struct event *last = slot_of(codec, event->tid, event->type);

		put(codec, COLUMN_END, event->end_ns - last_ns);
		put(codec, COLUMN_DURATION, event->end_ns - event->start_ns);
		put(codec, COLUMN_TID, event->tid);
		put(codec, COLUMN_TGID, (uint64_t)event->tgid - event->tid);
		put(codec, COLUMN_KIND, event->type | (uint64_t)event->flags << 16);
		put(codec, COLUMN_CPU, event->cpu);
		for (unsigned word = 0; word < 4; word++)
			put(codec, COLUMN_PAYLOAD + word, event->payload[word] - expected(event, last, word));
		last_ns = event->end_ns;
		*last = *event;
	}
}

static void put_u32(uint8_t *at, size_t value)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> (8 * i));
}

static size_t get_u32(const uint8_t *at)
{
	return at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

static int buffers_make(struct recording_codec *codec)
{
	for (size_t i = 0; i < N_COLUMNS; i++) {
		/* Only pages that are used become resident. */
		if (!codec->columns[i])
			codec->columns[i] = malloc((size_t)RECORDING_CODEC_EVENTS_MAX * VARINT_MAX);
		if (!codec->columns[i])
			return -ENOMEM;
	}
	return 0;
}

int recording_codec_encode(struct recording_codec *codec, const struct event *events, size_t n_events,
			   const void **ret_block, size_t *ret_size)
{
	size_t plain_bytes = 4 * N_COLUMNS, at = 4 * N_COLUMNS, n;

	if (n_events > RECORDING_CODEC_EVENTS_MAX)
		return -EINVAL;
	if (buffers_make(codec) < 0)
		return -ENOMEM;
	encode_events(codec, events, n_events);
	for (size_t i = 0; i < N_COLUMNS; i++)
		plain_bytes += codec->lengths[i];
	if (reserve(&codec->plain, &codec->plain_size, plain_bytes) < 0 ||
	    reserve(&codec->block, &codec->block_size, HEADER_BYTES + ZSTD_compressBound(plain_bytes)) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < N_COLUMNS; i++) {
		put_u32(codec->plain + 4 * i, codec->lengths[i]);
		memcpy(codec->plain + at, codec->columns[i], codec->lengths[i]);
		at += codec->lengths[i];
	}
	n = ZSTD_compress2(codec->compressor, codec->block + HEADER_BYTES, codec->block_size - HEADER_BYTES,
			   codec->plain, plain_bytes);
	if (ZSTD_isError(n))
		return -ENOMEM;
	memcpy(codec->block, MAGIC, 4);
	put_u32(codec->block + 4, n_events);
	*ret_block = codec->block;
	*ret_size = HEADER_BYTES + n;
	return 0;
}

/* A column that is being read. */
struct reader {
	const uint8_t *at, *end;
};

static int get(struct reader *reader, uint64_t *ret_difference)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		if (reader->at == reader->end)
			return -EBADMSG;
		byte = *reader->at++;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret_difference = unzigzag(value);
			return 0;
		}
	}
	return -EBADMSG;
}

static int decode_event(struct recording_codec *codec, struct reader readers[N_COLUMNS], uint64_t last_ns,
			struct event *event)
{
	uint64_t values[N_COLUMNS];
	struct event *last;

	for (size_t i = 0; i < N_COLUMNS; i++)
		if (get(&readers[i], &values[i]) < 0)
			return -EBADMSG;
	*event = (struct event){
	    .end_ns = last_ns + values[COLUMN_END],
	    .tid = (uint32_t)values[COLUMN_TID],
	    .tgid = (uint32_t)(values[COLUMN_TID] + values[COLUMN_TGID]),
	    .type = (uint16_t)values[COLUMN_KIND],
	    .flags = (uint16_t)(values[COLUMN_KIND] >> 16),
	    .cpu = (uint32_t)values[COLUMN_CPU],
	};
	event->start_ns = event->end_ns - values[COLUMN_DURATION];
	last = slot_of(codec, event->tid, event->type);
	for (unsigned word = 0; word < 4; word++)
		event->payload[word] = expected(event, last, word) + values[COLUMN_PAYLOAD + word];
	*last = *event;
	return 0;
}

static int columns_open(const uint8_t *plain, size_t size, struct reader readers[N_COLUMNS])
{
	size_t at = 4 * N_COLUMNS;

	if (size < at)
		return -EBADMSG;
	for (size_t i = 0; i < N_COLUMNS; i++) {
		size_t length = get_u32(plain + 4 * i);

		if (length > size - at)
			return -EBADMSG;
		readers[i] = (struct reader){plain + at, plain + at + length};
		at += length;
	}
	return at == size ? 0 : -EBADMSG;
}

/* Decompresses the zstd frame into codec->plain. Returns its size, or a negative errno. */
static ssize_t decompress(struct recording_codec *codec, const uint8_t *frame, size_t size, size_t n_events)
{
	uint64_t bytes;
	size_t n;

	if (zstd_frame_content(frame, size, &bytes) < 0 ||
	    bytes > 4 * N_COLUMNS + n_events * N_COLUMNS * VARINT_MAX)
		return -EBADMSG;
	if (reserve(&codec->plain, &codec->plain_size, (size_t)bytes + 1) < 0)
		return -ENOMEM;
	n = ZSTD_decompressDCtx(codec->decompressor, codec->plain, codec->plain_size, frame, size);
	return ZSTD_isError(n) || n != bytes ? -EBADMSG : (ssize_t)n;
}

int recording_codec_decode(struct recording_codec *codec, const void *block, size_t size,
			   struct event **ret_events, size_t *ret_n)
{
	_cleanup_(freep) struct event *events = NULL;
	struct reader readers[N_COLUMNS];
	uint64_t last_ns = 0;
	size_t n_events;
	ssize_t n;

	if (size < HEADER_BYTES || memcmp(block, MAGIC, 4) != 0)
		return -EBADMSG;
	n_events = get_u32((const uint8_t *)block + 4);
	if (!n_events || n_events > RECORDING_CODEC_EVENTS_MAX)
		return -EBADMSG;
	n = decompress(codec, (const uint8_t *)block + HEADER_BYTES, size - HEADER_BYTES, n_events);
	if (n < 0)
		return (int)n;
	if (columns_open(codec->plain, (size_t)n, readers) < 0)
		return -EBADMSG;
	events = calloc(n_events, sizeof(*events));
	if (!events)
		return -ENOMEM;
	memset(codec->slots, 0, sizeof(codec->slots));
	for (size_t i = 0; i < n_events; i++) {
		if (decode_event(codec, readers, last_ns, &events[i]) < 0)
			return -EBADMSG;
		last_ns = events[i].end_ns;
	}
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (readers[i].at != readers[i].end) /* the number of events does not match the header */
			return -EBADMSG;
	*ret_events = steal_pointer(events);
	*ret_n = n_events;
	return 0;
}
