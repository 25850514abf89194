/* SPDX-License-Identifier: Apache-2.0 */
/* A hash index that was made to be slow. The cost to refuse it does not depend on its maker. */
#include "fixture.h"

#include <errno.h>

#include "dataset/checksum/checksum.h"
#include "dataset/lookup/snapshot_format.h"

enum { N = 3000 };

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

static struct snapshot_bucket *buckets_of(struct image *image, size_t *ret_n)
{
	struct snapshot_header *h = (struct snapshot_header *)image->data;

	*ret_n = h->sections[SNAPSHOT_HASH].bytes / sizeof(struct snapshot_bucket);
	return (struct snapshot_bucket *)(image->data + h->sections[SNAPSHOT_HASH].offset);
}

static void sign(struct image *image)
{
	struct snapshot_header *h = (struct snapshot_header *)image->data;
	struct snapshot_extent *e = &h->sections[SNAPSHOT_HASH];

	e->xxh3 = checksum_xxh3(image->data + e->offset, e->bytes);
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
}

TEST(too_few_buckets)
{
	struct image image = make();
	struct snapshot_header *h = (struct snapshot_header *)image.data;
	struct snapshot *s;
	uint64_t bytes = h->sections[SNAPSHOT_HASH].bytes, n = h->n_buckets;

	for (int wrong = 0; wrong < 4; wrong++) {
		struct error err = ERROR_INIT;

		h->sections[SNAPSHOT_HASH].bytes =
		    wrong == 0 ? (N - 1) / SNAPSHOT_BUCKET_SLOTS * sizeof(struct snapshot_bucket)
			       : bytes - (wrong == 1);
		h->n_buckets = wrong == 2 ? bytes / sizeof(struct snapshot_bucket) + 1 : wrong == 3 ? 0 : n;
		if (wrong == 0)
			h->n_buckets = 1;
		sign(&image);
		assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "hash index"));
	}
	free(image.data);
}

/* All buckets are full or count as full, and sample 0 is at the far end. A search for it visits many buckets,
 * but not all. */
TEST(a_long_probe)
{
	struct image image = make();
	size_t n, first = 0;
	struct snapshot_bucket *buckets = buckets_of(&image, &n);
	uint64_t hash = checksum_xxh3("a/0000", 6), number;
	struct snapshot *s;
	struct error err = ERROR_INIT;

	first = snapshot_bucket_of(hash, ((struct snapshot_header *)image.data)->n_buckets);
	assert_true(first + SNAPSHOT_PROBE_MAX < n);
	for (size_t i = 0; i < n; i++) {
		struct snapshot_bucket *b = &buckets[i];

		b->n_taken = SNAPSHOT_BUCKET_SLOTS;
		for (size_t k = 0; k < SNAPSHOT_BUCKET_SLOTS; k++) {
			bool is_it = i == first + SNAPSHOT_PROBE_MAX && k == 0;

			b->tags[k] = is_it ? (uint8_t)hash : (uint8_t)~hash;
			b->samples[k] = is_it ? 0 : 1;
		}
	}
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), 0);
	assert_int_equal(snapshot_find(s, "a/0000", 6, &number), -ENOENT);
	assert_int_equal(snapshot_verify(s, &err), -EBADMSG);
	snapshot_close(s);
	/* One bucket earlier, it is found. */
	buckets[first + SNAPSHOT_PROBE_MAX - 1] = buckets[first + SNAPSHOT_PROBE_MAX];
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), 0);
	assert_int_equal(snapshot_find(s, "a/0000", 6, &number), 0);
	assert_int_equal(number, 0);
	snapshot_close(s);
	free(image.data);
}

/* Long paths that overlap in the file would be checked byte by byte, which is many times the file's size. */
TEST(overlapping_paths_are_checked_within_bounds)
{
	struct image image = make();
	struct snapshot_header *h = (struct snapshot_header *)image.data;
	struct snapshot_record *records =
	    (struct snapshot_record *)(image.data + h->sections[SNAPSHOT_RECORDS].offset);
	struct snapshot *s;
	struct error err = ERROR_INIT;

	records[N - 1].path +=
	    (UINT64_C(1) << SNAPSHOT_PATH_OFFSET_BITS) - 1; /* longer, and begins earlier */
	h->sections[SNAPSHOT_RECORDS].xxh3 = checksum_xxh3(records, h->sections[SNAPSHOT_RECORDS].bytes);
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), 0);
	assert_int_equal(snapshot_verify(s, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "paths"));
	snapshot_close(s);
	free(image.data);
}

/* Compares the answers with those of one search at a time. */
static void compare_ways(const struct snapshot *s, const struct path_text *paths, size_t n)
{
	uint64_t *together = malloc(n * sizeof(*together)), n_found = 0;

	assert_non_null(together);
	uint64_t n_together = snapshot_find_many(s, paths, n, together);

	for (size_t i = 0; i < n; i++) {
		uint64_t number = SNAPSHOT_NOT_FOUND;

		n_found += snapshot_find(s, paths[i].text, paths[i].length, &number) == 0;
		assert_int_equal(together[i], number);
	}
	assert_int_equal(n_together, n_found);
	free(together);
}

/* The index is valid, or damaged. A damaged one finds a part of the paths, within bounds. */
TEST(many_paths_are_found_within_bounds)
{
	static char text[2 * N][16];
	static struct path_text paths[2 * N];
	struct image image = make();
	size_t n_buckets;
	struct snapshot_bucket *buckets = buckets_of(&image, &n_buckets);
	uint64_t seed = 88172645463325252u;
	struct snapshot *s;

	for (size_t i = 0; i < 2 * N; i++) /* every second path is absent */
		paths[i] =
		    (struct path_text){text[i], (size_t)snprintf(text[i], sizeof(text[i]),
								 i % 2 ? "b/%04zu" : "a/%04zu", i / 2)};
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, NULL), 0);
	for (size_t n = 0; n < 100; n++)
		compare_ways(s, paths, n + 1);
	compare_ways(s, paths, 2 * N);
	assert_int_equal(snapshot_find_many(s, paths, 0, NULL), 0);
	snapshot_close(s);
	for (int round = 0; round < 50; round++) {
		for (int k = 0; k < 100; k++) {
			struct snapshot_bucket *b = &buckets[(seed >> 8) % n_buckets];

			seed = seed * 6364136223846793005u + 1442695040888963407u;
			b->n_taken = seed >> 60 ? SNAPSHOT_BUCKET_SLOTS : (uint32_t)(seed >> 16);
			b->tags[seed >> 20 & 7] = (uint8_t)(seed >> 32);
			b->samples[seed >> 24 & 7] = (uint32_t)(seed >> 30) % (N + 5);
		}
		assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, NULL), 0);
		compare_ways(s, paths, 2 * N);
		snapshot_close(s);
	}
	free(image.data);
}
