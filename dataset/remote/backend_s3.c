/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datasets in a bucket, below PREFIX:
 *
 *   chunks/<id>.chunk                  the chunks
 *   data/<id>.snapshot, data/<id>.meta the snapshot and the metadata of one version
 *   versions/<16 digits>               a manifest (manifest.h): the version, and which data it has
 *
 * A manifest is written only if none has its number, and is never changed, and removed only with the dataset.
 * The removal first takes the next number, so that nobody publishes meanwhile. So only one of two
 * writers that began with the same version can publish. Its digits are those of the version's complement, so
 * that the newest manifest comes first in a list. The manifest of version 0 is written before the first
 * chunk. Writing it again shows whether the server refuses the second write.
 */
#include "dataset/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/chunk.h"
#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/copy.h"
#include "dataset/meta.h"
#include "dataset/remote.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/container_of.h"
#include "lib/fd_io.h"
#include "manifest.h"
#include "s3/bucket.h"
#include "snapshot_cache.h"
#include "store_s3.h"

#define COPY_BYTES    ((size_t)8 << 20)
#define KEY_BYTES     MANIFEST_KEY
#define N_LISTED      16
#define MAX_ROUNDS    64
#define MAX_TRIES     16
#define SINGLE_WRITER "DIESEL_S3_SINGLE_WRITER"

struct backend_s3 {
	struct place place;
	struct bucket *bucket;
	struct manifest manifest;
	bool has_manifest;
	uint64_t wanted; /* the version that is to be read; 0: the newest */
	int cached_fd;   /* the folder belongs to snapshot_cache.h and stays */
};

static struct backend_s3 *s3_of(struct place *p)
{
	return container_of(p, struct backend_s3, place);
}

static const char *data_key(const struct chunk_id *id, const char *kind, char key[KEY_BYTES])
{
	char text[CHUNK_ID_TEXT];

	snprintf(key, KEY_BYTES, "data/%s.%s", chunk_id_format(id, text), kind);
	return key;
}

/* Returns true if the key is a version's name. */
static bool parse_version(const char *key, uint64_t *ret)
{
	unsigned long long digits;
	char again[KEY_BYTES];

	if (sscanf(key, "versions/%16llx", &digits) != 1 || strcmp(manifest_key(~digits, again), key) != 0)
		return false;
	*ret = ~digits;
	return true;
}

/* Takes the first key that is a version's name. */
static int take_first(const char *key, uint64_t bytes, void *context)
{
	(void)bytes;
	return parse_version(key, context);
}

static int damaged(const struct bucket *b, const char *key, struct error *err)
{
	return error_set(err, -EBADMSG, "%s/%s is damaged: run `dieselctl rebuild %s`", bucket_url(b), key,
			 bucket_url(b));
}

static int read_manifest(struct bucket *b, uint64_t version, struct manifest *ret, struct error *err)
{
	char key[KEY_BYTES], text[MANIFEST_MAX];
	struct manifest m;
	uint64_t bytes;
	int r = bucket_size(b, manifest_key(version, key), &bytes, err);

	if (r == 0 && bytes > sizeof(text))
		return damaged(b, key, err);
	if (r == 0)
		r = bucket_read(b, key, 0, text, bytes, err);
	if (r < 0)
		return r;
	r = manifest_parse(text, bytes, &m);
	if (r == -EPROTONOSUPPORT)
		return error_set(err, r, "%s/%s was written by a newer version of this program; update it",
				 bucket_url(b), key);
	if (r < 0 || m.version != version)
		return damaged(b, key, err);
	if (m.is_removed)
		return error_set(err, -ESTALE,
				 "%s is being removed: wait, or, if the command was interrupted, run "
				 "`dieselctl delete %s`",
				 bucket_url(b), bucket_url(b));
	*ret = m;
	return 0;
}

/* Finds the newest version. *ret_found: there is one. */
static int find_newest(struct bucket *b, uint64_t *ret_version, bool *ret_found, struct error *err)
{
	int r = bucket_list(b, "versions/", NULL, N_LISTED, take_first, ret_version, err);

	*ret_found = r == 1;
	return r < 0 ? r : 0;
}

static int any_chunk(const char *key, uint64_t bytes, void *context)
{
	(void)key;
	(void)bytes;
	(void)context;
	return 1;
}

static int has_chunks(struct backend_s3 *s, struct error *err)
{
	return bucket_list(s->bucket, "chunks/", NULL, N_LISTED, any_chunk, NULL, err);
}

/* Copies an object to a file and compares it with what the manifest says. */
static int fetch(struct backend_s3 *s, const char *kind, const struct manifest_part *part, const char *name,
		 struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	_cleanup_(freep) void *buffer = malloc(COPY_BYTES);
	struct digest_stream *stream = NULL;
	struct digest found;
	char key[KEY_BYTES];
	int r = 0;

	data_key(&s->manifest.id, kind, key);
	if (!buffer || asprintf(&path, "%s/%s", s->place.folder, name) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", key);
	}
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, -errno, "cannot write %s", path);
	if (digest_stream_new(&stream) < 0)
		return error_errno(err, -ENOMEM, "%s", key);
	for (uint64_t offset = 0; offset < part->bytes && r == 0; offset += COPY_BYTES) {
		size_t n = part->bytes - offset < COPY_BYTES ? part->bytes - offset : COPY_BYTES;

		r = bucket_read(s->bucket, key, offset, buffer, n, err);
		if (r == 0 && digest_stream_add(stream, buffer, n) < 0)
			r = error_errno(err, -ENOTSUP, "%s", key);
		if (r == 0 && (r = fd_write(fd, buffer, n)) < 0)
			error_errno(err, r, "cannot write %s", path);
	}
	if (r == 0 && (digest_stream_finish(stream, &found) < 0 || !digest_equal(&found, &part->sha256)))
		r = damaged(s->bucket, key, err);
	digest_stream_free(stream);
	if (r < 0)
		unlink(path);
	return r;
}

/* Fetches the snapshot once for all readers of this version. */
static int fetch_snapshot(struct backend_s3 *s, struct error *err)
{
	bool is_whole;
	int r;

	closep(&s->cached_fd);
	s->cached_fd = -EBADF;
	free(s->place.folder);
	s->place.folder = NULL;
	r = snapshot_cache_open(bucket_url(s->bucket), &s->manifest, &s->place.folder, &s->cached_fd,
				&is_whole, err);
	if (r < 0)
		return r;
	backend_open_folder(&s->place, false);
	if (is_whole)
		return 0;
	r = fetch(s, "snapshot", &s->manifest.snapshot, SNAPSHOT_CACHE_PART, err);
	return r < 0 ? r : snapshot_cache_keep(s->place.folder, s->cached_fd, err);
}

static int fetch_parts(struct backend_s3 *s, enum backend_mode mode, struct error *err)
{
	int r;

	if (mode == BACKEND_SNAPSHOT)
		return fetch_snapshot(s, err);
	r = fetch(s, "meta", &s->manifest.metadata, META_SQLITE_FILE, err);
	/* A writer builds the snapshot from scratch. */
	if (r == 0 && mode == BACKEND_READ)
		r = fetch(s, "snapshot", &s->manifest.snapshot, SNAPSHOT_FILE, err);
	return r;
}

/* Fetches an earlier version. Its manifest stays for ever, its snapshot as long as writers keep it. */
static int fetch_earlier(struct backend_s3 *s, uint64_t newest, struct error *err)
{
	struct error why = ERROR_INIT;
	const char *url = bucket_url(s->bucket);
	char key[KEY_BYTES];
	uint64_t bytes;

	if (s->wanted > newest)
		return error_set(err, -ENOENT, SNAPSHOT_NO_VERSION, url, s->wanted, newest);
	int r = read_manifest(s->bucket, s->wanted, &s->manifest, &why);

	/* Check this even if the snapshot is cached here: a version that is not kept may have lost its
	 * chunks. */
	if (r == 0)
		r = bucket_size(s->bucket, data_key(&s->manifest.id, "snapshot", key), &bytes, &why);
	if (r == 0)
		r = fetch_parts(s, BACKEND_SNAPSHOT, &why);
	if (r == -ENOENT)
		return error_set(err, r, SNAPSHOT_NOT_RETAINED "; the newest is %" PRIu64, url, s->wanted,
				 newest);
	if (r < 0 && err)
		*err = why;
	return r;
}

/* Fetches the newest version. Tries again if a writer has meanwhile published two more and removed this one's
 * data. */
static int fetch_newest(struct backend_s3 *s, enum backend_mode mode, struct error *err)
{
	for (int attempt = 0;; attempt++) {
		uint64_t version = 0, later = 0;
		int r = find_newest(s->bucket, &version, &s->has_manifest, err);

		if (r < 0 || !s->has_manifest)
			return r;
		s->place.version = version;
		if (s->wanted && version && s->wanted != version)
			return fetch_earlier(s, version, err);
		r = read_manifest(s->bucket, version, &s->manifest, err);
		if (r == 0 && version)
			r = fetch_parts(s, mode, err);
		if (r != -ENOENT || attempt == 10 ||
		    find_newest(s->bucket, &later, &s->has_manifest, NULL) < 0 || later == version)
			return r;
	}
}

/* Writes the manifest of version 0, which is the same for all writers, once or twice: the server must refuse
 * the second write. */
static int probe(struct backend_s3 *s, struct error *err)
{
	char key[KEY_BYTES], text[MANIFEST_MAX];
	struct manifest zero = {0};
	struct iovec part = {text, manifest_format(&zero, text)};
	const char *single = getenv(SINGLE_WRITER);
	int r = bucket_put_new(s->bucket, manifest_key(0, key), &part, 1, err);

	if (r == 0)
		r = bucket_put_new(s->bucket, key, &part, 1, err);
	if (r == -EEXIST)
		return 0;
	if (r == 0 && !(single && !strcmp(single, "1")))
		r = error_set(
		    err, -EOPNOTSUPP,
		    "%s: this server does not support If-None-Match, which lets only one of two simultaneous "
		    "writers succeed; if nobody else writes to this dataset, set " SINGLE_WRITER "=1",
		    bucket_url(s->bucket));
	return r;
}

static int check_presence(struct backend_s3 *s, enum backend_mode mode, struct error *err)
{
	const char *url = bucket_url(s->bucket);
	int r = s->has_manifest && (s->manifest.version || mode == BACKEND_CREATE) ? 1 : has_chunks(s, err);

	if (r < 0)
		return r;
	bool chunks = r == 1;

	if (mode == BACKEND_CREATE) {
		if (!s->has_manifest && chunks)
			return error_set(err, -ESTALE,
					 "%s has chunks but lost its versions: run `dieselctl rebuild %s`",
					 url, url);
		return 0;
	}
	if (mode == BACKEND_REBUILD && chunks)
		return 0;
	if (!s->manifest.version)
		return error_set(err, -ENOENT,
				 "there is no dataset %s%s; make one with `dieselctl pack SOURCE %s`", url,
				 chunks ? ", only chunks of a pack that was not completed" : "", url);
	return 0;
}

static int make_folder(struct backend_s3 *s, struct error *err)
{
	const char *below = secure_getenv("TMPDIR");

	if (asprintf(&s->place.folder, "%s/dieselctl-XXXXXX", below && *below ? below : "/var/tmp") < 0) {
		s->place.folder = NULL;
		return error_errno(err, -ENOMEM, "%s", bucket_url(s->bucket));
	}
	if (!mkdtemp(s->place.folder)) {
		int r = -errno;

		error_errno(err, r, "cannot make the folder %s (TMPDIR)", s->place.folder);
		free(s->place.folder);
		s->place.folder = NULL;
		return r;
	}
	backend_open_folder(&s->place, false);
	return 0;
}

static void s3_close(struct place *p)
{
	static const char *const files[] = {META_SQLITE_FILE, META_SQLITE_FILE "-journal",
					    META_SQLITE_FILE ".damaged", SNAPSHOT_FILE, ".snapshot.tmp"};
	struct backend_s3 *s = s3_of(p);

	for (size_t i = 0; p->folder && s->cached_fd < 0 && i < sizeof(files) / sizeof(files[0]); i++) {
		_cleanup_(freep) char *path = NULL;

		if (asprintf(&path, "%s/%s", p->folder, files[i]) < 0)
			path = NULL;
		else
			unlink(path);
	}
	if (p->folder && s->cached_fd < 0)
		rmdir(p->folder);
	closep(&s->cached_fd);
	closep(&p->dir_fd);
	free(p->folder);
	bucket_close(s->bucket);
	free(s);
}

static int open_parts(struct backend_s3 *s, const char *name, enum backend_mode mode, struct error *err)
{
	struct error fetch_err = ERROR_INIT;
	int r = bucket_open(name, &s->bucket, err);

	if (r == 0 && mode != BACKEND_SNAPSHOT)
		r = make_folder(s, err);
	if (r < 0)
		return r;
	r = fetch_newest(s, mode, &fetch_err);
	if (r < 0 && err)
		*err = fetch_err;
	if (mode == BACKEND_REBUILD && (r == -EBADMSG || r == -ENOENT))
		r = 0; /* a rebuild makes damaged files again */
	if (r == 0)
		r = check_presence(s, mode, err);
	if (r == 0 && mode >= BACKEND_CHANGE)
		r = probe(s, err);
	return r;
}

static const struct backend_ops s3_ops;

static int s3_open(const char *name, enum backend_mode mode, uint64_t version, struct place **ret,
		   struct error *err)
{
	struct backend_s3 *s = calloc(1, sizeof(*s));

	if (!s)
		return error_errno(err, -ENOMEM, "S3");
	s->place.ops = &s3_ops;
	s->place.dir_fd = -EBADF;
	s->cached_fd = -EBADF;
	s->wanted = version;
	int r = open_parts(s, name, mode, err);

	if (r < 0) {
		s3_close(&s->place);
		return r;
	}
	*ret = &s->place;
	return 0;
}

static int s3_store(struct place *p, struct store **ret, struct error *err)
{
	struct store_s3 *s = calloc(1, sizeof(*s));

	if (!s)
		return error_errno(err, -ENOMEM, "%s", bucket_url(s3_of(p)->bucket));
	*s = (struct store_s3){{&store_s3_ops}, s3_of(p)->bucket};
	*ret = &s->store;
	return 0;
}

static int digest_file(int fd, struct manifest_part *ret)
{
	_cleanup_(freep) void *buffer = malloc(COPY_BYTES);
	struct digest_stream *stream = NULL;
	struct stat st;
	size_t done = 0;
	int r = buffer ? digest_stream_new(&stream) : -ENOMEM;

	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	ret->bytes = r == 0 ? (uint64_t)st.st_size : 0;
	for (uint64_t offset = 0; r == 0 && offset < ret->bytes; offset += done) {
		r = fd_read_at(fd, buffer, COPY_BYTES, offset, &done);
		if (r == 0 && done == 0)
			r = -EIO;
		if (r == 0)
			r = digest_stream_add(stream, buffer, done);
	}
	if (r == 0)
		r = digest_stream_finish(stream, &ret->sha256);
	digest_stream_free(stream);
	return r;
}

static int upload(struct backend_s3 *s, const struct chunk_id *id, const char *kind, const char *name,
		  struct manifest_part *ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	char key[KEY_BYTES];

	if (asprintf(&path, "%s/%s", s->place.folder, name) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", name);
	}
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : digest_file(fd, ret);

	if (r < 0)
		return error_errno(err, r, "cannot read %s", path);
	return bucket_put_file(s->bucket, data_key(id, kind, key), fd, ret->bytes, err);
}

struct kept_versions {
	const struct backend_keep *keep;
	uint64_t n, last; /* number of kept versions, and the earliest of them */
};

static int take_kept(const char *key, uint64_t bytes, void *context)
{
	struct kept_versions *kept = context;
	uint64_t version;

	if (take_first(key, bytes, &version) == 0)
		return 0;
	if (version == 0 || version < kept->keep->oldest)
		return 1;
	kept->last = version;
	return ++kept->n == kept->keep->n;
}

/* Data objects of versions that are not kept. */
struct old_data {
	char kept[KEY_BYTES];   /* keys before this one are removed; */
	char before[KEY_BYTES]; /* metadata before this key are removed, too: nobody reads them */
	char keys[N_LISTED][KEY_BYTES];
	unsigned n;
};

static int take_old(const char *key, uint64_t bytes, void *context)
{
	struct old_data *old = context;
	const char *end = strrchr(key, '.');

	(void)bytes;
	if (old->n == N_LISTED || (strcmp(key, old->kept) >= 0 && strcmp(key, old->before) >= 0))
		return 1;
	if (strcmp(key, old->kept) >= 0 && (!end || strcmp(end, ".meta") != 0))
		return 0;
	if (strlen(key) < KEY_BYTES)
		snprintf(old->keys[old->n++], KEY_BYTES, "%s", key);
	return 0;
}

/* Removes the data of versions whose snapshots are not kept. The version that was the newest until now stays
 * for readers that have just found it, unless its chunks are removed next. The next writer tries again to
 * remove what cannot be removed now. */
static void remove_old(struct backend_s3 *s, const struct manifest *newest, const struct backend_keep *keep)
{
	struct kept_versions kept = {.keep = keep};
	struct manifest last = *newest;
	struct old_data old = {.n = N_LISTED};

	if (bucket_list(s->bucket, "versions/", NULL, N_LISTED, take_kept, &kept, NULL) < 0 || !kept.n)
		return;
	if (kept.last != newest->version && read_manifest(s->bucket, kept.last, &last, NULL) < 0)
		return;
	if (kept.last == newest->version && s->manifest.version >= keep->oldest)
		last = s->manifest;
	data_key(&last.id, "", old.kept);
	data_key(s->manifest.version >= keep->oldest ? &s->manifest.id : &newest->id, "", old.before);
	for (unsigned round = 0; round < MAX_ROUNDS && old.n == N_LISTED; round++) {
		old.n = 0;
		if (bucket_list(s->bucket, "data/", NULL, N_LISTED, take_old, &old, NULL) < 0)
			return;
		for (unsigned i = 0; i < old.n; i++)
			bucket_delete(s->bucket, old.keys[i], NULL);
	}
}

static int write_manifest(struct backend_s3 *s, const struct manifest *m, struct error *err)
{
	char key[KEY_BYTES], text[MANIFEST_MAX];
	struct iovec part = {text, manifest_format(m, text)};
	uint64_t newest = 0;
	bool found = false;
	/* If the server does not support If-None-Match, only this check protects against another writer. */
	int r = find_newest(s->bucket, &newest, &found, err);

	if (r == 0 && newest >= s->manifest.version)
		r = found && newest >= m->version
			? -EEXIST
			: bucket_put_new(s->bucket, manifest_key(m->version, key), &part, 1, err);
	if (r == 0 && newest < s->manifest.version)
		return error_set(err, -EBUSY, "%s was removed by another dieselctl meanwhile",
				 bucket_url(s->bucket));
	if (r == -EEXIST)
		return error_set(err, -EBUSY,
				 "%s was changed by another dieselctl meanwhile; run the same command again",
				 bucket_url(s->bucket));
	return r;
}

static int s3_publish(struct place *p, uint64_t version, const struct backend_keep *keep, struct error *err)
{
	struct backend_s3 *s = s3_of(p);
	struct manifest m = {.version = version};
	struct chunk_id_source ids;
	char key[KEY_BYTES];

	chunk_id_source_init(&ids, chunk_id_local_machine(), (uint32_t)getpid(),
			     s->manifest.version ? &s->manifest.id : NULL);
	m.id = chunk_id_next(&ids, clock_realtime_ns() / NS_PER_US);
	int r = upload(s, &m.id, "snapshot", SNAPSHOT_FILE, &m.snapshot, err);

	if (r == 0)
		r = upload(s, &m.id, "meta", META_SQLITE_FILE, &m.metadata, err);
	if (r == 0)
		r = write_manifest(s, &m, err);
	if (r == -EBUSY) { /* after any other failure the manifest may still have been written */
		bucket_delete(s->bucket, data_key(&m.id, "snapshot", key), NULL);
		bucket_delete(s->bucket, data_key(&m.id, "meta", key), NULL);
	}
	if (r < 0)
		return r;
	remove_old(s, &m, keep);
	s->manifest = m;
	p->version = version;
	return 0;
}

/* The ids of data objects ascend with their versions, by which remove_old() removes them. */
static int s3_keep_version(struct place *p, uint64_t version, int fd, struct error *err)
{
	struct backend_s3 *s = s3_of(p);
	struct manifest m = {.version = version};
	struct chunk_id_source ids;
	char key[KEY_BYTES], text[MANIFEST_MAX];
	uint64_t bytes;

	if (bucket_size(s->bucket, manifest_key(version, key), &bytes, NULL) == 0)
		return 0;
	chunk_id_source_init(&ids, chunk_id_local_machine(), (uint32_t)getpid(), NULL);
	m.id = chunk_id_next(&ids, chunk_id_time_us(&s->manifest.id) - (s->manifest.version - version));
	int r = digest_file(fd, &m.snapshot);

	if (r < 0)
		return error_errno(err, r, "cannot read the snapshot of version %" PRIu64, version);
	r = bucket_put_file(s->bucket, data_key(&m.id, "snapshot", key), fd, m.snapshot.bytes, err);
	if (r < 0)
		return r;
	struct iovec part = {text, manifest_format(&m, text)};

	return bucket_put_new(s->bucket, manifest_key(version, key), &part, 1, err);
}

/*
 * Removes a dataset from a bucket. A manifest with the next number says so first, and is removed last:
 * meanwhile nobody can publish a version, which would be lost. Only keys that belong to a dataset are
 * removed.
 */

struct object {
	char key[KEY_BYTES];
	uint64_t bytes;
};

static bool has_end(const char *key, const char *end)
{
	return strcmp(key, end) == 0;
}

/* Returns true if this is PREFIX followed by a chunk's id and one of the endings. */
static bool is_named(const char *key, const char *prefix, const char *end, const char *other_end)
{
	size_t n = strlen(prefix);
	struct chunk_id id;
	char text[CHUNK_ID_TEXT];

	if (strncmp(key, prefix, n) != 0 || strlen(key) < n + CHUNK_ID_TEXT)
		return false;
	memcpy(text, key + n, CHUNK_ID_TEXT - 1);
	text[CHUNK_ID_TEXT - 1] = '\0';
	key += n + CHUNK_ID_TEXT - 1;
	return chunk_id_parse(text, &id) == 0 && (has_end(key, end) || has_end(key, other_end));
}

static int take(const char *key, uint64_t bytes, void *context)
{
	struct object object = {.bytes = bytes};
	uint64_t version;

	if (!parse_version(key, &version) && !is_named(key, "chunks/", ".chunk", ".chunk") &&
	    !is_named(key, "data/", ".snapshot", ".meta"))
		return 0;
	snprintf(object.key, sizeof(object.key), "%s", key);
	return buffer_append(context, &object, sizeof(object));
}

struct removal_run {
	struct bucket *bucket;
	progress_callback *progress;
	void *context;
	struct removal *removal;
	uint64_t mark; /* number of the manifest that says that the dataset is removed */
};

/* Counts a removed object. */
static void count(struct removal_run *c, const struct object *object)
{
	struct removal *r = c->removal;
	size_t n = strlen(object->key);

	r->bytes += object->bytes;
	r->n_chunks += has_end(object->key + n - 6, ".chunk");
	r->n_snapshots += has_end(object->key + n - 9, ".snapshot");
}

/* Removes all objects of a prefix but the mark. */
static int remove_all(struct removal_run *c, const char *prefix, struct error *err)
{
	struct error why = ERROR_INIT;
	struct buffer objects = {0};
	char mark[MANIFEST_KEY];
	int r = bucket_list(c->bucket, prefix, NULL, 0, take, &objects, &why);
	size_t n = objects.bytes / sizeof(struct object);

	manifest_key(c->mark, mark);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct object *object = (const struct object *)objects.data + i;

		if (!strcmp(object->key, mark))
			continue;
		r = bucket_delete(c->bucket, object->key, &why);
		if (r == 0)
			count(c, object);
		if (c->progress)
			c->progress("removing", i + 1, n, c->removal->bytes, c->context);
	}
	buffer_free(&objects);
	if (r < 0 && !why.code)
		error_errno(&why, r, "cannot list %s/%s", bucket_url(c->bucket), prefix);
	if (r < 0 && err)
		*err = why;
	return r;
}

static int take_any(const char *key, uint64_t bytes, void *context)
{
	struct buffer one = {0};
	int r = take(key, bytes, &one);

	*(bool *)context |= one.bytes > 0;
	buffer_free(&one);
	return r < 0 ? r : *(bool *)context;
}

/* Checks that there is a dataset, or what an interrupted removal left. */
static int check(struct removal_run *c, struct error *err)
{
	static const char *const prefixes[] = {"versions/", "chunks/", "data/"};
	bool found = false;
	int r = 0;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]) && r >= 0 && !found; i++)
		r = bucket_list(c->bucket, prefixes[i], NULL, 0, take_any, &found, err);
	if (r < 0)
		return r;
	return found ? 0 : error_set(err, -ENOENT, "there is no dataset %s", bucket_url(c->bucket));
}

/* Returns true if an interrupted removal left this manifest. */
static bool is_mark(struct removal_run *c, uint64_t version)
{
	struct manifest m;

	return read_manifest(c->bucket, version, &m, NULL) == -ESTALE;
}

/* Takes the number after the newest one, which must be `version` unless that is 0. */
static int mark(struct removal_run *c, uint64_t version, struct error *err)
{
	int r = -EEXIST;
	bool found;

	for (int i = 0; i < MAX_TRIES && r == -EEXIST; i++) {
		char key[MANIFEST_KEY], text[MANIFEST_MAX];
		struct manifest m = {.is_removed = true};
		struct iovec part = {.iov_base = text};

		c->mark = 0;
		r = find_newest(c->bucket, &c->mark, &found, err);
		if (r < 0 || (c->mark > 0 && is_mark(c, c->mark) && (!version || c->mark == version + 1)))
			return r;
		if (version && c->mark != version)
			break;
		m.version = ++c->mark;
		part.iov_len = manifest_format(&m, text);
		r = bucket_put_new(c->bucket, manifest_key(c->mark, key), &part, 1, err);
		if (r != -EEXIST)
			return r;
	}
	return error_set(err, -EBUSY, "%s was changed by another dieselctl meanwhile; nothing was removed",
			 bucket_url(c->bucket));
}

/* Removes the mark, unless a server without If-None-Match let another writer publish. */
static int unmark(struct removal_run *c, struct error *err)
{
	char key[MANIFEST_KEY];
	uint64_t newest = 0;
	bool found;
	int r = find_newest(c->bucket, &newest, &found, err);

	if (r == 0)
		r = bucket_delete(c->bucket, manifest_key(c->mark, key), err);
	if (r < 0 || newest <= c->mark)
		return r;
	return error_set(err, -EBUSY,
			 "another dieselctl published version %" PRIu64
			 " of %s meanwhile, of which chunks are removed: run the same command again",
			 newest, bucket_url(c->bucket));
}

static int s3_remove(const char *name, uint64_t version, progress_callback *progress, void *context,
		     struct removal *ret, struct error *err)
{
	struct removal_run c = {.progress = progress, .context = context, .removal = ret};
	int r = bucket_open(name, &c.bucket, err);

	if (r < 0)
		return r;
	r = check(&c, err);
	if (r == 0)
		r = mark(&c, version, err);
	if (r == 0)
		r = remove_all(&c, "versions/", err);
	if (r == 0)
		r = remove_all(&c, "data/", err);
	if (r == 0)
		r = remove_all(&c, "chunks/", err);
	if (r == 0)
		r = unmark(&c, err);
	bucket_close(c.bucket);
	return r;
}

static const struct backend_ops s3_ops = {
    .scheme = BUCKET_SCHEME,
    .open = s3_open,
    .store = s3_store,
    .publish = s3_publish,
    .keep_version = s3_keep_version,
    .remove = s3_remove,
    .close = s3_close,
};

void backend_s3_register(void)
{
	backend_register(&s3_ops);
	external_register(&source_s3_ops);
}
