/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "snapshot_map.h"

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

static int verify_record(const struct snapshot *s, uint64_t i)
{
	const struct snapshot_record *r = &s->records[i];
	struct path_text path = snapshot_path(s, i);
	uint64_t found;

	if (!path.text || !chunk_name_is_valid(path.text, path.length) || !snapshot_record_fits(s, i) ||
	    r->encoding != CHUNK_ENCODING_RAW || r->bytes != r->stored_bytes)
		return -EBADMSG;
	const struct snapshot_chunk_entry *c = &s->chunks[r->chunk];

	/* Samples of a chunk are in the chunk's order, and no two of them are the same record. */
	if (i > c->first_sample && s->records[i - 1].record >= r->record)
		return -EBADMSG;
	if (snapshot_find(s, path.text, path.length, &found) < 0 || found != i)
		return -EBADMSG;
	return 0;
}

/* Paths must lie one behind the other, so that the file's length bounds the cost of reading all of them. */
static int verify_path_lengths(const struct snapshot *s, struct error *err)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < s->info.n_samples; i++)
		sum += s->records[i].path_length;
	return sum == s->paths_bytes ? 0 : damaged(s, "the length of paths", sum, err);
}

static int verify_records(const struct snapshot *s, struct error *err)
{
	uint64_t total = 0;
	uint32_t longest = 0;
	bool equal = true, images = true;

	for (uint64_t i = 0; i < s->info.n_samples; i++) {
		if (verify_record(s, i) < 0)
			return damaged(s, "record", i, err);
		struct path_text path = snapshot_path(s, i);

		images = images && snapshot_name_is_image(path.text, path.length);
		total += s->records[i].bytes;
		equal = equal && s->records[i].bytes == s->records[0].bytes;
		if (s->records[i].bytes > longest)
			longest = s->records[i].bytes;
	}
	if (total != s->info.total_bytes || longest != s->info.max_bytes ||
	    s->info.equal_bytes != (equal ? longest : 0))
		return damaged(s, "the sum of records", s->info.n_samples, err);
	if (s->info.names != SNAPSHOT_NAMES_UNKNOWN && images != (s->info.names == SNAPSHOT_NAMES_IMAGES))
		return damaged(s, "what the header says of names,", s->info.names, err);
	return 0;
}

/* If paths ascend strictly and numbers are in range, the tree is a permutation. */
static int verify_tree(const struct snapshot *s, struct error *err)
{
	int32_t class_index = SNAPSHOT_NO_CLASS;
	struct path_text last = {0};

	for (uint64_t i = 0; i < s->info.n_samples; i++) {
		struct path_text path = snapshot_path(s, s->tree[i]);

		if (!path.text || (i && path_order_compare(last, path) >= 0))
			return damaged(s, "place in tree order", i, err);
		size_t top = path_top_length(path);

		if (top && (class_index < 0 || path_top_length(last) != top ||
			    memcmp(last.text, path.text, top) != 0)) {
			const char *name;
			size_t length;

			if (snapshot_class_name(s, (uint32_t)++class_index, &name, &length) < 0 ||
			    length != top || memcmp(name, path.text, top) != 0)
				return damaged(s, "class", (uint64_t)class_index, err);
		}
		if (s->records[s->tree[i]].class_index != (top ? class_index : SNAPSHOT_NO_CLASS))
			return damaged(s, "the class of place", i, err);
		last = path;
	}
	if ((uint64_t)(class_index + 1) != s->info.n_classes)
		return damaged(s, "the count of classes", s->info.n_classes, err);
	return 0;
}

static int verify_hash(const struct snapshot *s, struct error *err)
{
	uint64_t n_taken = 0;

	/* verify_record() has found every sample; there must be no more slots than samples. */
	for (uint64_t i = 0; i < s->n_slots; i++)
		n_taken += s->slots[i].sample_plus_1 != 0;
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
		r = verify_tree(s, err);
	return r;
}
