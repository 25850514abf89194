/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Treats arbitrary bytes as a snapshot. Input: one byte of options, then the file. Bit 0: all checksums are
 * corrected first. Without verification every accessor stays inside the file. After verification every
 * accessor succeeds, and so does an update.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataset/checksum/checksum.h"
#include "dataset/chunk_builder.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot/snapshot_build.h"
#include "dataset/lookup/snapshot_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign_section(const unsigned char *file, size_t bytes, struct snapshot_extent *e)
{
	if (e->offset <= bytes && e->bytes <= bytes - e->offset)
		e->xxh3 = checksum_xxh3(file + e->offset, e->bytes);
}

static void sign(unsigned char *file, size_t bytes)
{
	struct snapshot_header *h = (struct snapshot_header *)file;

	if (bytes < sizeof(*h))
		return;
	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++)
		sign_section(file, bytes, &h->sections[i]);
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
}

static void require(int fine)
{
	if (!fine)
		abort();
}

static void list(const struct snapshot *s, const char *directory, size_t length)
{
	struct snapshot_entry entry;
	uint64_t cursor = 0, last = 0;

	while (snapshot_list(s, directory, length, &cursor, &entry) == 0) {
		require(cursor > last); /* so the loop ends */
		last = cursor;
	}
}

static void use(const struct snapshot *s, int verified)
{
	const struct snapshot_info *info = snapshot_info(s);
	struct snapshot_sample sample;
	struct snapshot_chunk chunk;
	const char *name;
	size_t length;

	for (uint64_t i = 0; i < info->n_samples && i < 1000; i++) {
		uint64_t number = 0;
		int r = snapshot_sample_get(s, i, &sample);

		require(!verified || r == 0);
		require(snapshot_mtime(s, i, &number) == 0 || !verified);
		if (r == 0) {
			struct path_text path = {sample.path, sample.path_length};
			uint64_t again = 0;

			r = snapshot_find(s, sample.path, sample.path_length, &number);
			require(!verified || (r == 0 && number == i));
			require(snapshot_find_many(s, &path, 1, &again) == (r == 0));
			require(again == (r == 0 ? number : SNAPSHOT_NOT_FOUND));
			list(s, sample.path, sample.path_length / 2);
		}
		r = snapshot_by_path(s, i, &number);
		require(!verified || r == 0);
		if (r == 0) {
			uint64_t place = 0;

			r = snapshot_place(s, number, &place);
			require(!verified || (r == 0 && place == i));
		}
	}
	for (uint32_t i = 0; i < info->n_classes && i < 1000; i++) {
		int r = snapshot_class_name(s, i, &name, &length);

		require(!verified || r == 0);
		if (r == 0)
			list(s, name, length);
	}
	for (uint64_t i = 0; i < info->n_chunks && i < 1000; i++)
		require(snapshot_chunk_get(s, i, &chunk) == 0);
	list(s, "", 0);
}

/* Checks the properties on which dieseld relies when only the tables are verified. */
static void fit(const struct snapshot *s)
{
	const struct snapshot_info *info = snapshot_info(s);

	for (uint64_t i = 0; i < info->n_samples && i < 1000; i++) {
		struct snapshot_sample sample;
		struct snapshot_chunk chunk;

		if (snapshot_sample_get(s, i, &sample) < 0)
			continue;
		require(snapshot_chunk_get(s, sample.chunk, &chunk) == 0);
		require(i >= chunk.first_sample && i - chunk.first_sample < chunk.n_samples);
		require(sample.offset <= chunk.file_bytes &&
			sample.stored_bytes <= chunk.file_bytes - sample.offset);
		require(info->equal_bytes == 0 || sample.bytes == info->equal_bytes);
		require(sample.class_index < (int64_t)info->n_classes &&
			sample.path_length <= CHUNK_NAME_MAX);
		(void)snapshot_class_fits(s, sample.class_index, sample.path, sample.path_length);
	}
}

static void add_chunk(struct snapshot_changes *c, const struct snapshot *s, const char *path, size_t length,
		      uint32_t flags, uint8_t id)
{
	const struct chunk_id chunk_id = {.bytes = {0xff, id}};
	static const struct digest digest;
	struct chunk_sample sample = {.path = path, .path_length = length};
	struct chunk_builder *b;
	struct chunk_view view;
	struct iovec parts[2];
	uint64_t needed;

	require(chunk_builder_new(CHUNK_MIN_BYTES, &b) == 0);
	chunk_builder_reset(b, flags);
	if (chunk_builder_add(b, &sample, NULL) == 0) {
		require(chunk_builder_finish(b, &chunk_id, 1, parts, NULL) == 0);
		require(chunk_parse_head(parts[0].iov_base, parts[0].iov_len,
					 parts[0].iov_len + parts[1].iov_len, "FUZZ", &view, &needed,
					 NULL) == 0);
		require(snapshot_changes_add(c, &view, snapshot_info(s)->has_digests ? &digest : NULL) == 0);
	}
	chunk_builder_free(b);
}

/* An update of a verified snapshot gives a sound one. An update of any other snapshot stays within bounds. */
static void update(const struct snapshot *s, int verified)
{
	struct snapshot_sample sample;
	struct snapshot_changes *c;
	struct error err = ERROR_INIT;
	struct snapshot *next;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	require(fd >= 0 && snapshot_changes_new(UINT64_MAX, &c) == 0);
	add_chunk(c, s, "new/file.jpg", 12, 0, 1);
	for (uint8_t i = 0; i < 4; i++)
		if (snapshot_sample_get(s, i, &sample) == 0)
			add_chunk(c, s, sample.path, sample.path_length, i % 2 ? CHUNK_FLAG_TOMBSTONE : 0,
				  (uint8_t)(i + 2));
	const struct snapshot_target target = {fd, "FUZZ", 2, 1, snapshot_info(s)->columns};
	int r = snapshot_update(s, c, &target, &err);

	require(r >= 0 || r == -EEXIST);
	if (verified && r == 0) {
		require(snapshot_open_fd(fd, "FUZZ", &next, &err) == 0);
		require(snapshot_verify(next, &err) == 0);
		snapshot_close(next);
	}
	snapshot_changes_free(c);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = ERROR_INIT;
	struct snapshot *s;
	unsigned char *file;
	int fd;

	if (size < 1)
		return 0;
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	file = malloc(size);
	if (fd < 0 || !file)
		abort();
	memcpy(file, data + 1, size - 1);
	if (data[0] & 1)
		sign(file, size - 1);
	require(write(fd, file, size - 1) == (ssize_t)(size - 1));
	free(file);
	if (snapshot_open_fd(fd, "FUZZ", &s, &err) == 0) {
		use(s, 0);
		if (snapshot_verify_tables(s, &err) == 0)
			fit(s);
		int verified = snapshot_verify(s, &err) == 0;

		if (verified)
			use(s, 1);
		update(s, verified);
		snapshot_close(s);
	}
	close(fd);
	return 0;
}
