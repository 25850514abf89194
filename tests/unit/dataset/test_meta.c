/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of every metadata engine (dataset/meta.h). Without DIESEL_TEST_REDIS=redis://HOST:PORT this
 * tests SQLite. tests/integration/redis runs it on a server and on a cluster.
 */
#include "fixture.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"

static struct meta *open_meta(const char *path, enum meta_mode mode)
{
	const char *server = getenv("DIESEL_TEST_REDIS");
	struct error err = ERROR_INIT;
	struct meta *m;
	char url[300];

	mkdir(path, 0777);
	snprintf(url, sizeof(url), "%s%s", server ? server : "", path);
	_cleanup_(closep) int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = server && mode != META_READ ? meta_redis_choose_at(dir_fd, path, url, mode, &m, &err)
					    : meta_open(path, mode, &m, &err);
	if (r < 0)
		fail_msg("%s", err.text);
	return m;
}

static struct chunk_id id_of(unsigned i)
{
	return (struct chunk_id){
	    .bytes = {0, 6, 1, 2, 3, 4, (uint8_t)(i >> 8), (uint8_t)i, 9, 9, 9, 9, 7, 7, 0, 1}};
}

/* Adds chunk i with n samples, "FIRST" to "FIRST + n - 1". With CHUNK_FLAG_TOMBSTONE, the chunk marks them as
 * deleted. */
static void add_chunk(struct meta *m, unsigned i, unsigned first, unsigned n, uint32_t flags)
{
	struct chunk_builder *b;
	struct chunk_view view;
	struct chunk_id id = id_of(i);
	struct iovec parts[2];
	uint64_t needed;
	struct error err = ERROR_INIT;

	assert_int_equal(chunk_builder_new(CHUNK_MIN_BYTES, &b), 0);
	chunk_builder_reset(b, flags);
	for (unsigned k = first; k < first + n; k++) {
		char path[32];
		struct chunk_sample sample = {.path = path,
					      .data = "12345678",
					      .bytes = flags & CHUNK_FLAG_TOMBSTONE ? 0 : k % 8 + 1,
					      .mode = 0100644,
					      .mtime_ns = 1000 + i};

		sample.path_length = (size_t)snprintf(path, sizeof(path), "folder%u/%u", k % 10, k);
		assert_int_equal(chunk_builder_add(b, &sample, NULL), 0);
	}
	assert_int_equal(chunk_builder_finish(b, &id, 1000 + i, parts, NULL), 0);
	struct image image = image_join(parts);

	assert_int_equal(
	    chunk_parse_head(image.data, image.bytes, image.bytes, "CHUNK", &view, &needed, &err), 0);
	if (meta_add_chunk(m, &view, &err) < 0)
		fail_msg("%s", err.text);
	free(image.data);
	chunk_builder_free(b);
}

static struct meta_info begin(struct meta *m)
{
	struct chunk_id floor = id_of(60000);
	struct meta_info info;
	struct error err = ERROR_INIT;

	if (meta_begin(m, &floor, &info, &err) < 0)
		fail_msg("%s", err.text);
	return info;
}

static void commit(struct meta *m, uint64_t version)
{
	struct error err = ERROR_INIT;

	if (meta_commit(m, version, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

static struct meta_info info_of(struct meta *m)
{
	struct meta_info info;
	struct error err = ERROR_INIT;

	if (meta_info(m, &info, &err) < 0)
		fail_msg("%s", err.text);
	return info;
}

/* Returns the newest chunk of sample k, as a reader finds it, or -1. */
static int chunk_of(struct meta *m, unsigned k)
{
	struct meta_path found;
	char path[32];
	struct error err = ERROR_INIT;
	int length = snprintf(path, sizeof(path), "folder%u/%u", k % 10, k);
	int r = meta_find(m, path, (size_t)length, &found, &err);

	if (r == -ENOENT) {
		assert_int_equal(err.code, 0);
		return -1;
	}
	if (r < 0)
		fail_msg("%s", err.text);
	assert_ptr_equal(found.path, path);
	assert_int_equal(found.record.bytes, k % 8 + 1);
	assert_int_equal(found.record.mode, 0100644);
	unsigned i = (unsigned)found.chunk.bytes[6] << 8 | found.chunk.bytes[7];

	assert_int_equal(found.record.mtime_ns, 1000 + i);
	return (int)i;
}

TEST_IN_FOLDER(a_created_log_is_empty)
{
	_cleanup_(freep) char *path = path_in(*state, "ds"), *other = path_in(*state, "other");
	struct meta *m = open_meta(path, META_CREATE);
	struct meta_info info = info_of(m);

	assert_int_equal(info.version, 0);
	assert_int_equal(info.n_chunks, 0);
	assert_int_equal(info.n_paths, 0);
	assert_false(info.has_newest || info.has_pending || info.has_digests);
	assert_int_equal(chunk_of(m, 1), -1);
	assert_int_equal(meta_find(m, "", 0, &(struct meta_path){0}, NULL), -ENOENT);
	meta_free(m);
	assert_int_equal(meta_open(other, META_READ, &m, NULL), -ENOENT);
}

TEST_IN_FOLDER(a_reader_sees_what_was_committed)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE);

	assert_false(begin(m).has_pending);
	add_chunk(m, 1, 0, 100, 0);
	assert_int_equal(info_of(m).n_paths, 100);
	assert_int_equal(chunk_of(m, 99), 1);
	struct meta *reader = open_meta(path, META_READ);

	assert_int_equal(chunk_of(reader, 99), -1);
	assert_int_equal(info_of(reader).n_paths, 0);
	assert_true(info_of(reader).has_pending);
	struct chunk_id floor = id_of(60000);
	struct meta_info info = info_of(reader);

	assert_memory_equal(&info.pending, &floor, sizeof(floor));
	commit(m, 1);
	assert_int_equal(chunk_of(reader, 99), 1);
	assert_int_equal(info_of(reader).n_chunks, 1);
	assert_false(info_of(reader).has_pending);

	begin(m);
	add_chunk(m, 2, 50, 100, 0);
	add_chunk(m, 3, 0, 10, CHUNK_FLAG_TOMBSTONE);
	assert_int_equal(chunk_of(reader, 60), 1);
	assert_int_equal(chunk_of(reader, 5), 1);
	assert_int_equal(chunk_of(m, 60), 2);
	assert_int_equal(chunk_of(m, 5), -1);
	commit(m, 2);
	assert_int_equal(chunk_of(reader, 60), 2);
	assert_int_equal(chunk_of(reader, 5), -1);
	info = info_of(reader);
	struct chunk_id newest = id_of(3);

	assert_int_equal(info.version, 2);
	assert_int_equal(info.n_chunks, 3);
	assert_int_equal(info.n_paths, 140);
	assert_memory_equal(&info.newest, &newest, sizeof(newest));
	/* A deleted sample comes back, also within one transaction. */
	begin(m);
	add_chunk(m, 4, 5, 1, 0);
	add_chunk(m, 5, 5, 1, CHUNK_FLAG_TOMBSTONE);
	add_chunk(m, 6, 5, 1, 0);
	commit(m, 3);
	assert_int_equal(chunk_of(reader, 5), 6);
	assert_int_equal(info_of(reader).n_paths, 141);
	meta_free(reader);
	meta_free(m);
}

TEST_IN_FOLDER(a_rollback_leaves_what_was_committed)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE);

	begin(m);
	add_chunk(m, 1, 0, 10, 0);
	commit(m, 1);
	for (int forget = 0; forget < 2; forget++) {
		begin(m);
		add_chunk(m, 2, 5, 10, 0);
		add_chunk(m, 3, 0, 5, CHUNK_FLAG_TOMBSTONE);
		assert_int_equal(info_of(m).n_paths, 10);
		meta_rollback(m, forget);
		assert_int_equal(info_of(m).has_pending, !forget);
		assert_int_equal(info_of(m).n_paths, 10);
		assert_int_equal(chunk_of(m, 7), 1);
		assert_int_equal(chunk_of(m, 12), -1);
	}
	/* The next transaction continues from this state. */
	assert_false(begin(m).has_pending);
	assert_int_equal(chunk_of(m, 7), 1);
	add_chunk(m, 2, 20, 1, 0);
	commit(m, 2);
	assert_int_equal(info_of(m).n_paths, 11);
	meta_free(m);
}

/* A writer that dies has changed only the floor, which the next writer finds. */
TEST_IN_FOLDER(a_crash_leaves_the_floor_only)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE);

	begin(m);
	add_chunk(m, 1, 0, 10, 0);
	commit(m, 1);
	meta_free(m);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();

		if (child == 0) {
			m = open_meta(path, META_WRITE);
			begin(m);
			if (i == 2)
				assert_int_equal(meta_clear(m, NULL), 0);
			add_chunk(m, 2, 5, 10, 0);
			if (i)
				info_of(m); /* forces all of it to be written */
			kill(getpid(), SIGKILL);
		}
		assert_int_equal(waitpid(child, NULL, 0), child);
		m = open_meta(path, META_WRITE);
		assert_true(info_of(m).has_pending);
		assert_int_equal(info_of(m).n_paths, 10);
		assert_int_equal(chunk_of(m, 7), 1);
		struct meta_info found = begin(m);

		assert_true(found.has_pending);
		assert_int_equal(found.n_paths, 10);
		assert_int_equal(chunk_of(m, 12), -1);
		meta_rollback(m, i == 1);
		meta_free(m);
	}
}

TEST_IN_FOLDER(one_of_two_writers_commits)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE), *other = open_meta(path, META_WRITE);
	struct error err = ERROR_INIT;

	begin(m);
	begin(other);
	assert_int_equal(info_of(m).version, 0); /* neither prevents the other one from that */
	add_chunk(other, 2, 0, 10, 0);
	commit(other, 1);
	assert_int_equal(meta_commit(m, 1, NULL, &err), -EBUSY);
	assert_non_null(strstr(err.text, "another dieselctl"));
	assert_int_equal(info_of(m).n_paths, 10);
	begin(other);
	/* Ids ascend, also across commits. */
	struct image image = make_chunk(1, 0);
	struct chunk_view view;
	uint64_t needed;

	((struct chunk_header *)image.data)->id = id_of(1);
	assert_int_equal(
	    chunk_parse_head(image.data, image.bytes, image.bytes, "CHUNK", &view, &needed, NULL), -EBADMSG);
	view = (struct chunk_view){.header = (struct chunk_header *)image.data};
	assert_int_equal(meta_add_chunk(other, &view, &err), -EINVAL);
	free(image.data);
	meta_rollback(other, true);
	meta_free(other);
	meta_free(m);
}

struct seen {
	unsigned n;
	unsigned last;
	bool digests;
	unsigned char flags[20000];
};

static int see_chunk(const struct meta_chunk *chunk, void *context)
{
	struct seen *s = context;
	unsigned i = (unsigned)chunk->id.bytes[6] << 8 | chunk->id.bytes[7];

	assert_true(s->n == 0 || i > s->last);
	assert_int_equal(chunk->created_ns, 1000 + i);
	assert_int_equal(chunk->has_sha256, s->digests);
	if (s->digests)
		assert_int_equal(chunk->sha256.bytes[0], i % 256);
	s->last = i;
	s->n++;
	return 0;
}

static int see_path(const struct meta_path *path, void *context)
{
	struct seen *s = context;
	const char *slash = memchr(path->path, '/', path->path_length);
	unsigned k = 0;

	for (const char *c = slash + 1; c < path->path + path->path_length; c++)
		k = 10 * k + (unsigned)(*c - '0');
	assert_true(k < sizeof(s->flags));
	assert_int_equal(s->flags[k], 0);
	assert_int_equal(path->record.bytes, k % 8 + 1);
	s->flags[k] = 1;
	s->n++;
	return 0;
}

static int stop(const struct meta_path *path, void *context)
{
	++*(int *)context;
	return 77;
}

/* Chunks come in order, and each path once. There are too many of them for an engine to fetch all at once. */
TEST_IN_FOLDER(each_chunk_and_path_comes_once)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE);
	struct error err = ERROR_INIT;
	_cleanup_(freep) struct seen *seen = calloc(1, sizeof(*seen));
	int n_calls = 0;

	begin(m);
	for (unsigned i = 0; i < 300; i++)
		add_chunk(m, i, 66 * i, 66, 0);
	add_chunk(m, 300, 0, 1000, CHUNK_FLAG_TOMBSTONE);
	commit(m, 1);
	for (int open = 0; open < 2; open++) {
		*seen = (struct seen){.n = 0};
		assert_int_equal(meta_each_chunk(m, see_chunk, seen, &err), 0);
		assert_int_equal(seen->n, 301);
		*seen = (struct seen){.n = 0};
		assert_int_equal(meta_each_path(m, see_path, seen, &err), 0);
		assert_int_equal(seen->n, 300 * 66 - 1000);
		assert_int_equal(seen->flags[999], 0);
		assert_int_equal(seen->flags[1000], 1);
		assert_int_equal(meta_each_path(m, stop, &n_calls, &err), 77);
		if (!open)
			begin(m);
	}
	assert_int_equal(n_calls, 2);
	meta_rollback(m, true);
	meta_free(m);
}

static void put_digest(struct meta *m, unsigned i)
{
	struct chunk_id id = id_of(i);
	struct digest digest = {.bytes = {(uint8_t)i}};

	assert_int_equal(meta_put_digest(m, &id, &digest, NULL), 0);
}

TEST_IN_FOLDER(digests_are_added_to_chunks)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE);
	_cleanup_(freep) struct seen *seen = calloc(1, sizeof(*seen));
	struct error err = ERROR_INIT;

	begin(m);
	add_chunk(m, 1, 0, 10, 0);
	add_chunk(m, 2, 10, 10, 0);
	commit(m, 1);
	begin(m);
	assert_int_equal(meta_keep_digests(m, NULL), 0);
	put_digest(m, 1);
	put_digest(m, 2);
	add_chunk(m, 3, 20, 10, 0);
	put_digest(m, 3);
	commit(m, 2);
	meta_free(m);
	m = open_meta(path, META_WRITE);
	assert_true(info_of(m).has_digests);
	seen->digests = true;
	assert_int_equal(meta_each_chunk(m, see_chunk, seen, &err), 0);
	assert_int_equal(seen->n, 3);
	assert_true(begin(m).has_digests);
	meta_rollback(m, true);
	meta_free(m);
}

/* A rebuild replaces everything in one step. It starts again if it was interrupted. */
TEST_IN_FOLDER(a_rebuild_replaces_everything_in_one_step)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_REPLACE);

	begin(m);
	for (unsigned i = 1; i < 20; i++)
		add_chunk(m, i, i * 10, 10, 0);
	commit(m, 1);
	struct meta *reader = open_meta(path, META_READ);

	begin(m);
	assert_int_equal(meta_clear(m, NULL), 0);
	assert_int_equal(info_of(m).n_paths, 0);
	add_chunk(m, 1, 10, 10, 0);
	assert_int_equal(meta_clear(m, NULL), 0);
	add_chunk(m, 1, 10, 5, 0);
	assert_int_equal(info_of(m).n_paths, 5);
	assert_int_equal(chunk_of(reader, 190), 19);
	commit(m, 2);
	assert_int_equal(chunk_of(reader, 190), -1);
	assert_int_equal(chunk_of(reader, 14), 1);
	assert_int_equal(info_of(reader).n_paths, 5);
	begin(m);
	assert_int_equal(meta_clear(m, NULL), 0);
	meta_rollback(m, true);
	assert_int_equal(info_of(reader).n_paths, 5);
	meta_free(reader);
	meta_free(m);
}

/* The log holds the number of paths of its version, which saves counting them. Commits of older programs are
 * not in the log. */
TEST_IN_FOLDER(the_log_knows_its_number_of_paths)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct meta *m = open_meta(path, META_CREATE), *checker;
	struct change change = {.version = 1, .oldest = 1, .n_samples = 77};
	bool is_counted = getenv("DIESEL_TEST_REDIS") != NULL; /* on engines where counting takes no time */

	begin(m);
	add_chunk(m, 1, 0, 10, 0);
	assert_int_equal(info_of(m).n_paths, 10);
	assert_int_equal(meta_commit(m, 1, &change, NULL), 0);
	assert_int_equal(info_of(m).n_paths, is_counted ? 10 : 77);
	assert_int_equal(meta_open(path, META_CHECK, &checker, NULL), 0);
	assert_int_equal(info_of(checker).n_paths, 10);
	meta_free(checker);
	begin(m);
	add_chunk(m, 2, 8, 4, 0);
	commit(m, 2);
	assert_int_equal(info_of(m).n_paths, 12);
	/* The log continues from this version. */
	change = (struct change){.version = 3, .oldest = 1, .n_samples = 12};
	begin(m);
	assert_int_equal(meta_commit(m, 3, &change, NULL), 0);
	begin(m);
	add_chunk(m, 3, 0, 3, CHUNK_FLAG_TOMBSTONE);
	add_chunk(m, 4, 2, 3, 0);
	add_chunk(m, 5, 100, 1, CHUNK_FLAG_TOMBSTONE);
	assert_int_equal(info_of(m).n_paths, 10);
	meta_rollback(m, true);
	assert_int_equal(info_of(m).n_paths, 12);
	meta_free(m);
}
