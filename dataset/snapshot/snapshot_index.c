/* SPDX-License-Identifier: Apache-2.0 */
/* The hash index, written from its first bucket to its last; and what equal hashes show: names that are a
 * file and a directory. */
#include "snapshot_parts.h"

#include <errno.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/text.h"

#define MAX_EQUAL (SNAPSHOT_PROBE_MAX * SNAPSHOT_BUCKET_SLOTS)

struct index_walk {
	struct section_writer buckets;
	struct snapshot_bucket bucket;
	uint64_t at; /* the bucket's number */
	/* The samples whose paths have the hash of the last entry. */
	uint64_t hash;
	uint32_t equal[MAX_EQUAL];
	size_t n_equal;
};

static int too_many(struct error *err)
{
	return error_set(
	    err, -E2BIG,
	    "the names of too many samples have one checksum, which no accident does: rename them");
}

/* Ends the bucket, and begins the next one. */
static int next_bucket(struct index_walk *w)
{
	int r = section_add(&w->buckets, &w->bucket, sizeof(w->bucket));

	w->bucket = (struct snapshot_bucket){0};
	w->at++;
	return r;
}

/* Hashes ascend, and so do the buckets where they belong. */
static int take_sample(struct snapshot_builder *b, struct index_walk *w, uint64_t hash, uint32_t sample,
		       struct error *err)
{
	uint64_t home = snapshot_bucket_of(hash, b->header.n_buckets);
	int r = 0;

	while (r == 0 && (w->at < home || w->bucket.n_taken == SNAPSHOT_BUCKET_SLOTS))
		r = next_bucket(w);
	if (r < 0)
		return r;
	if (w->at - home >= SNAPSHOT_PROBE_MAX || w->n_equal == MAX_EQUAL)
		return too_many(err);
	w->bucket.tags[w->bucket.n_taken] = (uint8_t)hash;
	w->bucket.samples[w->bucket.n_taken++] = sample;
	w->equal[w->n_equal++] = sample;
	return 0;
}

static int read_path(const struct snapshot_builder *b, uint64_t word, char path[CHUNK_NAME_MAX],
		     size_t *ret_length)
{
	size_t length = word >> SNAPSHOT_PATH_OFFSET_BITS & CHUNK_NAME_MAX, done = 0;
	uint64_t offset = word & ((UINT64_C(1) << SNAPSHOT_PATH_OFFSET_BITS) - 1);
	int r = fd_read_at(b->fd, path, length, b->header.sections[SNAPSHOT_PATHS].offset + offset, &done);

	if (r == 0 && done < length)
		r = -EIO;
	if (r == 0)
		*ret_length = length;
	return r;
}

/* A file system could not show it. */
static int check_directory(const struct snapshot_builder *b, const struct index_walk *w, uint64_t word,
			   struct error *err)
{
	char directory[CHUNK_NAME_MAX], path[CHUNK_NAME_MAX], text[200];
	size_t length = 0, path_length = 0, done = 0;
	int r = w->n_equal ? read_path(b, word, directory, &length) : 0;

	for (size_t i = 0; i < w->n_equal && r == 0; i++) {
		struct snapshot_record record;

		r = fd_read_at(b->fd, &record, sizeof(record),
			       b->header.sections[SNAPSHOT_RECORDS].offset + w->equal[i] * sizeof(record),
			       &done);
		if (r == 0 && done < sizeof(record))
			r = -EIO;
		if (r == 0)
			r = read_path(b, record.path, path, &path_length);
		if (r == 0 && path_length == length && memcmp(path, directory, length) == 0)
			return error_set(err, -EEXIST,
					 "'%s' would be a file and a directory; remove one of them first",
					 text_printable(text, sizeof(text), directory, length));
	}
	return r;
}

static int take_name(struct snapshot_builder *b, struct index_walk *w, uint64_t hash, uint64_t value,
		     struct error *err)
{
	if (hash != w->hash)
		w->n_equal = 0;
	w->hash = hash;
	if (value & NAME_IS_DIRECTORY)
		return check_directory(b, w, value, err);
	return take_sample(b, w, hash, (uint32_t)value, err);
}

/* Directories, which have the highest bit set, come behind the samples of the same hash. */
static int compare_values(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

int builder_new_names(int dir_fd, size_t budget, struct spill_sort **ret)
{
	return spill_sort_new(dir_fd, budget, compare_values, ret);
}

static void walk_free(struct index_walk *w)
{
	section_free(&w->buckets);
}

int builder_write_index(struct snapshot_builder *b, struct error *err)
{
	_cleanup_(walk_free) struct index_walk w = {0};
	struct spill_entry e;
	uint64_t value;
	int r = builder_begin_section(b, &w.buckets);

	b->header.n_buckets = b->header.n_samples / SNAPSHOT_BUCKET_LOAD + 1;
	while (r == 0 && (r = spill_sort_next(b->names, &e)) == SPILL_SORT_ENTRY) {
		memcpy(&value, e.data, sizeof(value));
		r = take_name(b, &w, e.key, value, err);
	}
	while (r == 0 && (w.at < b->header.n_buckets || w.bucket.n_taken))
		r = next_bucket(&w);
	return r < 0 ? r : builder_end_section(b, &w.buckets, SNAPSHOT_HASH);
}
