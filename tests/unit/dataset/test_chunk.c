/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>
#include <stdio.h>

#include "dataset/checksum/checksum.h"
#include "dataset/chunk_id.h"
#include "lib/cleanup.h"

/* Corrects the checksum of a changed head, as a hostile writer would. */
static void sign(struct image *image)
{
	struct chunk_header *h = (struct chunk_header *)image->data;

	h->head_xxh3 =
	    checksum_xxh3_gap(image->data, h->payload_offset, offsetof(struct chunk_header, head_xxh3));
}

TEST(a_chunk_parses_as_built)
{
	struct image image = make_chunk(500, 0);
	struct chunk_view view;
	struct error err = ERROR_INIT;

	if (image_parse(&image, &view, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(view.header->n_records, 500);
	assert_int_equal(image.bytes % CHUNK_ALIGN, 0);
	assert_int_equal(view.header->payload_offset % CHUNK_ALIGN, 0);
	for (uint32_t i = 0; i < 500; i++) {
		const struct chunk_record *r = &view.records[i];
		char path[64];
		int n = snprintf(path, sizeof(path), "class%u/%u.bin", i % 3, i);

		assert_int_equal(r->name_length, n);
		assert_memory_equal(view.names + r->name_offset, path, n);
		assert_int_equal(r->bytes, i % 200 + 1);
		assert_int_equal(r->offset % CHUNK_SAMPLE_ALIGN, 0);
		assert_int_equal(r->mtime_ns, 1000 + i);
		assert_int_equal(image.data[r->offset], i & 255);
		assert_int_equal(chunk_verify_record(&view, i, image.data + r->offset, "CHUNK", &err), 0);
	}
	free(image.data);
}

/* The bytes of one small head, so that the format cannot change by accident. */
TEST(the_bytes_of_a_head_never_change)
{
	static const unsigned char header[128] = {
	    'D',  'S',  'L',  'C',  'H',  'N',  'K',  0,
	    1,    0,    0,    0,    0,    0,    0,    0, /* magic, version, flags */
	    0,    6,    1,    2,    3,    4,    5,    9,
	    9,    9,    9,    7,    7,    7,    0,    1, /* id */
	    1,    0,    0,    0,    192,  0,    0,    0,
	    0,    0x10, 0,    0,    0,    0,    0,    0, /* counts, offsets */
	    0,    0x20, 0,    0,    0,    0,    0,    0,
	    1,    0,    0,    0,    0,    0,    0,    0, /* file, payload bytes */
	    0x87, 0xd6, 0x12, 0,    0,    0,    0,    0,
	    0x55, 0xcb, 0x30, 0x49, 0xd6, 0x11, 0xe0, 0x09, /* created, checksum */
	};
	static const unsigned char record[64] = {
	    0,    0x10, 0,    0,    0,    0,    0,    0,    1,    0, 0, 0,
	    1,    0,    0,    0, /* offset, bytes, stored bytes */
	    0xdb, 0xec, 0x4e, 0x07, 0xf4, 0xdf, 0x4b, 0xc4, 0xe8, 3, 0, 0,
	    0,    0,    0,    0,                                           /* checksum, mtime */
	    0xa4, 0x81, 0,    0,    0,    0,    0,    0,    12,   0, 0, 0, /* mode, name, encoding */
	};
	struct image image = make_chunk(1, 0);

	assert_int_equal(image.bytes, 8192);
	assert_memory_equal(image.data, header, sizeof(header));
	assert_memory_equal(image.data + 128, record, sizeof(record));
	assert_memory_equal(image.data + 192, "class0/0.bin", 12);
	free(image.data);
}

TEST(every_bit_of_the_head)
{
	struct image image = make_chunk(3, 0);
	size_t head = ((struct chunk_header *)image.data)->payload_offset;
	struct chunk_view view;
	struct error err;

	for (size_t bit = 0; bit < head * 8; bit++) {
		image.data[bit / 8] ^= 1 << bit % 8;
		err = ERROR_INIT;
		int r = image_parse(&image, &view, &err);

		if (r != -EBADMSG && r != -EPROTONOSUPPORT)
			fail_msg("bit %zu: %d", bit, r);
		assert_non_null(strstr(err.text, "CHUNK"));
		image.data[bit / 8] ^= 1 << bit % 8;
	}
	assert_int_equal(image_parse(&image, &view, NULL), 0);
	free(image.data);
}

TEST(every_truncation_of_a_chunk_is_noticed)
{
	struct image image = make_chunk(200, 0);
	struct chunk_view view;

	for (size_t n = 0; n < image.bytes; n += 64) {
		/* A copy of exactly this size lets sanitizers notice a read past its end. */
		struct image cut = {malloc(n + 1), n};
		uint64_t needed = 0;

		memcpy(cut.data, image.data, n);
		/* The file is shorter than it should be ... */
		assert_int_equal(image_parse(&cut, &view, NULL), -EBADMSG);
		/* ... or only a part of it was read. */
		int r = chunk_parse_head(cut.data, n, image.bytes, "CHUNK", &view, &needed, NULL);

		if (n < ((struct chunk_header *)image.data)->payload_offset) {
			assert_int_equal(r, -EAGAIN);
			assert_true(needed > n);
		} else {
			assert_int_equal(r, 0);
		}
		free(cut.data);
	}
	free(image.data);
}

TEST(a_signed_head_with_a_wrong_value_is_refused)
{
	static const uint64_t values[] = {0,       1,         63,         4095,      4096,      8192,
					  1 << 20, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
	static const struct {
		size_t offset, bytes;
	} fields[] = {
	    {offsetof(struct chunk_header, n_records), 4},
	    {offsetof(struct chunk_header, names_offset), 4},
	    {offsetof(struct chunk_header, payload_offset), 4},
	    {offsetof(struct chunk_header, file_bytes), 8},
	    {offsetof(struct chunk_header, payload_bytes), 8},
	    {offsetof(struct chunk_header, flags), 4},
	    {128 + offsetof(struct chunk_record, offset), 8},
	    {128 + offsetof(struct chunk_record, bytes), 4},
	    {128 + offsetof(struct chunk_record, stored_bytes), 4},
	    {128 + offsetof(struct chunk_record, name_offset), 4},
	    {128 + offsetof(struct chunk_record, name_length), 2},
	    {128 + offsetof(struct chunk_record, encoding), 2},
	};
	int n_accepted = 0;

	for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			struct image image = make_chunk(2, 0);
			struct chunk_view view;

			if (memcmp(image.data + fields[f].offset, &values[v], fields[f].bytes) == 0) {
				free(image.data);
				continue; /* the correct value */
			}
			memcpy(image.data + fields[f].offset, &values[v], fields[f].bytes);
			if (((struct chunk_header *)image.data)->payload_offset <= image.bytes &&
			    ((struct chunk_header *)image.data)->payload_offset >= 128)
				sign(&image);
			/* An accepted chunk must be readable. An offset or a name may lie elsewhere inside
			 * the chunk. */
			if (image_parse(&image, &view, NULL) == 0) {
				n_accepted++;
				for (uint32_t i = 0; i < view.header->n_records; i++)
					chunk_verify_record(&view, i, image.data + view.records[i].offset, "",
							    NULL);
			}
			free(image.data);
		}
	}
	/* The first sample's offset may be 4096 (its own), or the file's end minus its length. */
	assert_in_range(n_accepted, 0, 3);
}

TEST(damage_in_a_payload_is_noticed)
{
	struct image image = make_chunk(20, 0);
	struct chunk_view view;
	struct error err = ERROR_INIT;

	assert_int_equal(image_parse(&image, &view, NULL), 0);
	for (uint32_t i = 0; i < 20; i++) {
		unsigned char *sample = image.data + view.records[i].offset;

		sample[view.records[i].bytes - 1] ^= 0x10;
		assert_int_equal(chunk_verify_record(&view, i, sample, "CHUNK", &err), -EBADMSG);
		sample[view.records[i].bytes - 1] ^= 0x10;
	}
	assert_non_null(strstr(err.text, "class1/19.bin"));
	assert_non_null(strstr(err.text, "CHUNK"));
	free(image.data);
}

TEST(a_newer_version_says_to_update)
{
	struct image image = make_chunk(1, 0);
	struct chunk_view view;
	struct error err = ERROR_INIT;

	((struct chunk_header *)image.data)->version = CHUNK_VERSION + 1;
	assert_int_equal(image_parse(&image, &view, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "update"));
	((struct chunk_header *)image.data)->version = CHUNK_VERSION;
	((struct chunk_header *)image.data)->flags = 1u << 31;
	sign(&image);
	assert_int_equal(image_parse(&image, &view, NULL), -EPROTONOSUPPORT);
	((struct chunk_header *)image.data)->flags = chunk_layout_flags(CHUNK_N_LAYOUTS);
	sign(&image);
	assert_int_equal(image_parse(&image, &view, NULL), -EPROTONOSUPPORT);
	free(image.data);
}

TEST(a_tombstone_has_no_payload)
{
	struct image image = make_chunk(4, CHUNK_FLAG_TOMBSTONE);
	struct chunk_view view;

	assert_int_equal(image_parse(&image, &view, NULL), 0);
	assert_int_equal(view.header->flags, CHUNK_FLAG_TOMBSTONE);
	assert_int_equal(view.header->file_bytes, view.header->payload_offset);
	free(image.data);
}

TEST(names_are_relative_and_plain)
{
	static const char *const good[] = {"a", "a/b", "...", "a/.b", "..a/b..", "\xff\n"};
	static const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/."};
	char longest[CHUNK_NAME_MAX + 1];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(chunk_name_is_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(chunk_name_is_valid(bad[i], strlen(bad[i])));
	assert_false(chunk_name_is_valid("a\0b", 3));
	memset(longest, 'x', sizeof(longest));
	assert_true(chunk_name_is_valid(longest, CHUNK_NAME_MAX));
	assert_false(chunk_name_is_valid(longest, CHUNK_NAME_MAX + 1));
}

static int add_bytes(struct chunk_builder *b, const char *path, const void *data, size_t bytes,
		     struct error *err)
{
	struct chunk_sample sample = {
	    .path = path, .path_length = strlen(path), .data = data, .bytes = bytes};

	return chunk_builder_add(b, &sample, err);
}

TEST(a_builder_keeps_to_its_sizes)
{
	struct chunk_builder *b;
	_cleanup_(freep) char *data = calloc(1, 9 << 20);
	struct iovec parts[2];
	struct chunk_id id = {0};
	struct error err = ERROR_INIT;

	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES - 1, &b), -EINVAL);
	assert_int_equal(chunk_builder_new(CHUNK_MAX_BYTES + 1, &b), -EINVAL);
	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_reset(b, 0);
	/* A sample larger than a chunk gets its own chunk. */
	assert_int_equal(add_bytes(b, "big", data, 9 << 20, NULL), 0);
	assert_int_equal(add_bytes(b, "small", data, 1, NULL), CHUNK_BUILDER_FULL);
	assert_int_equal(chunk_builder_finish(b, &id, 0, parts, NULL), 0);
	assert_true(parts[0].iov_len + parts[1].iov_len > 9 << 20);
	/* The chunk is filled up to the last block and not beyond it, with empty samples, too. */
	chunk_builder_reset(b, 0);
	for (int i = 0;; i++) {
		char path[32];

		snprintf(path, sizeof(path), "%d", i);
		int r = add_bytes(b, path, data, i % 3 ? 1000 : 0, NULL);

		if (r == CHUNK_BUILDER_FULL)
			break;
		assert_int_equal(r, 0);
	}
	assert_int_equal(chunk_builder_finish(b, &id, 0, parts, NULL), 0);
	assert_in_range(parts[0].iov_len + parts[1].iov_len, CHUNK_MIN_BYTES - 8192, CHUNK_MIN_BYTES);
	struct image image = image_join(parts);
	struct chunk_view view;

	assert_int_equal(image_parse(&image, &view, NULL), 0);
	assert_int_equal(add_bytes(b, "huge", data, (size_t)CHUNK_SAMPLE_MAX_BYTES + 1, &err), -EFBIG);
	assert_non_null(strstr(err.text, "'huge'"));
	assert_int_equal(add_bytes(b, "../x", data, 1, NULL), -EINVAL);
	chunk_builder_free(b);
	free(image.data);
}

TEST(ids_rise_with_time)
{
	struct chunk_id_source source;
	struct chunk_id last, id, parsed;
	char text[CHUNK_ID_TEXT];

	chunk_id_source_init(&source, 0xdeadbeef, 4711, NULL);
	last = chunk_id_next(&source, 1000);
	assert_int_equal(chunk_id_time_us(&last), 1000);
	assert_string_equal(chunk_id_format(&last, text), "000000000003e8deadbeef0012670000");
	assert_int_equal(chunk_id_parse(text, &parsed), 0);
	assert_memory_equal(&parsed, &last, sizeof(last));
	for (uint64_t i = 0; i < 200000; i++) {
		/* The clock stands still, is set back, and continues. */
		id = chunk_id_next(&source, i % 100000 < 70000 ? 900 : 1000 + i / 1000);
		assert_true(chunk_id_compare(&last, &id) < 0);
		last = id;
	}
	/* Ids are above the floor, whichever machine made it. */
	memset(&last.bytes[7], 0xff, 9);
	chunk_id_source_init(&source, 0, 0, &last);
	id = chunk_id_next(&source, 5);
	assert_true(chunk_id_compare(&last, &id) < 0);
	assert_int_equal(chunk_id_parse("000000000003E8deadbeef0012670000", &parsed), -EINVAL);
	assert_int_equal(chunk_id_parse("00", &parsed), -EINVAL);
	assert_int_equal(chunk_id_parse("000000000003e8deadbeef00126700001", &parsed), -EINVAL);
	assert_int_equal(chunk_id_parse("", &parsed), -EINVAL);
}
