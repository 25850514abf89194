/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>
#include <stdio.h>

#include "dataset/checksum/checksum.h"
#include "dataset/blocks.h"
#include "dataset/chunk_id.h"
#include "dataset/compress.h"
#include "client/elsewhere/zstd_decode.h"
#include "dataset/store.h"
#include "lib/container_of.h"

#define N_SAMPLES 40u

static const struct chunk_id id = {.bytes = {0, 6, 1, 2, 3, 4, 5, 9, 9, 9, 9, 7, 7, 7, 0, 1}};

/* Fills a sample. Every third sample is noise. */
static void fill(uint32_t sample, unsigned char *data, size_t bytes)
{
	uint32_t state = sample * 2654435761u + 1;

	for (size_t i = 0; i < bytes; i++) {
		state = state * 1664525u + 1013904223u;
		data[i] =
		    sample % 3 == 0 ? (unsigned char)(state >> 24) : (unsigned char)("abcdefgh"[state >> 30]);
	}
}

static size_t bytes_of(uint32_t sample)
{
	return sample * 1500 + 1;
}

static struct image make(int level, struct image *ret_plain)
{
	struct iovec parts[2], plain[2];
	struct chunk_builder *b;
	unsigned char *data = malloc(bytes_of(N_SAMPLES));

	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_compress(b, level);
	chunk_builder_reset(b, 0);
	for (uint32_t i = 0; i < N_SAMPLES; i++) {
		char path[64];

		snprintf(path, sizeof(path), "class%u/%u", i % 3, i);
		fill(i, data, bytes_of(i));
		struct chunk_sample sample = {.path = path,
					      .path_length = strlen(path),
					      .data = data,
					      .bytes = bytes_of(i),
					      .mode = 0100644,
					      .mtime_ns = i};

		assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
	}
	assert_int_equal(chunk_builder_finish(b, &id, 1, parts, NULL), 0);
	chunk_builder_plain(b, plain);
	struct image image = image_join(parts);
	if (ret_plain)
		*ret_plain = image_join(plain);
	chunk_builder_free(b);
	free(data);
	return image;
}

static struct chunk_header *header_of(const struct image *image)
{
	return (struct chunk_header *)image->data;
}

static void sign(struct image *image)
{
	struct chunk_header *h = header_of(image);

	h->head_xxh3 =
	    checksum_xxh3_gap(image->data, h->payload_offset, offsetof(struct chunk_header, head_xxh3));
}

static void check_samples(const struct chunk_view *view, const unsigned char *plain)
{
	unsigned char *data = malloc(bytes_of(N_SAMPLES));
	struct error err = ERROR_INIT;

	assert_int_equal(view->header->n_records, N_SAMPLES);
	for (uint32_t i = 0; i < N_SAMPLES; i++) {
		const struct chunk_record *r = &view->records[i];

		fill(i, data, bytes_of(i));
		assert_int_equal(r->bytes, bytes_of(i));
		assert_int_equal(r->stored_bytes, bytes_of(i));
		assert_memory_equal(plain + r->offset, data, bytes_of(i));
		assert_int_equal(chunk_verify_record(view, i, plain + r->offset, "CHUNK", &err), 0);
	}
	free(data);
}

TEST(blocks_unpack_as_packed)
{
	for (int level = COMPRESS_LEVEL_MIN; level <= COMPRESS_LEVEL_MAX; level += 6) {
		struct image plain, image = make(level, &plain);
		struct chunk_blocks blocks;
		struct chunk_view view;
		struct error err = ERROR_INIT;
		void *made;
		uint32_t n_stored = 0;

		if (image_parse(&image, &view, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(view.header->flags, CHUNK_FLAG_COMPRESSED);
		assert_int_equal(view.header->level, level);
		assert_int_equal(view.header->stored_bytes, image.bytes);
		assert_int_equal(view.header->file_bytes, plain.bytes);
		assert_true(image.bytes < plain.bytes);
		assert_int_equal(chunk_blocks_in_head(view.header, &blocks), 0);
		for (uint32_t i = 0; i < blocks.n; i++)
			n_stored += chunk_block_stored(&blocks, i) == chunk_block_plain(&blocks, i);
		assert_true(n_stored < blocks.n);
		assert_int_equal(chunk_make_plain(image.data, "CHUNK", &made, NULL, &err), 0);
		assert_memory_equal(made, plain.data, plain.bytes);
		/* Each kind of chunk is accepted only as its own kind. */
		assert_int_equal(chunk_parse_plain(made, plain.bytes, "CHUNK", &view, &err), 0);
		check_samples(&view, made);
		assert_int_equal(image_parse(&plain, &view, &err), -EBADMSG);
		assert_int_equal(chunk_parse_plain(image.data, image.bytes, "CHUNK", &view, &err), -EBADMSG);
		free(made);
		free(image.data);
		free(plain.data);
	}
}

/* Without a level, the file does not change. If compression saves nothing, the file is an ordinary chunk. */
TEST(not_worth_it)
{
	struct image plain, image = make(0, &plain);
	struct chunk_builder *b;
	struct iovec parts[2];
	unsigned char *noise = malloc(1 << 20);
	struct chunk_sample sample = {.path = "noise", .path_length = 5, .data = noise, .bytes = 1 << 20};

	assert_int_equal(header_of(&image)->flags, 0);
	assert_int_equal(image.bytes, plain.bytes);
	assert_memory_equal(image.data, plain.data, plain.bytes);
	for (size_t i = offsetof(struct chunk_header, stored_bytes); i < sizeof(struct chunk_header); i++)
		assert_int_equal(image.data[i], 0);
	fill(0, noise, 1 << 20);
	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_compress(b, 19);
	chunk_builder_reset(b, 0);
	assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
	assert_int_equal(chunk_builder_finish(b, &id, 1, parts, NULL), 0);
	assert_int_equal(((struct chunk_header *)parts[0].iov_base)->flags, 0);
	assert_int_equal(((struct chunk_header *)parts[0].iov_base)->stored_bytes, 0);
	/* A tombstone has no data to compress. */
	chunk_builder_reset(b, CHUNK_FLAG_TOMBSTONE);
	sample.bytes = 0;
	assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
	assert_int_equal(chunk_builder_finish(b, &id, 1, parts, NULL), 0);
	assert_int_equal(((struct chunk_header *)parts[0].iov_base)->flags, CHUNK_FLAG_TOMBSTONE);
	chunk_builder_free(b);
	free(noise);
	free(image.data);
	free(plain.data);
}

TEST(a_flipped_bit_is_noticed_or_harmless)
{
	struct image plain, image = make(3, &plain);
	uint64_t bits = 0, n_unnoticed = 0;

	/* Flips every byte of the head, and one in 1009 of the blocks. */
	for (size_t at = 0; at < image.bytes; at += at < header_of(&image)->payload_offset ? 1 : 1009) {
		struct chunk_view view;
		uint32_t n_damaged = 0;
		void *made = NULL;
		unsigned char was = image.data[at];

		image.data[at] ^= (unsigned char)(1u << (bits++ % 8));
		int r = image_parse(&image, &view, NULL);

		if (at < offsetof(struct chunk_header, head_xxh3) || r < 0) {
			assert_true(r < 0);
			image.data[at] = was;
			continue;
		}
		assert_true(at >= view.header->payload_offset);
		r = chunk_make_plain(image.data, "CHUNK", &made, &n_damaged, NULL);
		assert_int_equal(r, 0);
		if (n_damaged == 0 && chunk_parse_plain(made, plain.bytes, "CHUNK", &view, NULL) == 0) {
			bool is_damaged = false;

			for (uint32_t i = 0; i < N_SAMPLES; i++) {
				const struct chunk_record *rec = &view.records[i];
				const unsigned char *sample = (unsigned char *)made + rec->offset;
				bool same = memcmp(sample, plain.data + rec->offset, rec->bytes) == 0;

				assert_true(same == (chunk_verify_record(&view, i, sample, "", NULL) == 0));
				is_damaged |= !same;
			}
			n_unnoticed += !is_damaged;
		}
		free(made);
		image.data[at] = was;
	}
	/* Unnoticed flips are in gaps between samples and at the end of the last page. */
	assert_true(n_unnoticed < 100);
	free(image.data);
	free(plain.data);
}

TEST(a_truncated_chunk_of_blocks_is_refused)
{
	struct image image = make(3, NULL);
	struct chunk_view view;
	uint64_t needed;

	for (size_t n = 0; n < image.bytes; n += n < 8192 ? 7 : 5003) {
		/* A copy of exactly this size lets sanitizers notice a read past its end. */
		unsigned char *cut = malloc(n ? n : 1);
		struct error err = ERROR_INIT;
		int r;

		memcpy(cut, image.data, n);
		r = chunk_parse_head(cut, n, n, "CHUNK", &view, &needed, &err);
		assert_true(r == -EBADMSG && err.text[0]);
		free(cut);
	}
	free(image.data);
}

static void take_from_others(unsigned char *table, uint32_t n, uint32_t bytes)
{
	for (uint32_t i = 1; i < n; i++) {
		uint32_t length, less;

		memcpy(&length, table + i * sizeof(length), sizeof(length));
		less = length - 1 < bytes ? length - 1 : bytes;
		length -= less;
		bytes -= less;
		memcpy(table + i * sizeof(length), &length, sizeof(length));
	}
	assert_int_equal(bytes, 0);
}

TEST(signed_heads_with_wrong_sizes_are_refused)
{
	struct image good = make(3, NULL);
	struct chunk_blocks blocks;
	struct chunk_view view;

	assert_int_equal(chunk_blocks_in_head(header_of(&good), &blocks), 0);
	for (int way = 0; way < 19; way++) {
		struct image bad = {malloc(good.bytes), good.bytes};
		struct chunk_header *h = header_of(&bad);
		struct error err = ERROR_INIT;
		uint32_t first;

		memcpy(bad.data, good.data, good.bytes);
		unsigned char *table = bad.data + h->blocks_offset;

		memcpy(&first, table, sizeof(first));
		switch (way) {
		case 0: h->block_bytes = 0; break;
		case 1: h->block_bytes = 3; break;
		case 2: h->block_bytes = UINT32_MAX; break;
		case 3: h->block_bytes = 2 * CHUNK_BLOCK_MAX_BYTES; break;
		case 4: h->block_bytes = CHUNK_BLOCK_BYTES / 2; break;
		case 5: h->blocks_offset = 0; break;
		case 6: h->blocks_offset = h->payload_offset; break;
		case 7: h->blocks_offset = UINT32_MAX; break;
		case 8: h->blocks_offset = h->payload_offset - 4 * blocks.n + 1; break;
		case 9: h->stored_bytes = h->file_bytes; break;
		case 10: h->stored_bytes = 0; break;
		case 11: h->stored_bytes -= 4096; break;
		case 12: first = 0; break;
		case 13: first = UINT32_MAX; break;
		case 14: first += 4096; break;
		case 15: first = CHUNK_BLOCK_BYTES + 1; break;
		case 16: h->file_bytes += 1; break;
		case 17: h->file_bytes = UINT64_MAX / 4096 * 4096; break;
		case 18: /* more than the block has, and as much less in the other blocks */
			take_from_others(table, blocks.n, CHUNK_BLOCK_BYTES + 1 - first);
			first = CHUNK_BLOCK_BYTES + 1;
			break;
		}
		memcpy(table, &first, sizeof(first));
		sign(&bad);
		assert_int_equal(
		    chunk_parse_head(bad.data, bad.bytes, bad.bytes, "CHUNK", &view, &(uint64_t){0}, &err),
		    -EBADMSG);
		assert_true(err.text[0] && !strchr(err.text, '\n'));
		free(bad.data);
	}
	free(good.data);
}

/* A frame that holds more than its block, or less, is refused. */
TEST(a_frame_larger_than_its_block_is_refused)
{
	size_t large = 8 << 20;
	unsigned char *zeros = calloc(1, large), *frame = malloc(large), *to = malloc(large);
	struct compressor *c;

	assert_int_equal(compressor_new(19, &c), 0);
	long n = compressor_block(c, frame, zeros, large);
	assert_true(n > 0 && n < 2000);
	memset(to, 1, large);
	assert_int_equal(compress_decode(to, 4096, frame, (size_t)n), -EBADMSG);
	assert_int_equal(to[4096], 1);
	assert_int_equal(compress_decode(to, large, frame, (size_t)n), 0);
	assert_int_equal(compress_decode(to, large, frame, (size_t)n - 1), -EBADMSG);
	assert_int_equal(compress_decode(to, large, zeros, 100), -EBADMSG);
	n = compressor_block(c, frame, zeros, 4096);
	assert_int_equal(compress_decode(to, 8192, frame, (size_t)n), -EBADMSG);
	compressor_free(c);
	free(zeros);
	free(frame);
	free(to);
}

/* Writes a frame of 4096 equal bytes, as zstd writes it now, or wrote it before version 1. */
static size_t put_frame(unsigned char *to, uint32_t magic)
{
	static const unsigned char today[] = {0x60, 0x00, 0x0f, 0x03, 0x80, 0x00, 'A'},
				   then[] = {0x60, 0x00, 0x0f, 0x80, 0x10, 0x00, 'A', 0xc0, 0x00, 0x00};
	bool is_today = magic == 0xfd2fb528;
	size_t n = is_today ? sizeof(today) : sizeof(then);

	memcpy(to, &magic, 4);
	memcpy(to + 4, is_today ? today : then, n);
	return 4 + n;
}

static size_t put_skippable(unsigned char *to, uint32_t bytes)
{
	const uint32_t header[2] = {0x184d2a53, bytes};

	memcpy(to, header, sizeof(header));
	memset(to + sizeof(header), 0, bytes);
	return sizeof(header) + bytes;
}

/* libzstd, as distributions build it, accepts all of them. */
TEST(one_frame_of_today)
{
	static const uint32_t magics[] = {0xfd2fb522, 0xfd2fb523, 0xfd2fb524, 0xfd2fb525,
					  0xfd2fb526, 0xfd2fb527, 0xfd2fb51e, 0x184d2a50};
	chunk_decode *const decoders[] = {compress_decode, zstd_decode};
	unsigned char frame[64], plain[4097];
	size_t n;

	for (size_t k = 0; k < 2; k++) {
		chunk_decode *decode = decoders[k];

		n = put_frame(frame, 0xfd2fb528);
		assert_int_equal(decode(plain, 4096, frame, n), 0);
		assert_int_equal(plain[4095], 'A');
		assert_int_equal(decode(plain, 4095, frame, n), -EBADMSG);
		assert_int_equal(decode(plain, 4097, frame, n), -EBADMSG);
		for (size_t cut = 0; cut < n; cut++)
			assert_int_equal(decode(plain, 4096, frame, cut), -EBADMSG);
		for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
			n = put_frame(frame, magics[i]);
			assert_int_equal(decode(plain, 4096, frame, n), -EBADMSG);
			n = put_frame(frame, 0xfd2fb528);
			n += put_frame(frame + n, magics[i]);
			assert_int_equal(decode(plain, 8192, frame, n), -EBADMSG);
			assert_int_equal(decode(plain, 4096, frame, n), -EBADMSG);
		}
		n = put_skippable(frame, 3);
		n += put_frame(frame + n, 0xfd2fb528);
		assert_int_equal(decode(plain, 4096, frame, n), -EBADMSG);
		n = put_frame(frame, 0xfd2fb528);
		n += put_skippable(frame + n, 3);
		assert_int_equal(decode(plain, 4096, frame, n), -EBADMSG);
	}
}

/* A block that is compressed again has the length that the head gives, whichever program made it the first
 * time. */
TEST(a_block_written_again_keeps_its_length)
{
	size_t bytes = CHUNK_BLOCK_BYTES;
	unsigned char *data = malloc(bytes), *to = malloc(bytes), *back = malloc(bytes);
	struct compressor *c;

	fill(1, data, bytes);
	assert_int_equal(compressor_new(3, &c), 0);
	long n = compressor_block(c, to, data, bytes);
	assert_true(n > 0);
	for (size_t more = 0; more < 40; more++) {
		assert_int_equal(compressor_fit(c, to, (size_t)n + more, data, bytes), 0);
		memset(back, 0, bytes);
		assert_int_equal(compress_decode(back, bytes, to, (size_t)n + more), 0);
		assert_memory_equal(back, data, bytes);
	}
	assert_int_equal(compressor_fit(c, to, 100, data, bytes), -ENODATA);
	compressor_free(c);
	free(data);
	free(to);
	free(back);
}

/* A store of one chunk, in memory. */
struct one {
	struct store store;
	struct image image;
	unsigned n_reads;
};

static struct one *one_of(const struct store *s)
{
	return container_of(s, struct one, store);
}

static int one_read(struct store *s, const struct chunk_id *which, uint64_t offset, void *buffer,
		    size_t bytes, struct error *err)
{
	struct one *o = one_of(s);

	o->n_reads++;
	if (offset > o->image.bytes || bytes > o->image.bytes - offset)
		return error_set(err, -EBADMSG, "truncated");
	memcpy(buffer, o->image.data + offset, bytes);
	return 0;
}

static int one_size(struct store *s, const struct chunk_id *which, uint64_t *ret, struct error *err)
{
	*ret = one_of(s)->image.bytes;
	return 0;
}

static void one_describe(const struct store *s, const struct chunk_id *which, char *text, size_t size)
{
	snprintf(text, size, "CHUNK");
}

static void one_free(struct store *s)
{
	free(one_of(s)->image.data);
	free(one_of(s));
}

static struct store *open_one(struct image image, struct one **ret)
{
	static const struct store_ops ops = {
	    .read = one_read, .size = one_size, .describe = one_describe, .free = one_free};
	struct one *o = calloc(1, sizeof(*o));
	struct store *plain;

	o->store.ops = &ops;
	o->image = image;
	assert_int_equal(store_plain_open(&o->store, compress_decode, &plain, NULL), 0);
	*ret = o;
	return plain;
}

TEST(a_store_of_blocks_reads_any_range)
{
	for (int level = 0; level <= 3; level += 3) {
		struct image plain, image = make(level, &plain);
		unsigned char *data = malloc(plain.bytes + 1);
		struct error err = ERROR_INIT;
		struct one *one;
		struct store *s = open_one(image, &one);
		uint64_t bytes, random = 7;

		assert_int_equal(store_size(s, &id, &bytes, &err), 0);
		assert_int_equal(bytes, plain.bytes);
		for (int i = 0; i < 300; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			uint64_t at = (random >> 33) % plain.bytes, n = (random >> 13) % 600000;

			if (i == 0) {
				at = 0;
				n = plain.bytes;
			}
			if (n > plain.bytes - at)
				n = plain.bytes - at;
			data[n] = 0xa5;
			assert_int_equal(store_read(s, &id, at, data, n, &err), 0);
			assert_memory_equal(data, plain.data + at, n);
			assert_int_equal(data[n], 0xa5);
		}
		assert_int_equal(store_read(s, &id, plain.bytes, data, 1, &err), -EBADMSG);
		assert_int_equal(store_read(s, &id, UINT64_MAX, data, 1, &err), -EBADMSG);
		/* Information that is already known is not read again. */
		one->n_reads = 0;
		assert_int_equal(store_read(s, &id, plain.bytes - 100, data, 100, &err), 0);
		assert_int_equal(one->n_reads, 1);
		store_free(s);
		free(data);
		free(plain.data);
	}
}

TEST(a_damaged_block_in_a_store_is_noticed)
{
	struct image plain, image = make(3, &plain);
	struct chunk_header *h = header_of(&image);
	struct error err = ERROR_INIT;
	struct one *one;
	unsigned char data[16];
	uint64_t bytes;

	memset(image.data + h->payload_offset + 5, 0xff, 200);
	struct store *s = open_one(image, &one);
	assert_int_equal(store_read(s, &id, h->payload_offset, data, sizeof(data), &err), -EBADMSG);
	assert_non_null(strstr(err.text, "cannot be decompressed"));
	assert_int_equal(store_read(s, &id, plain.bytes - 16, data, sizeof(data), &err), 0);
	/* The file is cut off, but its remaining part can be read. */
	one->image.bytes -= 8192;
	assert_int_equal(store_read(s, &id, 3 * CHUNK_BLOCK_BYTES, data, sizeof(data), &err), 0);
	assert_int_equal(store_read(s, &id, plain.bytes - 16, data, sizeof(data), &err), -EBADMSG);
	store_free(s);
	image = make(3, NULL);
	image.bytes -= 4096;
	s = open_one(image, &one);
	assert_int_equal(store_size(s, &id, &bytes, &err), -EBADMSG);
	store_free(s);
	free(plain.data);
}
