/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include "dataset/chunk_builder.h"
#include "dataset/chunk_id.h"
#include "dataset/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct chunk_id id_of(uint64_t n)
{
	struct chunk_id id = {0};

	for (int i = 0; i < 8; i++)
		id.bytes[15 - i] = (uint8_t)(n >> (8 * i));
	return id;
}

static int put(struct store *s, uint64_t n, const char *head, const char *tail)
{
	struct chunk_id id = id_of(n);
	struct iovec parts[2] = {{(void *)head, strlen(head)}, {(void *)tail, strlen(tail)}};

	return store_put(s, &id, parts, 2, NULL);
}

static struct store *open_store(const char *path)
{
	struct store *s;

	assert_int_equal(store_open(path, true, &s, NULL), 0);
	return s;
}

TEST_IN_FOLDER(an_object_reads_as_put)
{
	struct store *s = open_store(*state);
	struct chunk_id one = id_of(1), two = id_of(2);
	struct error err = ERROR_INIT;
	char text[16] = "";
	uint64_t bytes;

	assert_int_equal(put(s, 1, "head", "payload"), 0);
	assert_int_equal(put(s, 1, "other", ""), -EEXIST); /* and the first object stays */
	assert_int_equal(store_size(s, &one, &bytes, NULL), 0);
	assert_int_equal(bytes, 11);
	assert_int_equal(store_read(s, &one, 2, text, 6, NULL), 0);
	assert_string_equal(text, "adpayl");
	assert_int_equal(store_read(s, &one, 6, text, 6, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "00000001.chunk is truncated"));
	assert_int_equal(store_read(s, &two, 0, text, 1, &err), -ENOENT);
	assert_non_null(strstr(err.text, "00000002.chunk"));
	assert_int_equal(store_remove(s, &one, NULL), 0);
	assert_int_equal(store_remove(s, &one, NULL), -ENOENT);
	store_free(s);
}

TEST_IN_FOLDER(a_list_has_chunks_only_in_order)
{
	struct store *s = open_store(*state);
	struct store_object *objects;
	struct chunk_id after = id_of(300);
	size_t n;

	for (uint64_t i = 1000; i > 0; i -= 100)
		assert_int_equal(put(s, i, "x", ""), 0);
	/* Files without a valid chunk name are not listed. */
	write_text(*state, "chunks/README", "x");
	write_text(*state, "chunks/00000000000000000000000000000zzz.chunk", "x");
	write_text(*state, "chunks/000000000000000000000000000000AB.chunk", "x");
	write_text(*state, "chunks/.00000000000000000000000000000005.tmp", "x");
	assert_int_equal(store_list(s, NULL, &objects, &n, NULL), 0);
	assert_int_equal(n, 10);
	for (size_t i = 0; i < n; i++) {
		struct chunk_id id = id_of(100 * (i + 1));

		assert_memory_equal(&objects[i].id, &id, sizeof(id));
		assert_int_equal(objects[i].bytes, 1);
	}
	free(objects);
	assert_int_equal(store_list(s, &after, &objects, &n, NULL), 0);
	assert_int_equal(n, 7);
	free(objects);
	assert_int_equal(store_sweep(s, NULL), 0);
	assert_false(exists_in(*state, "chunks/.00000000000000000000000000000005.tmp"));
	assert_true(exists_in(*state, "chunks/README"));
	store_free(s);
}

/* A chunk name that is a link elsewhere is not followed. A chunk name that is no file is not opened. */
TEST_IN_FOLDER(links_in_a_store_are_not_followed)
{
	struct store *s = open_store(*state);
	struct chunk_id seven = id_of(7), eight = id_of(8);
	char target[300], name[400], text[4];

	write_text(*state, "secret", "secret");
	snprintf(target, sizeof(target), "%s/secret", (char *)*state);
	snprintf(name, sizeof(name), "%s/chunks/00000000000000000000000000000007.chunk", (char *)*state);
	assert_int_equal(symlink(target, name), 0);
	assert_int_equal(store_read(s, &seven, 0, text, 4, NULL), -ELOOP);
	snprintf(name, sizeof(name), "%s/chunks/00000000000000000000000000000008.chunk", (char *)*state);
	assert_int_equal(mkfifo(name, 0600), 0);
	assert_int_equal(store_read(s, &eight, 0, text, 4, NULL), -EBADMSG);
	store_free(s);
}

TEST(a_missing_store_is_named)
{
	struct store *s;
	struct error err = ERROR_INIT;

	assert_int_equal(store_open("/nowhere/at/all", false, &s, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nowhere/at/all/chunks"));
	assert_int_equal(store_open("/nowhere/at/all", true, &s, NULL), -ENOENT);
	store_free(NULL);
}

static int (*real_read)(struct store *, const struct chunk_id *, uint64_t, void *, size_t, struct error *);
static unsigned n_reads;

static int count_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		      struct error *err)
{
	n_reads++;
	return real_read(s, id, offset, buffer, bytes, err);
}

/* Reads the head of a listed chunk. A long head takes two reads, and the next one of the same length takes
 * one. */
static void read_listed(struct store *s, const struct chunk_id *id)
{
	struct store_ops ops = *s->ops;
	const struct store_ops *before = s->ops;
	struct store_object *objects;
	size_t n, likely = 0;

	real_read = ops.read;
	ops.read = count_read;
	s->ops = &ops;
	assert_int_equal(store_list(s, NULL, &objects, &n, NULL), 0);
	assert_memory_equal(&objects[0].id, id, sizeof(*id));
	for (unsigned round = 0; round < 3; round++) {
		struct chunk_view view;
		void *head;

		n_reads = 0;
		assert_int_equal(store_read_head_of(s, &objects[0], &likely, &head, &view, NULL), 0);
		assert_int_equal(view.header->n_records, 5000);
		assert_int_equal(likely, view.header->payload_offset);
		assert_int_equal(n_reads, round ? 1 : 2);
		free(head);
		likely += round; /* as if the previous head was longer */
	}
	free(objects);
	s->ops = before;
}

/* Covers a head that takes several reads, one under another chunk's name, and one that is cut off. */
TEST_IN_FOLDER(a_head_is_read_whole_and_checked)
{
	struct store *s = open_store(*state);
	struct chunk_builder *b;
	struct chunk_id id = id_of(5), other = id_of(6);
	struct iovec parts[2];
	struct chunk_view view;
	struct error err = ERROR_INIT;
	void *head;

	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_reset(b, 0);
	for (int i = 0; i < 5000; i++) {
		char path[32];
		int n = snprintf(path, sizeof(path), "some/folder/%d", i);
		struct chunk_sample sample = {
		    .path = path, .path_length = (size_t)n, .data = path, .bytes = 4};

		assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
	}
	assert_int_equal(chunk_builder_finish(b, &id, 1, parts, NULL), 0);
	assert_int_equal(store_put(s, &id, parts, 2, NULL), 0);
	assert_int_equal(store_read_head(s, &id, &head, &view, NULL), 0);
	assert_int_equal(view.header->n_records, 5000);
	free(head);
	read_listed(s, &id);
	assert_int_equal(store_put(s, &other, parts, 2, NULL), 0);
	assert_int_equal(store_read_head(s, &other, &head, &view, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "a different chunk"));
	parts[1].iov_len = 0;
	assert_int_equal(store_remove(s, &id, NULL), 0);
	assert_int_equal(store_put(s, &id, parts, 2, NULL), 0);
	assert_int_equal(store_read_head(s, &id, &head, &view, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "truncated"));
	chunk_builder_free(b);
	store_free(s);
}
