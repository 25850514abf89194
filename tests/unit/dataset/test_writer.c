/* SPDX-License-Identifier: Apache-2.0 */
/* Writer, metadata and dataset together: which samples are visible when. */
#include "tests/support.h"

#include "dataset/checksum/checksum.h"
#include "dataset/columns.h"
#include "dataset/dataset.h"
#include "dataset/lookup/snapshot_format.h"
#include "dataset/sample.h"
#include "dataset/verify.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct writer *open_writer(const char *path)
{
	struct writer *w;
	struct error err = ERROR_INIT;

	const char *server = getenv("DIESEL_TEST_REDIS"); /* redis://HOST:PORT; unset: SQLite */
	char url[300];

	snprintf(url, sizeof(url), "%s%s", server ? server : "", path);
	if (writer_open_on(path, WRITER_PACK, CHUNK_MIN_BYTES, server ? url : NULL, &w, &err) < 0)
		fail_msg("%s", err.text);
	return w;
}

static void add(struct writer *w, const char *path, const char *data)
{
	struct chunk_sample sample = {
	    .path = path, .path_length = strlen(path), .data = data, .bytes = strlen(data), .mode = 0100644};

	assert_int_equal(writer_add(w, &sample, NULL), 0);
}

static struct writer_result commit(struct writer *w)
{
	struct writer_result result;
	struct error err = ERROR_INIT;

	if (writer_commit(w, &result, &err) < 0)
		fail_msg("%s", err.text);
	writer_free(w);
	return result;
}

/* Returns the sample's bytes; "" if there is no such sample. */
static const char *get(const char *dataset, const char *path, char *text)
{
	struct dataset *d;
	struct snapshot_sample sample;
	struct error err = ERROR_INIT;
	uint64_t number;

	text[0] = '\0';
	if (dataset_open_version(dataset, 0, &d, &err) < 0)
		fail_msg("%s", err.text);
	if (snapshot_find(dataset_snapshot(d), path, strlen(path), &number) == 0) {
		assert_int_equal(snapshot_sample_get(dataset_snapshot(d), number, &sample), 0);
		if (sample_read(dataset_snapshot(d), dataset_store(d), &sample, text, 100, &err) < 0)
			fail_msg("%s", err.text);
		text[sample.bytes] = '\0';
	}
	dataset_close(d);
	return text;
}

static void fail_on_damage(const struct verify_damage *damage, void *context)
{
	fail_msg("%s", damage->text);
}

static void count_note(const char *text, void *context)
{
	++*(int *)context;
}

/* Returns the number of notes that verify reports. */
static int verify(const char *dataset)
{
	int n_notes = 0;
	struct verify_callbacks callbacks = {
	    .damage = fail_on_damage, .note = count_note, .context = &n_notes};
	struct verify_result result;

	assert_int_equal(verify_dataset(dataset, &callbacks, &result, NULL), 0);
	return n_notes;
}

TEST_IN_FOLDER(add_replace_delete)
{
	char *path = path_in(*state, "ds"), text[101];
	struct writer *w = open_writer(path);

	add(w, "a/1", "one");
	add(w, "b/2", "two");
	add(w, "a/1", "uno"); /* the later record of a path counts */
	struct writer_result result = commit(w);
	assert_int_equal(result.version, 1);
	assert_int_equal(result.n_paths, 2);
	assert_string_equal(get(path, "a/1", text), "uno");

	w = open_writer(path);
	add(w, "b/2", "TWO");
	assert_int_equal(writer_delete(w, "a/1", 3, NULL), 0);
	add(w, "c/3", "three");
	assert_int_equal(writer_delete(w, "c/3", 3, NULL), 0);
	add(w, "c/3", "again");
	assert_string_equal(get(path, "b/2", text), "two"); /* not committed yet */
	result = commit(w);
	assert_int_equal(result.version, 2);
	assert_int_equal(result.n_chunks, 5); /* adds and deletes alternate */
	assert_string_equal(get(path, "b/2", text), "TWO");
	assert_string_equal(get(path, "a/1", text), "");
	assert_string_equal(get(path, "c/3", text), "again");
	assert_int_equal(verify(path), 0);
	free(path);
}

TEST_IN_FOLDER(nothing_to_commit)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct writer *w = open_writer(path);

	add(w, "a", "x");
	commit(w);
	assert_int_equal(commit(open_writer(path)).version, 1);
	assert_int_equal(verify(path), 0);
	/* A dataset that never got any sample is removed again. */
	_cleanup_(freep) char *other = path_in(*state, "other");

	writer_free(open_writer(other));
	assert_false(exists_in(*state, "other"));
}

TEST_IN_FOLDER(an_abandoned_writer_leaves_what_was_committed)
{
	char *path = path_in(*state, "ds"), text[101];
	struct writer *w = open_writer(path);
	const struct store_object *leftovers;
	size_t n;

	add(w, "a", "old");
	commit(w);
	w = open_writer(path);
	add(w, "a", "new");
	assert_int_equal(writer_flush(w, NULL), 0);
	add(w, "b", "new");
	assert_int_equal(writer_flush(w, NULL), 0);
	/* Waits for the chunks, because writer_free() drops unwritten ones. */
	for (n = 0; n < 3; free((void *)leftovers))
		assert_int_equal(
		    store_list(writer_store(w), NULL, (struct store_object **)&leftovers, &n, NULL), 0);
	writer_free(w);
	assert_string_equal(get(path, "a", text), "old");
	assert_int_equal(verify(path), 2); /* notes about two chunks of an interrupted writer */

	/* The next writer may adopt some of them. */
	w = open_writer(path);
	leftovers = writer_leftovers(w, &n);
	assert_int_equal(n, 2);
	assert_int_equal(writer_adopt(w, 1, NULL), 0);
	add(w, "c", "more");
	assert_int_equal(commit(w).n_paths, 3);
	assert_string_equal(get(path, "a", text), "old");
	assert_string_equal(get(path, "b", text), "new");
	assert_string_equal(get(path, "c", text), "more");
	assert_int_equal(verify(path), 0); /* the other chunk is gone */
	free(path);
}

TEST_IN_FOLDER(a_second_writer_is_refused)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct writer *w = open_writer(path), *other;
	struct error err = ERROR_INIT;

	add(w, "a", "x");
	assert_int_equal(writer_open(path, WRITER_PACK, CHUNK_MIN_BYTES, &other, &err), -EBUSY);
	assert_non_null(strstr(err.text, "another dieselctl"));
	commit(w);
	assert_int_equal(verify(path), 0);
}

/* Takes over the lock, like another process that has watched it for long enough. */
static int take_over(const char *path, struct writer_sign *ret_seen)
{
	struct error err = ERROR_INIT;

	assert_true(writer_at_work(path, ret_seen));
	int r = writer_take_over(path, ret_seen, &err);

	assert_string_equal(err.text, "");
	return r;
}

TEST_IN_FOLDER(a_dead_writer_s_lock_is_taken_over)
{
	char *path = path_in(*state, "ds"), text[100], who[WRITER_SIGN_NAME];
	struct writer *w = open_writer(path), *other;
	struct writer_sign sign, old;
	struct writer_result result;
	struct store_object *objects;
	struct error err = ERROR_INIT;
	size_t n;

	add(w, "a", "x");
	assert_true(writer_at_work(path, &sign));
	assert_int_equal(sign.pid, getpid());
	assert_false(sign.is_kept);
	assert_int_equal(sign.lease_ns, 60 * UINT64_C(1000000000));
	assert_string_equal(strchr(writer_sign_name(&sign, who, sizeof(who)), ' ') + 1,
			    (snprintf(text, sizeof(text), "%ld", (long)getpid()), text));
	/* A writer that has renewed its sign since, or that has ended, is not taken over. */
	old = sign;
	old.renewed.tv_sec--;
	assert_int_equal(writer_take_over(path, &old, &err), -EAGAIN);
	assert_int_equal(take_over(path, &sign), 0);
	assert_false(writer_at_work(path, &sign));
	assert_int_equal(writer_take_over(path, &sign, &err), -EAGAIN);
	other = open_writer(path);
	assert_int_equal(writer_commit(w, &result, &err), -EBUSY);
	assert_int_equal(store_list(writer_store(w), NULL, &objects, &n, NULL), 0);
	assert_int_equal(n, 0); /* the writer does not even leave chunks */
	free(objects);
	assert_non_null(strstr(err.text, "another dieselctl took over"));
	assert_null(strchr(err.text, '\n'));
	writer_free(w);
	assert_true(writer_at_work(path, &sign));
	add(other, "c", "y");
	assert_int_equal(commit(other).n_paths, 1);
	assert_string_equal(get(path, "c", text), "y");
	assert_int_equal(verify(path), 0);
	/* Once the writer publishes, its lock cannot be taken over. */
	w = open_writer(path);
	add(w, "d", "z");
	assert_int_equal(writer_hold(w, &err), 0);
	assert_int_equal(take_over(path, &sign), -EAGAIN);
	assert_true(sign.is_kept);
	assert_int_equal(commit(w).n_paths, 2);
	assert_false(writer_at_work(path, &sign));
	/* A writer that was taken over keeps no snapshot, since the published one may be another writer's by
	 * then. */
	_cleanup_(freep) char *kept = path_in(*state, "ds/snapshots/2");

	w = open_writer(path);
	assert_int_equal(take_over(path, &sign), 0);
	assert_int_equal(unlink(kept), 0);
	assert_int_equal(writer_catch_up(w, &err), 0);
	assert_int_equal(access(kept, F_OK), -1);
	writer_free(w);
	free(path);
}

TEST_IN_FOLDER(an_odd_lock_does_no_harm)
{
	char *path = path_in(*state, "ds"), *lock = path_in(*state, "ds/.writer"), who[WRITER_SIGN_NAME];
	struct writer *w = open_writer(path);
	struct writer_sign sign;
	struct error err = ERROR_INIT;

	add(w, "a", "x");
	commit(w);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(i == 0   ? symlink("/etc/passwd", lock)
				 : i == 1 ? mkfifo(lock, 0666)
					  : mkdir(lock, 0777),
				 0);
		assert_true(writer_open(path, WRITER_CHANGE, CHUNK_MIN_BYTES, &w, &err) < 0);
		assert_non_null(strstr(err.text, ".writer"));
		assert_false(writer_at_work(path, &sign));
		assert_int_equal(remove(lock), 0);
	}
	w = open_writer(path);
	assert_int_equal(truncate(lock, 0), 0);
	assert_true(writer_at_work(path, &sign));
	assert_string_equal(writer_sign_name(&sign, who, sizeof(who)), "another dieselctl");
	FILE *file = fopen(lock, "w");

	fputs("DIESEL writer 1\n7\n\x1b[2Jhost\n-9\n", file);
	fclose(file);
	assert_true(writer_at_work(path, &sign));
	assert_string_equal(writer_sign_name(&sign, who, sizeof(who)), "process 7 on \\x1b[2Jhost");
	assert_int_equal(sign.lease_ns, 60 * UINT64_C(1000000000));
	writer_free(w);
	free(lock);
	free(path);
}

static void count_lost(const struct chunk_id *id, const char *text, void *context)
{
	++*(int *)context;
}

static uint64_t rebuild(const char *path, int n_lost_expected)
{
	struct writer *w;
	struct error err = ERROR_INIT;
	uint64_t n_lost = 0;
	int n_told = 0;

	if (writer_open(path, WRITER_REBUILD, CHUNK_MIN_BYTES, &w, &err) < 0 ||
	    writer_rebuild(w, count_lost, &n_told, &n_lost, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(n_lost, n_lost_expected);
	assert_int_equal(n_told, n_lost_expected);
	return commit(w).version;
}

/* Skips tests of meta.db if the metadata is in Redis. */
static void need_sqlite(void)
{
	if (getenv("DIESEL_TEST_REDIS"))
		skip();
}

TEST_IN_FOLDER(a_rebuild_restores_the_dataset)
{
	need_sqlite();
	char *path = path_in(*state, "ds"), text[101];
	struct writer *w = open_writer(path);
	struct error err = ERROR_INIT;

	add(w, "a", "1");
	add(w, "b", "2");
	commit(w);
	w = open_writer(path);
	add(w, "a", "3");
	assert_int_equal(writer_delete(w, "b", 1, NULL), 0);
	commit(w);

	/* Without its metadata a dataset cannot be changed. After a rebuild, the version continues from the
	 * snapshot's. */
	_cleanup_(freep) char *meta = path_in(*state, "ds/meta.db");

	assert_int_equal(unlink(meta), 0);
	assert_int_equal(writer_open(path, WRITER_PACK, CHUNK_MIN_BYTES, &w, &err), -ESTALE);
	assert_non_null(strstr(err.text, "rebuild"));
	assert_int_equal(rebuild(path, 0), 3);
	assert_string_equal(get(path, "a", text), "3");
	assert_string_equal(get(path, "b", text), "");
	assert_int_equal(verify(path), 0);

	/* Damaged metadata is moved aside. */
	write_text(*state, "ds/meta.db",
		   "this is not a database, and long enough to be looked at as one "
		   "........................................................");
	assert_int_equal(writer_open(path, WRITER_PACK, CHUNK_MIN_BYTES, &w, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "rebuild"));
	assert_int_equal(rebuild(path, 0), 4);
	assert_true(exists_in(*state, "ds/meta.db.damaged"));
	assert_string_equal(get(path, "a", text), "3");
	free(path);
}

TEST_IN_FOLDER(digest_known_answer)
{
	static const struct digest abc = {{0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
					   0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
					   0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad}};
	const struct iovec parts[] = {{(void *)"a", 1}, {(void *)"bc", 2}};
	struct digest found;

	assert_int_equal(digest_of(parts, 2, &found), 0);
	assert_true(digest_equal(&found, &abc));
}

/* Returns how many chunks of the snapshot have the digest of their file. Either all of them must, or none. */
static uint64_t n_digests(const char *path)
{
	struct dataset *d;
	struct snapshot_chunk chunk;
	struct digest found;
	struct error err = ERROR_INIT;
	uint64_t n = 0;

	if (dataset_open_version(path, 0, &d, &err) < 0)
		fail_msg("%s", err.text);
	for (uint64_t i = 0; snapshot_chunk_get(dataset_snapshot(d), i, &chunk) == 0; i++) {
		if (!chunk.has_sha256)
			continue;
		assert_int_equal(store_digest(dataset_store(d), &chunk.id, &found, NULL), 0);
		assert_true(digest_equal(&found, &chunk.sha256));
		n++;
	}
	assert_true(n == 0 || n == snapshot_info(dataset_snapshot(d))->n_chunks);
	dataset_close(d);
	return n;
}

static void rebuild_with_digests(const char *path)
{
	struct writer *w;
	uint64_t n_lost;
	int n_told = 0;

	assert_int_equal(writer_open(path, WRITER_REBUILD, CHUNK_MIN_BYTES, &w, NULL), 0);
	assert_int_equal(writer_keep_digests(w, NULL), 0);
	assert_int_equal(writer_rebuild(w, count_lost, &n_told, &n_lost, NULL), 0);
	commit(w);
}

/* Once a dataset has digests, every commit and every rebuild keeps them. */
TEST_IN_FOLDER(digests_are_kept)
{
	need_sqlite();
	_cleanup_(freep) char *path = path_in(*state, "ds"), *meta = path_in(*state, "ds/meta.db");
	struct writer *w = open_writer(path);

	assert_int_equal(writer_keep_digests(w, NULL), 0);
	add(w, "a", "1");
	commit(w);
	assert_int_equal(n_digests(path), 1);
	w = open_writer(path);
	add(w, "b", "2");
	assert_int_equal(writer_delete(w, "nothing", 7, NULL), 0);
	commit(w);
	assert_int_equal(n_digests(path), 2);
	rebuild(path, 0);
	assert_int_equal(n_digests(path), 2);
	assert_int_equal(verify(path), 0);
	assert_int_equal(unlink(meta), 0); /* the snapshot shows that there are digests */
	rebuild(path, 0);
	assert_int_equal(n_digests(path), 2);
	assert_int_equal(verify(path), 0);
}

TEST_IN_FOLDER(digests_are_added)
{
	_cleanup_(freep) char *path = path_in(*state, "ds");
	struct writer *w = open_writer(path);
	struct error err = ERROR_INIT;

	add(w, "a", "1");
	commit(w);
	w = open_writer(path);
	assert_int_equal(writer_keep_digests(w, &err), -EEXIST);
	assert_non_null(strstr(err.text, "dieselctl rebuild --digest sha256"));
	writer_free(w);
	assert_int_equal(n_digests(path), 0);
	assert_int_equal(verify(path), 0);
	rebuild_with_digests(path);
	assert_int_equal(n_digests(path), 1);
	assert_int_equal(verify(path), 0);
}

static void expect_digest(const struct verify_damage *damage, void *context)
{
	assert_non_null(strstr(damage->text, "SHA-256"));
}

/* No XXH3 checksum covers a gap, but the digest of the file does. */
TEST_IN_FOLDER(digest_of_the_whole_file)
{
	char *path = path_in(*state, "ds"), id[CHUNK_ID_TEXT], name[200], *chunk;
	struct writer *w = open_writer(path);
	struct dataset *d;
	struct snapshot_chunk entry;

	assert_int_equal(writer_keep_digests(w, NULL), 0);
	add(w, "a", "1");
	commit(w);
	assert_int_equal(dataset_open_version(path, 0, &d, NULL), 0);
	assert_int_equal(snapshot_chunk_get(dataset_snapshot(d), 0, &entry), 0);
	dataset_close(d);
	snprintf(name, sizeof(name), "ds/chunks/%s.chunk", chunk_id_format(&entry.id, id));
	chunk = path_in(*state, name);
	int fd = open(chunk, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "!", 1, (off_t)entry.file_bytes - 1), 1);
	close(fd);
	struct verify_callbacks callbacks = {.damage = expect_digest, .note = count_note};
	struct verify_result result;

	assert_int_equal(verify_dataset(path, &callbacks, &result, NULL), 0);
	assert_int_equal(result.n_damages, 1);
	free(chunk);
	free(path);
}

TEST_IN_FOLDER(a_lost_snapshot_is_written_again)
{
	char *path = path_in(*state, "ds"), *snapshot = path_in(*state, "ds/snapshot"), text[101];
	struct writer *w = open_writer(path);

	add(w, "a", "1");
	commit(w);
	assert_int_equal(unlink(snapshot), 0);
	assert_int_equal(writer_open(path, WRITER_CHANGE, CHUNK_MIN_BYTES, &w, NULL), 0);
	assert_int_equal(writer_snapshot(w, NULL), 0);
	writer_free(w);
	assert_string_equal(get(path, "a", text), "1");
	assert_int_equal(verify(path), 0);
	free(snapshot);
	free(path);
}

TEST_IN_FOLDER(not_a_dataset)
{
	struct writer *w;
	struct error err = ERROR_INIT;
	_cleanup_(freep) char *missing = path_in(*state, "missing");

	write_text(*state, "holiday/photo.jpg", "x");
	_cleanup_(freep) char *holiday = path_in(*state, "holiday"),
			      *photo = path_in(*state, "holiday/photo.jpg");

	assert_int_equal(writer_open(holiday, WRITER_PACK, CHUNK_MIN_BYTES, &w, &err), -ENOTEMPTY);
	assert_non_null(strstr(err.text, "not a dataset"));
	assert_false(exists_in(*state, "holiday/meta.db"));
	assert_int_equal(writer_open(photo, WRITER_PACK, CHUNK_MIN_BYTES, &w, &err), -ENOTDIR);
	assert_int_equal(writer_open(missing, WRITER_CHANGE, CHUNK_MIN_BYTES, &w, &err), -ENOENT);
	assert_int_equal(writer_open(missing, WRITER_REBUILD, CHUNK_MIN_BYTES, &w, &err), -ENOENT);
	assert_false(exists_in(*state, "missing"));
	assert_int_equal(writer_open(missing, WRITER_PACK, 17, &w, &err), -EINVAL);
	assert_false(exists_in(*state, "missing"));
	writer_free(NULL);
}

/* A chunk with a changed payload is named by the sample's path. A chunk with a changed head is named by its
 * id. The other samples of the dataset can be read. */
TEST_IN_FOLDER(damage_is_named)
{
	char *path = path_in(*state, "ds"), text[101];
	struct writer *w = open_writer(path);
	struct dataset *d;
	struct snapshot_sample sample;
	struct error err = ERROR_INIT;
	uint64_t number;

	add(w, "good", "sound");
	add(w, "bad/one", "broken");
	commit(w);
	assert_int_equal(dataset_open_version(path, 0, &d, NULL), 0);
	assert_int_equal(snapshot_find(dataset_snapshot(d), "bad/one", 7, &number), 0);
	assert_int_equal(snapshot_sample_get(dataset_snapshot(d), number, &sample), 0);
	struct snapshot_chunk chunk;
	char name[STORE_NAME_MAX];

	assert_int_equal(snapshot_chunk_get(dataset_snapshot(d), sample.chunk, &chunk), 0);
	int fd = open(store_describe(dataset_store(d), &chunk.id, name), O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "B", 1, (off_t)sample.offset), 1);
	close(fd);
	assert_int_equal(sample_read(dataset_snapshot(d), dataset_store(d), &sample, text, 100, &err),
			 -EBADMSG);
	assert_non_null(strstr(err.text, "bad/one"));
	assert_non_null(strstr(err.text, ".chunk"));
	assert_int_equal(sample_read(dataset_snapshot(d), dataset_store(d), &sample, text, 5, &err),
			 -EINVAL); /* the buffer is too small */
	dataset_close(d);
	assert_string_equal(get(path, "good", text), "sound");
	free(path);
}

/* Returns the bytes that this process has read by system calls, as the kernel counts them; 0: the kernel does
 * not count them. */
static uint64_t bytes_read(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	unsigned long long bytes = 0;

	if (!f)
		return 0;
	if (fscanf(f, "rchar: %llu", &bytes) != 1)
		bytes = 0;
	fclose(f);
	return bytes;
}

/* One read of each file is enough to check digest, head and samples. Metadata and snapshot are small. */
TEST_IN_FOLDER(verify_reads_once)
{
	enum { SAMPLE = 3 << 20, N = 6, REST = 1 << 20 };
	char *path = path_in(*state, "ds"), *data = malloc(SAMPLE + 1), name[2] = "a";
	const struct verify_callbacks callbacks = {.damage = fail_on_damage, .note = count_note};
	struct writer *w = open_writer(path);
	struct verify_result result;

	memset(data, 'x', SAMPLE);
	data[SAMPLE] = '\0';
	assert_int_equal(writer_keep_digests(w, NULL), 0);
	for (int i = 0; i < N; i++, name[0]++)
		add(w, name, data);
	commit(w);
	assert_int_equal(n_digests(path), N);
	uint64_t before = bytes_read();
	assert_int_equal(verify_dataset(path, &callbacks, &result, NULL), 0);
	assert_int_equal(result.n_records, N);
	assert_in_range(result.bytes, N * SAMPLE, N * SAMPLE + REST);
	if (before)
		assert_in_range(bytes_read() - before, N * SAMPLE, N * SAMPLE + REST);
	free(data);
	free(path);
}

static enum chunk_layout layout_of(const char *dataset)
{
	struct snapshot *s;
	struct error err = ERROR_INIT;

	if (snapshot_open(dataset, &s, &err) < 0)
		fail_msg("%s", err.text);
	enum chunk_layout layout = snapshot_info(s)->layout;

	snapshot_close(s);
	return layout;
}

/* Whether the snapshot is updated, built again, or rebuilt from the chunks. */
TEST_IN_FOLDER(all_samples_have_one_layout)
{
	char *path = path_in(*state, "ds"), text[101];
	struct chunk_sample plain = {.path = "b", .path_length = 1, .data = "x", .bytes = 1};
	struct error err = ERROR_INIT;
	struct writer *w = open_writer(path);
	struct writer_result result;
	uint64_t n_lost;

	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_FIELDS, (struct columns){0}, NULL), 0);
	for (char name[] = "name-a"; name[5] <= 'z'; name[5]++)
		add(w, name, "one");
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_TAR, (struct columns){0}, NULL),
			 -EEXIST); /* before the first commit */
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_FIELDS, (struct columns){0}, NULL), 0);
	commit(w);
	assert_int_equal(layout_of(path), CHUNK_LAYOUT_FIELDS);
	for (char name[] = "more-a"; name[5] <= 'c'; name[5]++) {
		w = open_writer(path);
		assert_int_equal(writer_add(w, &plain, &err), -EEXIST);
		assert_non_null(strstr(err.text, "'fields'"));
		assert_non_null(strstr(err.text, "'plain'"));
		assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_FIELDS, (struct columns){0}, NULL), 0);
		add(w, name, "two");
		assert_int_equal(writer_delete(w, "name-a", 6, NULL), 0);
		commit(w);
		assert_int_equal(layout_of(path), CHUNK_LAYOUT_FIELDS);
	}
	if (!getenv("DIESEL_TEST_REDIS")) {
		assert_int_equal(writer_open(path, WRITER_REBUILD, CHUNK_MIN_BYTES, &w, &err), 0);
		assert_int_equal(writer_rebuild(w, NULL, NULL, &n_lost, &err), 0);
		result = commit(w);
		assert_int_equal(result.n_paths, 28);
		assert_int_equal(layout_of(path), CHUNK_LAYOUT_FIELDS);
	}
	assert_string_equal(get(path, "more-b", text), "two");
	assert_int_equal(verify(path), 0);
	free(path);
}

static void check_columns(const char *dataset, struct columns wanted)
{
	struct snapshot *s;
	struct error err = ERROR_INIT;

	if (snapshot_open(dataset, &s, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(snapshot_info(s)->layout, CHUNK_LAYOUT_MDS);
	assert_true(columns_equal(snapshot_info(s)->columns, wanted));
	assert_int_equal(snapshot_verify(s, &err), 0);
	snapshot_close(s);
}

/* Replaces the columns in the snapshot by others of the same length, with checksums that agree. */
static void plant_columns(const char *dataset, struct columns from, struct columns to)
{
	char *path = path_in(dataset, "snapshot");
	int fd = open(path, O_RDWR);
	off_t bytes = lseek(fd, 0, SEEK_END);
	unsigned char *file = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct snapshot_header *h = (struct snapshot_header *)file;
	struct snapshot_extent *s = &h->sections[SNAPSHOT_CHUNKS];

	assert_true(file != MAP_FAILED);
	void *at = memmem(file + s->offset, s->bytes, from.data, from.bytes);

	assert_non_null(at);
	assert_int_equal(from.bytes, to.bytes);
	memcpy(at, to.data, to.bytes);
	s->xxh3 = checksum_xxh3(file + s->offset, s->bytes);
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
	munmap(file, (size_t)bytes);
	close(fd);
	free(path);
}

static void expect_columns(const struct verify_damage *damage, void *context)
{
	assert_true(damage->snapshot_only);
	assert_non_null(strstr(damage->text, "other columns"));
	(void)context;
}

/* In compressed chunks and others, whether the snapshot is new, updated, built again, or rebuilt. */
TEST_IN_FOLDER(all_samples_have_the_same_columns)
{
	const struct field one = {
	    .name = "n", .name_length = 1, .encoding = "int", .encoding_length = 3, .bytes = 8};
	const struct field other = {
	    .name = "m", .name_length = 1, .encoding = "int", .encoding_length = 3, .bytes = 8};
	struct columns columns, others;
	char *path = path_in(*state, "ds"), text[101];
	struct error err = ERROR_INIT;
	struct writer *w = open_writer(path);
	struct verify_result verified;
	uint64_t n_lost;

	assert_int_equal(columns_make(CHUNK_LAYOUT_MDS, &one, 1, &columns, NULL), 0);
	assert_int_equal(columns_make(CHUNK_LAYOUT_MDS, &other, 1, &others, NULL), 0);
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_MDS, (struct columns){0}, NULL), -EINVAL);
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_PLAIN, columns, NULL), -EINVAL);
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_MDS, columns, NULL), 0);
	for (int i = 0; i < 600; i++) {
		snprintf(text, sizeof(text), "name-%d", i);
		add(w, text, "one");
	}
	commit(w);
	check_columns(path, columns);
	w = open_writer(path);
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_MDS, others, &err), -EEXIST);
	assert_non_null(strstr(err.text, "other columns"));
	assert_int_equal(writer_set_layout(w, CHUNK_LAYOUT_MDS, columns, NULL), 0);
	writer_compress(w, 1);
	add(w, "more", "two");
	commit(w);
	check_columns(path, columns); /* updated */
	w = open_writer(path);
	for (int i = 0; i < 300; i++) {
		snprintf(text, sizeof(text), "name-%d", i);
		assert_int_equal(writer_delete(w, text, strlen(text), NULL), 0);
	}
	commit(w);
	check_columns(path, columns); /* built again */
	if (!getenv("DIESEL_TEST_REDIS")) {
		assert_int_equal(writer_open(path, WRITER_REBUILD, CHUNK_MIN_BYTES, &w, &err), 0);
		assert_int_equal(writer_rebuild(w, NULL, NULL, &n_lost, &err), 0);
		commit(w);
		check_columns(path, columns);
	}
	assert_string_equal(get(path, "more", text), "two");
	assert_int_equal(verify(path), 0);
	plant_columns(path, columns, others);
	assert_int_equal(
	    verify_dataset(path, &(struct verify_callbacks){.damage = expect_columns, .note = count_note},
			   &verified, NULL),
	    0);
	assert_int_equal(verified.n_damages, 1);
	free((void *)columns.data);
	free((void *)others.data);
	free(path);
}
