/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Chunks and snapshots made from lists of paths, for tests. Each test includes it once. */

#include "tests/support.h"

#include "dataset/chunk.h"
#include "dataset/chunk_builder.h"
#include "dataset/meta.h"
#include "dataset/snapshot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataset/snapshot/snapshot_build.h"

/* A complete chunk file in one allocation. */
struct image {
	unsigned char *data;
	size_t bytes;
};

static inline struct image image_join(const struct iovec parts[2])
{
	struct image image = {.bytes = parts[0].iov_len + parts[1].iov_len};

	image.data = malloc(image.bytes);
	assert_non_null(image.data);
	memcpy(image.data, parts[0].iov_base, parts[0].iov_len);
	if (parts[1].iov_len)
		memcpy(image.data + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
	return image;
}

static inline int image_parse(const struct image *image, struct chunk_view *view, struct error *err)
{
	uint64_t needed;

	return chunk_parse_head(image->data, image->bytes, image->bytes, "CHUNK", view, &needed, err);
}

/* Sample i of n: path "class<i % 3>/<i>.bin", i + 1 bytes of value i. */
static inline struct image make_chunk(uint32_t n, uint32_t flags)
{
	static const struct chunk_id id = {.bytes = {0, 6, 1, 2, 3, 4, 5, 9, 9, 9, 9, 7, 7, 7, 0, 1}};
	struct chunk_builder *b;
	struct iovec parts[2];

	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_reset(b, flags);
	for (uint32_t i = 0; i < n; i++) {
		char path[64];
		unsigned char data[256];

		memset(data, (int)i, sizeof(data));
		snprintf(path, sizeof(path), "class%u/%u.bin", i % 3, i);
		struct chunk_sample sample = {
		    .path = path,
		    .path_length = strlen(path),
		    .data = data,
		    .bytes = flags & CHUNK_FLAG_TOMBSTONE ? 0 : i % 200 + 1,
		    .mode = 0100644,
		    .mtime_ns = 1000 + i,
		};

		assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
	}
	assert_int_equal(chunk_builder_finish(b, &id, 1234567, parts, NULL), 0);
	struct image image = image_join(parts);

	chunk_builder_free(b);
	return image;
}

/* Returns the bytes of a file. */
static inline struct image image_of(int fd)
{
	struct image image = {.bytes = (size_t)lseek(fd, 0, SEEK_END)};

	image.data = malloc(image.bytes);
	assert_int_equal(pread(fd, image.data, image.bytes, 0), image.bytes);
	return image;
}

/* Returns an empty file for version 5 of a dataset. The caller closes it. */
static inline struct snapshot_target snapshot_target(void)
{
	return (struct snapshot_target){memfd_create("snapshot", MFD_CLOEXEC), "DATASET", 5, 99, {0}};
}

static inline struct snapshot_builder *new_builder(void)
{
	struct snapshot_builder *b;

	assert_int_equal(snapshot_builder_new(AT_FDCWD, SNAPSHOT_BUILD_BYTES, &b), 0);
	return b;
}

/* Returns the file that the builder makes, and frees the builder. */
static inline struct image finish(struct snapshot_builder *b)
{
	const struct snapshot_target target = snapshot_target();
	struct error err = ERROR_INIT;
	struct image image;

	if (snapshot_builder_finish(b, &target, &err) < 0)
		fail_msg("%s", err.text);
	snapshot_builder_free(b);
	image = image_of(target.fd);
	close(target.fd);
	return image;
}

/* Makes a snapshot of these paths with n_a_chunk of them in each chunk. Sample i has i % 7 + 1 bytes (equal:
 * 8). */
static inline struct image make_snapshot_within(size_t budget, const char *const *paths, size_t n,
						size_t n_a_chunk, bool equal, bool digests)
{
	struct snapshot_builder *b;

	assert_int_equal(snapshot_builder_new(AT_FDCWD, budget, &b), 0);
	for (size_t c = 0; c * n_a_chunk < n; c++) {
		struct meta_chunk chunk = {
		    .id.bytes = {(uint8_t)(c >> 8), (uint8_t)c},
		    .file_bytes = 1 << 20,
		    .payload_offset = 4096,
		    .head_xxh3 = c,
		    .has_sha256 = digests,
		    .sha256.bytes = {0xd1, (uint8_t)c},
		};

		assert_int_equal(snapshot_builder_add_chunk(b, &chunk), 0);
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t bytes = equal ? 8 : (uint32_t)(i % 7 + 1);
		struct meta_path path = {
		    .path = paths[i],
		    .path_length = strlen(paths[i]),
		    .chunk.bytes = {(uint8_t)(i / n_a_chunk >> 8), (uint8_t)(i / n_a_chunk)},
		    .record_index = (uint32_t)(i % n_a_chunk),
		    .record = {.offset = 4096 + 16 * (i % n_a_chunk),
			       .bytes = bytes,
			       .stored_bytes = bytes,
			       .xxh3 = i},
		};

		assert_int_equal(snapshot_builder_add_path(b, &path), 0);
	}
	return finish(b);
}

static inline struct image make_snapshot_with(const char *const *paths, size_t n, size_t n_a_chunk,
					      bool equal, bool digests)
{
	return make_snapshot_within(SNAPSHOT_BUILD_BYTES, paths, n, n_a_chunk, equal, digests);
}

static inline struct image make_snapshot(const char *const *paths, size_t n, size_t n_a_chunk, bool equal)
{
	return make_snapshot_with(paths, n, n_a_chunk, equal, false);
}

/* Opens bytes as a snapshot file. */
static inline int open_snapshot_bytes(const void *data, size_t bytes, struct snapshot **ret,
				      struct error *err)
{
	int fd = nameless_file(data, bytes);
	int r = snapshot_open_fd(fd, "SNAPSHOT", ret, err);

	close(fd);
	return r;
}
