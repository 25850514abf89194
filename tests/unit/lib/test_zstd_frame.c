/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "lib/zstd_frame.h"

struct bytes {
	uint8_t at[128];
	size_t n;
};

static void put(struct bytes *b, const void *data, size_t n)
{
	memcpy(b->at + b->n, data, n);
	b->n += n;
}

static void put_u32(struct bytes *b, uint32_t value)
{
	put(b, &value, sizeof(value));
}

/* Writes a frame: magic, descriptor, the fields that it announces, then the blocks. These hold "AB" as it is,
 * and 'C' 700 times. A checksum may follow. */
static void put_frame(struct bytes *b, uint8_t descriptor, const void *fields, size_t n)
{
	static const uint8_t blocks[] = {0x10, 0, 0, 'A', 'B', 0xe3, 0x15, 0, 'C'};

	put_u32(b, 0xfd2fb528);
	put(b, &descriptor, 1);
	put(b, fields, n);
	put(b, blocks, sizeof(blocks));
	if (descriptor & 4)
		put_u32(b, 0x12345678);
}

TEST(headers_tell_the_content_s_size)
{
	static const struct {
		uint8_t descriptor, n;
		uint8_t fields[14];
		uint64_t content; /* 0: not given */
	} cases[] = {{0x60, 2, {0xbe, 0x01}, 702},
		     {0xa0, 4, {0xbe, 0x02}, 702},
		     {0xe0, 8, {0xbe, 0x02}, 702},
		     {0x20, 1, {9}, 9},
		     {0x00, 1, {0x50}, 0},
		     {0x40, 3, {0x50, 0xbe, 0x01}, 702},
		     {0x44, 3, {0x50, 0xbe, 0x01}, 702},
		     {0x61, 3, {0, 0xbe, 0x01}, 702},
		     {0x62, 4, {0, 0, 0xbe, 0x01}, 702},
		     {0xc7, 13, {0x50, 0, 0, 0, 0, 0xbe, 0x02}, 702}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bytes b = {.n = 0};
		uint64_t content = 0;

		put_frame(&b, cases[i].descriptor, cases[i].fields, cases[i].n);
		assert_int_equal(zstd_frame_content(b.at, b.n, &content), cases[i].content ? 0 : -EBADMSG);
		assert_int_equal(content, cases[i].content);
		for (size_t cut = 0; cut < b.n; cut++)
			assert_int_equal(zstd_frame_content(b.at, cut, &content), -EBADMSG);
		assert_int_equal(zstd_frame_content(b.at, b.n + 1, &content), -EBADMSG);
	}
}

TEST(what_is_none)
{
	static const uint32_t magics[] = {0,          0x28b52ffd, 0xfd2fb51e, 0xfd2fb522, 0xfd2fb523,
					  0xfd2fb524, 0xfd2fb525, 0xfd2fb526, 0xfd2fb527, 0xfd2fb529};
	static const uint8_t fields[] = {0xbe, 0x01}, reserved_block = 0x17;
	struct bytes good = {.n = 0};
	uint64_t content;

	put_frame(&good, 0x60, fields, sizeof(fields));
	assert_int_equal(zstd_frame_content(good.at, good.n, &content), 0);
	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
		struct zstd_scan scan = {.n_head = 0};
		struct bytes b = good;

		memcpy(b.at, &magics[i], 4);
		assert_int_equal(zstd_frame_content(b.at, b.n, &content), -EBADMSG);
		assert_int_equal(zstd_scan(&scan, good.at, good.n), 0);
		assert_int_equal(zstd_scan(&scan, b.at, 3), 0);
		assert_int_equal(zstd_scan(&scan, b.at + 3, 1), -EBADMSG);
	}
	good.at[4] |= 8;
	assert_int_equal(zstd_frame_content(good.at, good.n, &content), -EBADMSG);
	good.at[4] &= (uint8_t)~8;
	good.at[7] = reserved_block;
	assert_int_equal(zstd_frame_content(good.at, good.n, &content), -EBADMSG);
}

/* A stream may have several frames, with skippable ones, and comes in pieces. */
TEST(a_stream_has_several_frames)
{
	static const uint8_t fields[] = {0x50, 0xbe, 0x01}, nothing[5];
	struct bytes b = {.n = 0};
	uint64_t content;

	put_frame(&b, 0x44, fields, sizeof(fields));
	for (uint32_t i = 0; i < 2; i++) {
		put_u32(&b, 0x184d2a50 + 15 * i);
		put_u32(&b, i * (uint32_t)sizeof(nothing));
		put(&b, nothing, i * sizeof(nothing));
	}
	put_frame(&b, 0x44, fields, sizeof(fields));
	assert_int_equal(zstd_frame_content(b.at, b.n, &content), -EBADMSG);
	for (size_t piece = 1; piece <= b.n; piece++) {
		struct zstd_scan scan = {.n_head = 0};

		for (size_t at = 0; at < b.n; at += piece) {
			size_t n = b.n - at < piece ? b.n - at : piece;

			assert_int_equal(zstd_scan(&scan, b.at + at, n), 0);
		}
		assert_true(zstd_scan_is_end(&scan));
		assert_int_equal(scan.n_frames, 2);
		assert_int_equal(scan.n_skippable, 2);
		assert_int_equal(scan.content, 702);
	}
}
