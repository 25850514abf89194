/* SPDX-License-Identifier: Apache-2.0 */
/* Information in the names of a staging folder. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/sources/stage_index.h"
#include "lib/cleanup.h"

#define OWNER 1000

static struct staged_key key_of(uint64_t chunk, uint64_t folder)
{
	struct staged_key key = {.folder_dev = 7, .folder_ino = folder};

	memcpy(key.id.bytes, &chunk, sizeof(chunk));
	return key;
}

static struct access_stamp stamp_of(uint64_t ino, uint64_t bytes)
{
	return (struct access_stamp){.dev = 7,
				     .ino = ino,
				     .bytes = bytes,
				     .changed_s = -5,
				     .written_s = INT64_C(1) << 40,
				     .changed_ns = 999999999,
				     .written_ns = 0};
}

static struct staged *add(struct stage_index *x, uint64_t chunk, uint64_t folder, uint64_t bytes)
{
	const struct staged_key key = key_of(chunk, folder);
	const struct access_stamp stamp = stamp_of(chunk + 100, bytes);
	struct staged *f = stage_index_add(x, &key, OWNER, &stamp, 1);

	assert_non_null(f);
	f->state = STAGED_READY;
	return f;
}

TEST(a_name_tells_all)
{
	struct stage_index x = {.n = 0}, y = {.n = 0};
	struct staged *f = add(&x, 1, 2, 5000), *g;
	char name[STAGER_NAME_BYTES], again[STAGER_NAME_BYTES];

	staged_name(f, name);
	g = stage_index_add_name(&y, name, 9);
	assert_non_null(g);
	assert_memory_equal(&g->key, &f->key, sizeof(g->key));
	assert_true(access_stamp_equal(&g->stamp, &f->stamp));
	assert_int_equal(g->state, STAGED_READY);
	assert_int_equal(g->set->uid, OWNER);
	assert_int_equal(g->set->used_s, 9);
	assert_int_equal(y.bytes, 8192);
	staged_name(g, again);
	assert_string_equal(name, again);
	stage_index_clear(&x);
	stage_index_clear(&y);
}

TEST(other_names_are_not_ours)
{
	static const char *const changes[] = {"", " ", "x", ".0", "\n"};
	struct stage_index x = {.n = 0}, y = {.n = 0};
	char name[STAGER_NAME_BYTES], other[STAGER_NAME_BYTES + 8];

	staged_name(add(&x, 1, 2, 5000), name);
	for (size_t i = 1; i < sizeof(changes) / sizeof(changes[0]); i++) {
		snprintf(other, sizeof(other), "%s%s", name, changes[i]);
		assert_null(stage_index_add_name(&y, other, 0));
		snprintf(other, sizeof(other), "%s%s", changes[i], name);
		assert_null(stage_index_add_name(&y, other, 0));
	}
	/* Replaces each byte, or cuts the name there. The result is another valid name, or none, and nothing
	 * breaks. */
	for (size_t i = 0; name[i]; i++) {
		strcpy(other, name);
		other[i] = other[i] == '.' ? '0' : '.';
		assert_null(stage_index_add_name(&y, other, 0));
		strcpy(other, name);
		other[i] = (char)(other[i] == 'g' ? 'h' : 'g');
		assert_null(stage_index_add_name(&y, other, 0));
		strcpy(other, name);
		other[i] = '\0';
		(void)stage_index_add_name(&y, other, 0);
	}
	assert_null(stage_index_add_name(&y, "-1", 0));
	stage_index_clear(&x);
	stage_index_clear(&y);
}

TEST(many_staged_files_are_counted_by_owner)
{
	enum { N = 5000 };
	struct stage_index x = {.n = 0};
	struct staged *files[N];
	uint64_t left = 0;

	for (uint64_t i = 0; i < N; i++)
		files[i] = add(&x, i, i % 3, 4096 * (1 + i % 2));
	assert_int_equal(x.n, N);
	assert_int_equal(stage_index_bytes_of(&x, OWNER), x.bytes);
	assert_int_equal(stage_index_bytes_of(&x, OWNER + 1), 0);
	for (uint64_t i = 0; i < N; i++) {
		const struct staged_key key = key_of(i, i % 3), other = key_of(i, 3);

		assert_ptr_equal(stage_index_find(&x, &key), files[i]);
		assert_null(stage_index_find(&x, &other));
	}
	for (uint64_t i = 0; i < N; i++) {
		const struct staged_key key = key_of(i, i % 3);

		if (i % 3 == 2) {
			stage_index_drop(&x, files[i]);
		} else if (i % 3 == 1) {
			const struct access_stamp stamp = files[i]->stamp;

			stage_index_retire(&x, files[i]);
			assert_true(stage_index_goes(&x, &key, &stamp));
			stage_index_drop(&x, files[i]);
			assert_false(stage_index_goes(&x, &key, &stamp));
		} else {
			left += staged_file_bytes(files[i]);
			continue;
		}
		assert_null(stage_index_find(&x, &key));
	}
	assert_int_equal(x.bytes, left);
	assert_non_null(x.sets);
	assert_null(x.sets->next); /* the other sets are empty, and so dropped */
	stage_index_clear(&x);
	assert_int_equal(x.bytes, 0);
}

TEST(another_file_of_the_chunk_goes)
{
	struct stage_index x = {.n = 0}, y = {.n = 0};
	const struct staged_key key = key_of(1, 2);
	struct staged *first, *second;
	char one[STAGER_NAME_BYTES], two[STAGER_NAME_BYTES];

	staged_name(add(&x, 1, 2, 5000), one);
	stage_index_clear(&x);
	staged_name(add(&x, 1, 2, 6000), two);
	first = stage_index_add_name(&y, one, 0);
	second = stage_index_add_name(&y, two, 0);
	assert_ptr_equal(stage_index_find(&y, &key), second);
	assert_int_equal(first->state, STAGED_GOING);
	assert_int_equal(y.bytes, 2 * 8192);
	assert_int_equal(y.n, 1);
	stage_index_clear(&x);
	stage_index_clear(&y);
}

TEST(what_somebody_reads_outlives_the_index)
{
	struct stage_index x = {.n = 0};
	_cleanup_(freep) struct staged *read = add(&x, 1, 2, 5000), *going = add(&x, 2, 2, 5000);

	(void)add(&x, 3, 2, 5000);
	read->refs = going->refs = 1;
	stage_index_retire(&x, going);
	stage_index_clear(&x);
	assert_int_equal(read->state, STAGED_LOST);
	assert_int_equal(going->state, STAGED_LOST);
	assert_int_equal(x.bytes, 0);
	assert_null(x.sets);
}
