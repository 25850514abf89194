/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "dataset/lookup/snapshot_map.h"

static int damaged(const struct snapshot *s, const char *what, uint64_t index, struct error *err)
{
	return error_set(err, -EBADMSG, "%s: %s %llu is wrong; " SNAPSHOT_DAMAGED, s->origin, what,
			 (unsigned long long)index);
}

static int verify_chunks(const struct snapshot *s, struct error *err)
{
	uint64_t first = 0, longest = 0;

	for (uint64_t i = 0; i < s->info.n_chunks; i++) {
		const struct snapshot_chunk_entry *c = &s->chunks[i];

		if (c->first_sample != first || c->n_samples == 0 || c->payload_offset > c->file_bytes ||
		    (i && chunk_id_compare(&s->chunks[i - 1].id, &c->id) >= 0))
			return damaged(s, "chunk", i, err);
		first += c->n_samples;
		if (c->file_bytes > longest)
			longest = c->file_bytes;
	}
	if (first != s->info.n_samples || longest != s->info.max_chunk_file_bytes)
		return damaged(s, "the count of samples or the size of chunk", s->info.n_chunks, err);
	return 0;
}

#define N_AT_ONCE 256u

static int verify_record(const struct snapshot *s, uint64_t i, struct snapshot_sample *last)
{
	struct snapshot_sample sample;
	uint64_t mtime_ns;

	if (snapshot_sample_get(s, i, &sample) < 0 || snapshot_mtime(s, i, &mtime_ns) < 0 ||
	    !chunk_name_is_valid(sample.path, sample.path_length) || sample.encoding != CHUNK_ENCODING_RAW ||
	    sample.bytes != sample.stored_bytes)
		return -EBADMSG;
	/* Samples of a chunk are in the chunk's order, and no two of them are the same record. */
	if (i > s->chunks[sample.chunk].first_sample && last->record >= sample.record)
		return -EBADMSG;
	*last = sample;
	return 0;
}

/* Checks that the hash index finds each sample. */
static int verify_index(const struct snapshot *s, struct error *err)
{
	struct path_text paths[N_AT_ONCE];
	uint64_t found[N_AT_ONCE];

	for (uint64_t first = 0; first < s->info.n_samples; first += N_AT_ONCE) {
		uint64_t left = s->info.n_samples - first, n = left < N_AT_ONCE ? left : N_AT_ONCE;

		for (uint64_t i = 0; i < n; i++)
			paths[i] = snapshot_path(s, first + i);
		snapshot_find_many(s, paths, n, found);
		for (uint64_t i = 0; i < n; i++)
			if (found[i] != first + i)
				return damaged(s, "record", first + i, err);
	}
	return 0;
}

/* Checks the sum of the paths' lengths. Paths must not overlap, so that the file's length bounds the cost of
 * reading all of them. */
static int verify_path_lengths(const struct snapshot *s, struct error *err)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < s->info.n_samples; i++)
		sum += snapshot_fields(s, i).path_length;
	return sum == s->paths_bytes ? 0 : damaged(s, "the total length of paths", sum, err);
}

static int verify_records(const struct snapshot *s, struct error *err)
{
	struct snapshot_sample sample = {0};
	uint64_t total = 0;
	uint32_t longest = 0, first_bytes = 0;
	bool equal = true, images = true;

	for (uint64_t i = 0; i < s->info.n_samples; i++) {
		if (verify_record(s, i, &sample) < 0)
			return damaged(s, "record", i, err);
		images = images && snapshot_name_is_image(sample.path, sample.path_length);
		total += sample.bytes;
		first_bytes = i == 0 ? sample.bytes : first_bytes;
		equal = equal && sample.bytes == first_bytes;
		if (sample.bytes > longest)
			longest = sample.bytes;
	}
	if (total != s->info.total_bytes || longest != s->info.max_bytes ||
	    s->info.equal_bytes != (equal ? longest : 0))
		return damaged(s, "the sum of records", s->info.n_samples, err);
	if (s->info.names != SNAPSHOT_NAMES_UNKNOWN && images != (s->info.names == SNAPSHOT_NAMES_IMAGES))
		return damaged(s, "the header's kind of names", s->info.names, err);
	return 0;
}

/* Checks the tree. If paths ascend strictly, are contiguous in the file, and all numbers are in range, the
 * tree is a permutation. */
static int verify_tree(const struct snapshot *s, struct error *err)
{
	int32_t class_index = SNAPSHOT_NO_CLASS;
	struct path_text last = {0};
	const char *next = s->paths;

	for (uint64_t i = 0; i < s->info.n_samples; i++) {
		struct path_text path = snapshot_path(s, s->tree[i]);
		struct snapshot_sample sample;

		if (!path.text || path.text != next || (i && path_order_compare(last, path) >= 0))
			return damaged(s, "position in tree order", i, err);
		next += path.length;
		size_t top = path_top_length(path);

		if (top && (class_index < 0 || path_top_length(last) != top ||
			    memcmp(last.text, path.text, top) != 0)) {
			const char *name;
			size_t length;

			if (snapshot_class_name(s, (uint32_t)++class_index, &name, &length) < 0 ||
			    length != top || name != path.text)
				return damaged(s, "class", (uint64_t)class_index, err);
		}
		if (snapshot_sample_get(s, s->tree[i], &sample) < 0 || sample.class_index != class_index)
			return damaged(s, "the class at tree position", i, err);
		last = path;
	}
	if ((uint64_t)(class_index + 1) != s->info.n_classes)
		return damaged(s, "the count of classes", s->info.n_classes, err);
	return 0;
}

static int verify_hash(const struct snapshot *s, struct error *err)
{
	uint64_t n_taken = 0;

	/* verify_index() finds every sample; there must be no more slots than samples. */
	for (uint64_t i = 0; i < s->n_all_buckets; i++)
		n_taken += s->buckets[i].n_taken;
	if (n_taken != s->info.n_samples)
		return damaged(s, "the count of hash index entries", n_taken, err);
	return 0;
}

int snapshot_verify_tables(const struct snapshot *s, struct error *err)
{
	int r = snapshot_check_tables(s, err);

	if (r == 0 && (s->info.max_bytes > s->info.max_chunk_file_bytes ||
		       (s->info.equal_bytes && s->info.equal_bytes != s->info.max_bytes)))
		r = damaged(s, "the length of samples", s->info.max_bytes, err);
	return r < 0 ? r : verify_chunks(s, err);
}

int snapshot_verify(const struct snapshot *s, struct error *err)
{
	int r = snapshot_check_rest(s, err);

	if (r == 0)
		r = snapshot_verify_tables(s, err);
	if (r == 0)
		r = verify_hash(s, err);
	if (r == 0)
		r = verify_path_lengths(s, err); /* first, because verify_records() reads the paths */
	if (r == 0)
		r = verify_records(s, err);
	if (r == 0)
		r = verify_index(s, err);
	if (r == 0)
		r = verify_tree(s, err);
	return r;
}
