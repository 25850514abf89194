/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Treats arbitrary bytes as the file of a compressed chunk. Input: one byte of options, then the file. Bit 0:
 * the checksum is corrected first, as a hostile writer would do, so that the checks behind it are reached. An
 * accepted file must unpack to a plain chunk of the length that its head gives, and any part of it that is
 * read by itself must be equal. Bit 1: the bytes are one block instead, which must not reach libzstd unless
 * that library takes it for one frame, too.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "dataset/checksum/checksum.h"
#include "dataset/blocks.h"
#include "dataset/compress.h"
#include "dataset/store.h"
#include "lib/zstd_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct one {
	struct store store;
	const unsigned char *file;
	size_t bytes;
};

static int one_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		    struct error *err)
{
	const struct one *o = (const struct one *)(const void *)s;

	(void)id;
	if (offset > o->bytes || bytes > o->bytes - offset)
		return error_set(err, -1, "past the end");
	if (bytes)
		memcpy(buffer, o->file + offset, bytes);
	return 0;
}

static int one_size(struct store *s, const struct chunk_id *id, uint64_t *ret, struct error *err)
{
	(void)id;
	(void)err;
	*ret = ((const struct one *)(const void *)s)->bytes;
	return 0;
}

static void one_describe(const struct store *s, const struct chunk_id *id, char *text, size_t size)
{
	(void)s;
	(void)id;
	if (size)
		*text = '\0';
}

static void one_free(struct store *s)
{
	(void)s;
}

/* Checks reads of parts against `plain`. NULL: the chunk was refused, and the reads only must not crash. */
static void read_parts(const unsigned char *file, size_t bytes, const unsigned char *plain,
		       uint64_t plain_bytes)
{
	static const struct store_ops ops = {
	    .read = one_read, .size = one_size, .describe = one_describe, .free = one_free};
	static const struct chunk_id id;
	struct one one = {.store.ops = &ops, .file = file, .bytes = bytes};
	struct error err = ERROR_INIT;
	struct store *s;
	unsigned char part[1000];

	if (store_plain_open(&one.store, compress_decode, &s, &err) < 0)
		abort();
	for (uint64_t at = 0; at < (plain ? plain_bytes : bytes); at += 77777) {
		uint64_t left = (plain ? plain_bytes : bytes) - at;
		size_t n = left < sizeof(part) ? (size_t)left : sizeof(part);
		int r = store_read(s, &id, at, part, n, &err);

		if (plain && (r < 0 || memcmp(part, plain + at, n) != 0))
			abort();
	}
	store_free(s);
}

static void look_at_frame(const uint8_t *data, size_t bytes)
{
	static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
	uint8_t *frame = malloc(bytes ? bytes : 1), plain[4096];
	struct zstd_scan scan = {.n_head = 0};
	uint64_t content = UINT64_MAX;
	unsigned long long said;
	size_t length;
	int r, by_byte = 0;

	if (!frame)
		return;
	memcpy(frame, data, bytes);
	r = zstd_frame_content(frame, bytes, &content);
	for (size_t i = 0; i < bytes && by_byte == 0; i++)
		by_byte = zstd_scan(&scan, frame + i, 1);
	if (r == 0 && (bytes < 4 || memcmp(frame, magic, 4) != 0 || by_byte < 0 || !zstd_scan_is_end(&scan)))
		abort();
	if (bytes >= 4 && memcmp(frame, magic, 4) == 0) {
		length = ZSTD_findFrameCompressedSize(frame, bytes);
		said = ZSTD_getFrameContentSize(frame, bytes);
		if (!ZSTD_isError(length) &&
		    (r == 0) != (length == bytes && said != ZSTD_CONTENTSIZE_UNKNOWN))
			abort();
		if (!ZSTD_isError(length) && r == 0 && said != content)
			abort();
	}
	if (compress_decode(plain, content < sizeof(plain) ? content : sizeof(plain), frame, bytes) == 0 &&
	    (r < 0 || content > sizeof(plain)))
		abort();
	free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 2) {
		look_at_frame(data + 1, size - 1);
		return 0;
	}
	/* A copy of exactly this size is aligned, and sanitizers notice a read past its end. */
	size_t bytes = size - 1;
	unsigned char *file = malloc(bytes ? bytes : 1);
	struct chunk_header *h = (struct chunk_header *)(void *)file;
	struct chunk_view view;
	struct chunk_blocks blocks;
	void *plain = NULL;
	uint64_t needed = 0;
	struct error err = ERROR_INIT;

	if (!file)
		return 0;
	memcpy(file, data + 1, bytes);
	if ((data[0] & 1) && bytes >= sizeof(*h) && h->payload_offset >= sizeof(*h) &&
	    h->payload_offset <= bytes)
		h->head_xxh3 =
		    checksum_xxh3_gap(file, h->payload_offset, offsetof(struct chunk_header, head_xxh3));
	/* As in the reader's process, which has only a snapshot's word for the lengths. */
	if (bytes >= sizeof(*h) && h->payload_offset <= bytes)
		(void)chunk_blocks_in_unknown(file, h->payload_offset, h->head_xxh3, &blocks);
	if (chunk_parse_head(file, bytes, bytes, "FUZZ", &view, &needed, &err) == 0 &&
	    (view.header->flags & CHUNK_FLAG_COMPRESSED) && view.header->file_bytes <= 16u << 20 &&
	    chunk_make_plain(file, "FUZZ", &plain, NULL, &err) == 0)
		read_parts(file, bytes, plain, view.header->file_bytes);
	else
		read_parts(file, bytes, NULL, 0);
	free(plain);
	free(file);
	return 0;
}
