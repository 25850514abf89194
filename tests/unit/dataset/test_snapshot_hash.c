/* SPDX-License-Identifier: Apache-2.0 */
/* A hash index that is made to be slow: what it costs to refuse it does not depend on who made it. */
#include "fixture.h"

#include <errno.h>

#include "checksum.h"
#include "snapshot_format.h"

enum { N = 3000, N_SLOTS = 4096 };

static struct image make(void)
{
	static char text[N][16];
	static const char *paths[N];

	for (size_t i = 0; i < N; i++) {
		snprintf(text[i], sizeof(text[i]), "a/%04zu", i);
		paths[i] = text[i];
	}
	return make_snapshot(paths, N, 1000, true);
}

static struct snapshot_slot *slots_of(struct image *image)
{
	struct snapshot_header *h = (struct snapshot_header *)image->data;

	assert_int_equal(h->sections[SNAPSHOT_HASH].bytes, N_SLOTS * sizeof(struct snapshot_slot));
	return (struct snapshot_slot *)(image->data + h->sections[SNAPSHOT_HASH].offset);
}

static void sign(struct image *image)
{
	struct snapshot_header *h = (struct snapshot_header *)image->data;
	struct snapshot_extent *e = &h->sections[SNAPSHOT_HASH];

	e->xxh3 = checksum_xxh3(image->data + e->offset, e->bytes);
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
}

static void test_more_than_three_quarters(void **state)
{
	struct image image = make();
	struct snapshot_header *h = (struct snapshot_header *)image.data;
	struct snapshot *s;
	struct error err = ERROR_INIT;

	/* All in a quarter of the slots less than there must be. */
	h->sections[SNAPSHOT_HASH].bytes /= 2;
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "hash index"));
	free(image.data);
}

/* One run of taken slots, and sample 0 at its far end: a search for it goes through all of them. */
static void test_a_long_probe(void **state)
{
	struct image image = make();
	struct snapshot_slot *slots = slots_of(&image), *run = calloc(N_SLOTS, sizeof(*run)), first = {0};
	uint64_t hash = checksum_xxh3("a/0000", 6), number;
	struct snapshot *s;
	struct error err = ERROR_INIT;
	size_t n = 0;

	for (size_t i = 0; i < N_SLOTS; i++) {
		if (slots[i].sample_plus_1 == 1)
			first = slots[i];
		else if (slots[i].sample_plus_1)
			run[(hash + n++) % N_SLOTS] = slots[i];
	}
	run[(hash + n) % N_SLOTS] = first;
	memcpy(slots, run, N_SLOTS * sizeof(*run));
	free(run);
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), 0);
	assert_int_equal(snapshot_find(s, "a/0000", 6, &number), -ENOENT);
	assert_int_equal(snapshot_verify(s, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "record 0"));
	snapshot_close(s);
	free(image.data);
}

/* Long paths that overlap in the file are checked byte by byte: many times what the file holds. */
static void test_overlapping_paths(void **state)
{
	struct image image = make();
	struct snapshot_header *h = (struct snapshot_header *)image.data;
	struct snapshot_record *records =
	    (struct snapshot_record *)(image.data + h->sections[SNAPSHOT_RECORDS].offset);
	struct snapshot *s;
	struct error err = ERROR_INIT;

	records[N - 1].path_length += 1;
	records[N - 1].path_offset -= 1;
	h->sections[SNAPSHOT_RECORDS].xxh3 = checksum_xxh3(records, h->sections[SNAPSHOT_RECORDS].bytes);
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), 0);
	assert_int_equal(snapshot_verify(s, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "paths"));
	snapshot_close(s);
	free(image.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_more_than_three_quarters),
	    cmocka_unit_test(test_a_long_probe),
	    cmocka_unit_test(test_overlapping_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
