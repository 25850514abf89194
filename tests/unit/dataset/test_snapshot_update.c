/* SPDX-License-Identifier: Apache-2.0 */
/* An updated snapshot equals one that was built from scratch, except for the buckets of its hash index, which
 * finds the same samples. */
#include "fixture.h"

#include <errno.h>

#include "dataset/lookup/snapshot_format.h"

enum { N_PATHS = 2000, MAX_CHUNKS = 200, MAX_PATH = 48 };

struct live {
	bool is_live;
	uint32_t chunk, record;
};

/* A dataset, as its list of chunks. */
struct model {
	struct image chunks[MAX_CHUNKS]; /* heads of chunks */
	struct chunk_view views[MAX_CHUNKS];
	struct digest digests[MAX_CHUNKS];
	size_t n_chunks;
	bool has_digests;
	enum chunk_layout layout;
	struct live live[N_PATHS];
	uint64_t seed;
};

static uint64_t next_random(struct model *m, uint64_t below)
{
	m->seed ^= m->seed << 13;
	m->seed ^= m->seed >> 7;
	m->seed ^= m->seed << 17;
	return m->seed % below;
}

/* Returns paths of files in the root, in folders and in folders within them, images first. */
static size_t path_of(size_t i, char path[MAX_PATH])
{
	const char *ending = i < N_PATHS / 2 ? "png" : "bin";

	if (i % 50 == 0)
		return (size_t)snprintf(path, MAX_PATH, "%zu.%s", i, ending);
	return (size_t)snprintf(path, MAX_PATH, i % 3 ? "class%zu/%zu.%s" : "class%zu/deep-%zu/a.%s",
				i * 7 % 23, i, ending);
}

/* Adds a chunk with these samples, or one that deletes them. */
static void add_chunk(struct model *m, const size_t *which, size_t n, uint32_t flags)
{
	struct chunk_builder *b;
	struct iovec parts[2];
	uint64_t needed = 0, at = m->n_chunks;
	struct chunk_id id = {.bytes = {1, (uint8_t)(at >> 8), (uint8_t)at}};
	bool whole = next_random(m, 2), equal_times = next_random(m, 4) == 0;

	assert_true(at < MAX_CHUNKS);
	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_reset(b, flags ? flags : chunk_layout_flags(m->layout));
	for (size_t i = 0; i < n; i++) {
		char path[MAX_PATH];
		unsigned char data[64] = {(unsigned char)next_random(m, 256)};
		struct chunk_sample sample = {
		    .path = path,
		    .path_length = path_of(which[i], path),
		    .data = data,
		    .bytes = flags ? 0 : next_random(m, sizeof(data)) + 1,
		    .mode = 0100600 + (uint32_t)next_random(m, 64),
		    .mtime_ns = equal_times ? 5 : next_random(m, 1000) * (whole ? 1000000000 : 77),
		};

		assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
		m->live[which[i]] = (struct live){flags == 0, (uint32_t)at, (uint32_t)i};
	}
	assert_int_equal(chunk_builder_finish(b, &id, 9, parts, NULL), 0);
	m->chunks[at] = image_join(parts);
	assert_int_equal(chunk_parse_head(m->chunks[at].data, parts[0].iov_len, m->chunks[at].bytes, "CHUNK",
					  &m->views[at], &needed, NULL),
			 0);
	m->digests[at].bytes[0] = (uint8_t)(at + 1);
	m->n_chunks++;
	chunk_builder_free(b);
}

static struct image build(const struct model *m)
{
	struct snapshot_builder *b = new_builder();

	for (size_t i = 0; i < m->n_chunks; i++) {
		const struct chunk_header *h = m->views[i].header;
		struct meta_chunk chunk = {
		    .id = h->id,
		    .file_bytes = h->file_bytes,
		    .payload_offset = h->payload_offset,
		    .head_xxh3 = h->head_xxh3,
		    .flags = h->flags,
		    .has_sha256 = m->has_digests,
		    .sha256 = m->digests[i],
		};

		assert_int_equal(snapshot_builder_add_chunk(b, &chunk), 0);
	}
	for (size_t i = 0; i < N_PATHS; i++) {
		const struct live *l = &m->live[i];
		char path[MAX_PATH];
		struct meta_path entry = {.path = path, .path_length = path_of(i, path)};

		if (!l->is_live)
			continue;
		entry.chunk = m->views[l->chunk].header->id;
		entry.record_index = l->record;
		entry.record = m->views[l->chunk].records[l->record];
		assert_int_equal(snapshot_builder_add_path(b, &entry), 0);
	}
	return finish(b);
}

/* Asserts that replaying the chunks one after the other makes the same file. */
static void check_replay(const struct model *m, const struct image *built)
{
	struct snapshot_builder *b = new_builder();

	for (size_t i = 0; i < m->n_chunks; i++)
		assert_int_equal(
		    snapshot_builder_replay(b, &m->views[i], m->has_digests ? &m->digests[i] : NULL), 0);
	struct image replayed = finish(b);

	assert_int_equal(replayed.bytes, built->bytes);
	assert_memory_equal(replayed.data, built->data, built->bytes);
	free(replayed.data);
}

/* Returns the result of snapshot_update(). ret: the file, unless it was not updated. */
static int update(const struct model *m, const struct image *from, size_t first_chunk, struct image *ret,
		  struct error *err)
{
	struct snapshot_changes *c;
	struct snapshot *base;
	const struct snapshot_target target = snapshot_target();
	int r;

	assert_int_equal(open_snapshot_bytes(from->data, from->bytes, &base, err), 0);
	assert_int_equal(snapshot_changes_new(UINT64_MAX, &c), 0);
	for (size_t i = first_chunk; i < m->n_chunks; i++)
		assert_int_equal(
		    snapshot_changes_add(c, &m->views[i], m->has_digests ? &m->digests[i] : NULL), 0);
	r = snapshot_update(base, c, &target, err);
	if (r == 0)
		*ret = image_of(target.fd);
	close(target.fd);
	snapshot_changes_free(c);
	snapshot_close(base);
	return r;
}

static const struct snapshot_header *header_of(const struct image *image)
{
	return (const struct snapshot_header *)image->data;
}

static void verify(const struct image *image)
{
	struct error err = ERROR_INIT;
	struct snapshot *s;

	if (open_snapshot_bytes(image->data, image->bytes, &s, &err) < 0 || snapshot_verify(s, &err) < 0)
		fail_msg("%s", err.text);
	snapshot_close(s);
}

static void compare(const struct image *updated, const struct image *built)
{
	const struct snapshot_header *a = header_of(updated), *b = header_of(built);

	assert_int_equal(a->n_samples, b->n_samples);
	assert_int_equal(a->n_chunks, b->n_chunks);
	assert_int_equal(a->n_classes, b->n_classes);
	assert_int_equal(a->equal_bytes, b->equal_bytes);
	assert_int_equal(a->max_bytes, b->max_bytes);
	assert_int_equal(a->names, b->names);
	assert_int_equal(a->total_bytes, b->total_bytes);
	assert_int_equal(a->max_chunk_file_bytes, b->max_chunk_file_bytes);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->layout, b->layout);
	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++) {
		const struct snapshot_extent *x = &a->sections[i], *y = &b->sections[i];

		if (i == SNAPSHOT_HASH)
			continue;
		assert_int_equal(x->bytes, y->bytes);
		assert_memory_equal(updated->data + x->offset, built->data + y->offset, x->bytes);
		assert_int_equal(x->xxh3, y->xxh3);
	}
	verify(updated);
}

static size_t choose(struct model *m, size_t *which, size_t n, bool live, size_t n_paths)
{
	size_t n_chosen = 0;

	for (size_t tries = 0; n_chosen < n && tries < 4 * N_PATHS; tries++) {
		size_t i = next_random(m, n_paths);

		if (!live || m->live[i].is_live)
			which[n_chosen++] = i;
	}
	return n_chosen;
}

static void model_free(struct model *m)
{
	for (size_t i = 0; i < m->n_chunks; i++)
		free(m->chunks[i].data);
	free(m);
}

/* Makes many small changes, each on the result of the one before. Paths come, come again, and go. */
static void change_often(uint64_t seed, bool digests, size_t n_paths)
{
	struct model *m = calloc(1, sizeof(*m));
	size_t which[N_PATHS], n_updated = 0, n_deleted = 0;

	assert_non_null(m);
	m->seed = seed;
	m->has_digests = digests;
	m->layout = digests ? CHUNK_LAYOUT_FIELDS : CHUNK_LAYOUT_PLAIN;
	for (size_t i = 0; i < 8; i++)
		add_chunk(m, which, choose(m, which, n_paths / 5, false, n_paths), 0);
	struct image now = build(m);
	for (int round = 0; round < 40; round++) {
		size_t first = m->n_chunks;
		struct image built, next;
		struct error err = ERROR_INIT;

		for (uint64_t n = next_random(m, 3) + 1; n > 0; n--) {
			bool delete = next_random(m, 5) < 2;
			size_t some = choose(m, which, next_random(m, delete ? 30 : 40) + 1,
					     delete &&next_random(m, 8) > 0, n_paths);

			if (some == 0)
				continue;
			add_chunk(m, which, some, delete ? CHUNK_FLAG_TOMBSTONE : 0);
			n_deleted += delete;
		}
		built = build(m);
		check_replay(m, &built);
		int r = update(m, &now, first, &next, &err);

		if (r < 0)
			fail_msg("%s", err.text);
		free(now.data);
		if (r == 0) {
			compare(&next, &built);
			free(built.data);
			n_updated++;
		}
		now = r == 0 ? next : built;
	}
	assert_true(n_updated > 20);
	assert_true(n_deleted > 10);
	free(now.data);
	model_free(m);
}

TEST(random_changes_equal_a_new_snapshot)
{
	for (uint64_t seed = 1; seed <= 6; seed++)
		change_often(seed * 0x9e3779b97f4a7c15, seed % 2, seed % 3 ? N_PATHS : N_PATHS / 2);
}

/* Everything is deleted, and then new samples come. */
TEST(all_is_deleted)
{
	struct model *m = calloc(1, sizeof(*m));
	struct error err = ERROR_INIT;
	size_t which[N_PATHS];

	assert_non_null(m);
	m->seed = 77;
	m->layout = CHUNK_LAYOUT_TAR;
	for (size_t i = 0; i < 300; i++)
		which[i] = i;
	add_chunk(m, which, 300, 0);
	struct image full = build(m), none = {0}, again = {0};

	add_chunk(m, which, 300, CHUNK_FLAG_TOMBSTONE);
	assert_int_equal(update(m, &full, 1, &none, &err), 0);
	struct image built = build(m);

	compare(&none, &built);
	free(built.data);
	for (size_t i = 0; i < 100; i++)
		which[i] = 1500 + i;
	add_chunk(m, which, 100, 0);
	assert_int_equal(update(m, &none, 2, &again, &err), 0);
	built = build(m);
	compare(&again, &built);
	assert_int_equal(header_of(&again)->layout, CHUNK_LAYOUT_TAR);
	free(built.data);
	free(full.data);
	free(none.data);
	free(again.data);
	model_free(m);
}

TEST(the_only_other_name_comes_and_goes)
{
	struct model *m = calloc(1, sizeof(*m));
	struct error err = ERROR_INIT;
	size_t images[3] = {1, 2, 3}, other[1] = {N_PATHS - 1};
	enum snapshot_names expected[] = {SNAPSHOT_NAMES_OTHERS, SNAPSHOT_NAMES_IMAGES};

	assert_non_null(m);
	m->seed = 9;
	add_chunk(m, images, 3, 0);
	struct image now = build(m);

	assert_int_equal(header_of(&now)->names, SNAPSHOT_NAMES_IMAGES);
	for (int i = 0; i < 2; i++) {
		struct image next, built;

		add_chunk(m, other, 1, i ? CHUNK_FLAG_TOMBSTONE : 0);
		assert_int_equal(update(m, &now, m->n_chunks - 1, &next, &err), 0);
		assert_int_equal(header_of(&next)->names, expected[i]);
		built = build(m);
		compare(&next, &built);
		free(built.data);
		free(now.data);
		now = next;
	}
	free(now.data);
	model_free(m);
}

static struct image simple(const char *const *paths, size_t n)
{
	return make_snapshot(paths, n, 2, true);
}

/* Updates a snapshot of `paths` with one chunk for each of these changes. "-path" is deleted. Returns the
 * result. */
static int update_simple(const char *const *paths, size_t n, const char *const *changes, size_t n_changes,
			 struct error *err)
{
	struct model *m = calloc(1, sizeof(*m));
	struct image from = simple(paths, n), made = {0};

	assert_non_null(m);
	for (size_t i = 0; i < n_changes; i++) {
		bool delete = changes[i][0] == '-';
		struct chunk_builder *b;
		struct iovec parts[2];
		uint64_t needed;
		struct chunk_id id = {.bytes = {1, (uint8_t)i}};
		struct chunk_sample sample = {
		    .path = changes[i] + delete,
		    .path_length = strlen(changes[i] + delete),
		    .data = (const unsigned char *)"x",
		    .bytes = delete ? 0 : 1,
		};

		assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
		chunk_builder_reset(b, delete ? CHUNK_FLAG_TOMBSTONE : 0);
		assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
		assert_int_equal(chunk_builder_finish(b, &id, 9, parts, NULL), 0);
		m->chunks[i] = image_join(parts);
		assert_int_equal(chunk_parse_head(m->chunks[i].data, parts[0].iov_len, m->chunks[i].bytes,
						  "CHUNK", &m->views[i], &needed, NULL),
				 0);
		m->n_chunks++;
		chunk_builder_free(b);
	}
	int r = update(m, &from, 0, &made, err);
	if (r == 0)
		verify(&made);
	free(made.data);
	free(from.data);
	model_free(m);
	return r;
}

/* In the hash index, runs of full buckets are longer than any search, but many new paths still fit. */
TEST(long_runs_of_buckets_take_new_paths)
{
	enum { N = 300000, N_NEW = 1500 };
	static char text[N][16];
	static const char *paths[N];
	struct model *m = calloc(1, sizeof(*m));
	struct error err = ERROR_INIT;
	struct image from, made = {0};
	size_t which[N_NEW];

	assert_non_null(m);
	m->seed = 3;
	for (size_t i = 0; i < N; i++) {
		snprintf(text[i], sizeof(text[i]), "a/%06zu", i);
		paths[i] = text[i];
	}
	from = make_snapshot(paths, N, 3000, true);
	for (size_t i = 0; i < N_NEW; i++)
		which[i] = i;
	add_chunk(m, which, N_NEW, 0);
	assert_int_equal(update(m, &from, 0, &made, &err), 0);
	verify(&made);
	free(made.data);
	free(from.data);
	model_free(m);
}

/* A path cannot be both a file and a directory, whichever comes second. */
TEST(file_and_directory)
{
	static const char *const paths[] = {"a", "b/c/d", "b/c/e", "f/g"};
	static const struct {
		const char *changes[4];
		const char *wrong; /* NULL: none */
	} cases[] = {
	    {{"a/x"}, "'a'"},
	    {{"a/x/y"}, "'a'"},
	    {{"b"}, "'b'"},
	    {{"b/c"}, "'b/c'"},
	    {{"new", "new/file"}, "'new'"},
	    {{"new/file", "new"}, "'new'"},
	    {{"b/c/z", "b/c/d/x"}, "'b/c/d'"},
	    {{"-a", "a/x"}, NULL},
	    {{"-b/c/d", "b/c"}, "'b/c'"},
	    {{"-b/c/d", "-b/c/e", "b/c"}, NULL},
	    {{"-f/g", "f"}, NULL},
	    {{"new", "-new", "new/file"}, NULL},
	    {{"b/c.d", "ab", "b/d"}, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct error err = ERROR_INIT;
		size_t n = 0;

		while (n < 4 && cases[i].changes[n])
			n++;
		int r = update_simple(paths, 4, cases[i].changes, n, &err);

		assert_int_equal(r, cases[i].wrong ? -EEXIST : 0);
		if (cases[i].wrong)
			assert_non_null(strstr(err.text, cases[i].wrong));
	}
}

/* A snapshot that is damaged, or does not fit the changes, is not updated. The caller then builds it
 * again. */
TEST(a_snapshot_that_does_not_fit_is_not_updated)
{
	struct model *m = calloc(1, sizeof(*m));
	struct error err = ERROR_INIT;
	size_t which[1] = {1};
	struct image from, made;

	assert_non_null(m);
	m->seed = 5;
	add_chunk(m, which, 1, 0);
	from = build(m);
	which[0] = 2;
	add_chunk(m, which, 1, 0);
	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++) {
		const struct snapshot_extent *e = &header_of(&from)->sections[i];

		if (e->bytes == 0)
			continue;
		from.data[e->offset] ^= 1;
		assert_int_equal(update(m, &from, 1, &made, &err), SNAPSHOT_NOT_UPDATED);
		from.data[e->offset] ^= 1;
	}
	m->has_digests = true; /* the base has no digests */
	assert_int_equal(update(m, &from, 1, &made, &err), SNAPSHOT_NOT_UPDATED);
	m->has_digests = false;
	assert_int_equal(update(m, &from, 1, &made, &err), 0);
	free(made.data);
	free(from.data);
	model_free(m);
}
