/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <pthread.h>
#include <stdio.h>

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "dataset/frozen.h"
#include "dataset/snapshot/snapshot_build.h"
#include "dataset/blocks.h"
#include "dataset/checksum.h"
#include "dataset/external.h"
#include "lib/sorted.h"
#include "lib/thread.h"

#define MAX_THREADS 64

struct copy_run {
	const struct copy_options *options;
	const struct copy_source *source;
	struct writer *writer;
	const struct meta_chunk *chunks;
	size_t n;
	pthread_mutex_t lock; /* protects the rest */
	size_t next, n_done;
	struct copy_result *result;
	struct error failure;
	struct buffer checked; /* sorted hashes (uint64_t) of the sources that were checked */
};

/* A chunk's file in memory. Belongs to one thread, which reuses it. */
struct copied_file {
	unsigned char *data;
	size_t n_allocated;
};

static int reserve(struct copied_file *f, uint64_t bytes)
{
	if (bytes <= f->n_allocated)
		return 0;
	free(f->data);
	*f = (struct copied_file){0};
	/* Aligned, so that the store can write it past the page cache. */
	f->data = aligned_alloc(CHUNK_ALIGN, (bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN);
	if (!f->data)
		return -ENOMEM;
	f->n_allocated = bytes;
	return 0;
}

/* Returns true if the store has an object of this id. */
static bool has_object(const struct writer *w, const struct chunk_id *id)
{
	size_t at = sorted_count(w->found.n, i, chunk_id_compare(&w->found.all[i].id, id) < 0);

	return at < w->found.n && chunk_id_compare(&w->found.all[at].id, id) == 0;
}

/* Returns true if an object is this chunk. Its file is whole, because stores show no others. */
static bool is_copied(const struct writer *w, const struct meta_chunk *chunk)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;

	return store_read_head(w->store, &chunk->id, &head, &view, NULL) == 0 &&
	       view.header->head_xxh3 == chunk->head_xxh3;
}

static int compare_plain_ids(const void *a, const void *b)
{
	return chunk_id_compare(a, b);
}

static bool is_outside(const struct copy_run *c, const struct meta_chunk *chunk)
{
	const struct buffer *outside = &c->source->outside;

	return outside->bytes && bsearch(&chunk->id, outside->data, outside->bytes / sizeof(chunk->id),
					 sizeof(chunk->id), compare_plain_ids);
}

/* Notes a source. Returns 1 if it was noted already, and -errno. */
static int note_source(struct copy_run *c, const struct external *source)
{
	const struct {
		uint64_t name, stamp, bytes;
	} key = {checksum_xxh3(source->name, strlen(source->name)), source->range.stamp,
		 source->range.source_bytes};
	uint64_t hash = checksum_xxh3(&key, sizeof(key));
	size_t n = c->checked.bytes / sizeof(hash);
	uint64_t *known = (uint64_t *)c->checked.data;
	size_t at = sorted_count(n, i, known[i] < hash);
	int r;

	if (at < n && known[at] == hash)
		return 1;
	r = buffer_append(&c->checked, &hash, sizeof(hash));
	if (r < 0)
		return r;
	known = (uint64_t *)c->checked.data;
	memmove(known + at + 1, known + at, (n - at) * sizeof(hash));
	known[at] = hash;
	if (c->result->n_sources++ == 0)
		snprintf(c->result->source, sizeof(c->result->source), "%s", source->name);
	return 0;
}

/* Checks the source of an external chunk. A copy is its maker's, who must not vouch for names that another
 * user chose. A chunk that no sample needs may refer to a file that is gone. */
static int check_source(struct copy_run *c, const struct meta_chunk *chunk, const struct chunk_view *view,
			const struct external_maker *maker, struct error *err)
{
	_cleanup_(freep) struct external *source = malloc(sizeof(*source));
	int r = source ? external_in_head(view->header, source) : -ENOMEM;

	if (r < 0)
		return error_errno(err, r, "cannot copy");
	source->maker = *maker;
	if (!is_outside(c, chunk))
		return external_check_others(source, err);
	pthread_mutex_lock(&c->lock);
	r = note_source(c, source);
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return error_errno(err, r, "cannot copy");
	if (r > 0) /* checked by now, but for another maker */
		return external_check_others(source, err);
	return external_check(source, err);
}

static int check_samples(const struct copy_run *c, const struct meta_chunk *chunk,
			 const struct chunk_view *view, const unsigned char *file, const char *name,
			 struct error *err)
{
	_cleanup_(freep) void *plain = NULL;
	struct digest sha256;
	int r = 0;

	if (view->header->flags & CHUNK_FLAG_EXTERNAL) /* the file is only the head, which was checked */
		return chunk->has_sha256
			   ? error_set(err, -EBADMSG, "%s has a SHA-256, which an external chunk cannot have",
				       name)
			   : 0;
	if (view->header->flags & CHUNK_FLAG_COMPRESSED)
		r = chunk_make_plain(file, name, &plain, NULL, err);
	const unsigned char *bytes = plain ? plain : file;
	bool has_samples = !(view->header->flags & CHUNK_FLAG_TOMBSTONE);

	for (uint32_t i = 0; i < view->header->n_records && r == 0 && has_samples; i++)
		r = chunk_verify_record(view, i, bytes + view->records[i].offset, name, err);
	if (r == 0 && chunk->has_sha256) {
		const struct iovec part = {(void *)bytes, view->header->file_bytes};

		r = digest_of(&part, 1, &sha256);
		if (r < 0)
			r = error_errno(err, r, "cannot compute the SHA-256 of %s", name);
		else if (!digest_equal(&sha256, &chunk->sha256))
			r = error_set(err, -EBADMSG,
				      "%s is damaged: it has another SHA-256 than the metadata of %s", name,
				      c->source->path);
	}
	return r;
}

static int read_chunk(struct copy_run *c, const struct meta_chunk *chunk, struct copied_file *f,
		      uint64_t *ret_bytes, uint32_t *ret_head_bytes, struct error *err)
{
	struct store *store = c->source->store;
	struct store_object object = {.id = chunk->id};
	char name[STORE_NAME_MAX];
	struct chunk_view view;
	struct external_maker maker;
	uint64_t needed;
	int r = store_size(store, &chunk->id, &object.bytes, err);

	store_describe(store, &chunk->id, name);
	if (r == 0 && reserve(f, object.bytes) < 0)
		r = error_errno(err, -ENOMEM, "%s", name);
	if (r == 0)
		r = store_read_made(store, &chunk->id, f->data, object.bytes, &maker, err);
	if (r == 0)
		r = store_parse_head(store, &object, f->data, object.bytes, &view, &needed, err);
	if (r == -EAGAIN)
		r = error_set(err, -EBADMSG, "%s is damaged: its head is longer than the file", name);
	if (r == 0 && view.header->head_xxh3 != chunk->head_xxh3)
		r = error_set(err, -EBADMSG, "%s is not the chunk that %s had under this name", name,
			      c->source->path);
	if (r == 0 && view.header->flags & CHUNK_FLAG_EXTERNAL)
		r = check_source(c, chunk, &view, &maker, err);
	if (r == 0)
		r = check_samples(c, chunk, &view, f->data, name, err);
	if (r < 0)
		return r;
	*ret_bytes = object.bytes;
	*ret_head_bytes = view.header->payload_offset;
	return 0;
}

/* Copies a chunk. *copied is 0 if it was there. */
static int copy_chunk(struct copy_run *c, const struct meta_chunk *chunk, struct copied_file *f,
		      uint64_t *copied, struct error *err)
{
	bool is_there = has_object(c->writer, &chunk->id);
	uint32_t head_bytes;
	uint64_t bytes;

	*copied = 0;
	/* The source of an external chunk may have changed since an earlier run. */
	if (is_there && !is_outside(c, chunk) && is_copied(c->writer, chunk))
		return 0;
	int r = read_chunk(c, chunk, f, &bytes, &head_bytes, err);

	if (r == 0)
		r = writer_lock_check(c->writer->lock, err);
	if (r < 0)
		return r;
	const struct iovec parts[] = {{f->data, head_bytes}, {f->data + head_bytes, bytes - head_bytes}};
	int n_parts = bytes > head_bytes ? 2 : 1;

	r = is_there ? store_replace(c->writer->store, &chunk->id, parts, n_parts, err)
		     : store_put(c->writer->store, &chunk->id, parts, n_parts, err);
	*copied = bytes;
	return r;
}

/* Counts a chunk. Called with the lock held. */
static void count(struct copy_run *c, uint64_t bytes)
{
	c->n_done++;
	c->result->bytes += bytes;
	c->result->n_resumed += bytes == 0;
	if (c->options->progress)
		c->options->progress("copying", c->n_done, c->n, c->result->bytes, c->options->context);
}

static void *copy_some(void *argument)
{
	struct copy_run *c = argument;
	struct copied_file file = {0};

	pthread_mutex_lock(&c->lock);
	while (c->next < c->n && !c->failure.code) {
		const struct meta_chunk *chunk = &c->chunks[c->next++];
		struct error err = ERROR_INIT;
		uint64_t bytes = 0;

		if (c->options->cancelled && c->options->cancelled(c->options->context)) {
			error_set(&c->failure, -ECANCELED,
				  "interrupted: the same command continues where this one stopped");
			break;
		}
		pthread_mutex_unlock(&c->lock);
		int r = copy_chunk(c, chunk, &file, &bytes, &err);

		pthread_mutex_lock(&c->lock);
		if (r == 0)
			count(c, bytes);
		else if (!c->failure.code)
			c->failure = err;
	}
	pthread_mutex_unlock(&c->lock);
	free(file.data);
	return NULL;
}

/* Copies all chunks that the writer's store has not, and checks each. */
static int copy_chunks(const struct copy_options *o, const struct copy_source *s, struct writer *w,
		       struct copy_result *result, struct error *err)
{
	struct copy_run c = {.options = o, .source = s, .writer = w, .result = result};
	pthread_t threads[MAX_THREADS];
	unsigned n_threads = 0;

	c.chunks = copy_chunks_of(s, &c.n);
	pthread_mutex_init(&c.lock, NULL);
	while (n_threads + 1 < o->n_threads && n_threads < MAX_THREADS && n_threads + 1 < c.n &&
	       thread_start(&threads[n_threads], copy_some, &c) == 0)
		n_threads++;
	copy_some(&c);
	for (unsigned i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&c.lock);
	buffer_free(&c.checked);
	result->n_chunks = c.n;
	result->n_outside = s->n_outside;
	if (c.failure.code && err)
		*err = c.failure;
	return c.failure.code;
}

/* Copies a snapshot to the staged one of the copy, and verifies it there. */
static int stage(const struct copy_source *s, struct writer *w, uint64_t version, struct error *err)
{
	_cleanup_(closep) int from = -EBADF, fd = -EBADF;
	struct snapshot *snapshot = NULL;
	int r = copy_source_snapshot(s, version, &from, err);

	if (r < 0)
		return r;
	r = writer_stage_copy(w, from);
	fd = r < 0 ? r : openat(w->dir_fd, SNAPSHOT_STAGED_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, r < 0 ? r : -errno, "cannot write the snapshot of %s", w->path);
	r = snapshot_open_fd(fd, s->path, &snapshot, err);
	if (r == 0)
		r = snapshot_verify(snapshot, err);
	if (r == 0 && snapshot_info(snapshot)->version != version)
		r = error_set(err, -EBADMSG,
			      "the snapshot of version %" PRIu64 " of %s is of version %" PRIu64, version,
			      s->path, snapshot_info(snapshot)->version);
	snapshot_close(snapshot);
	return r;
}

/* Copies the snapshots of earlier versions to a folder. Readers find them before the newest one, but no
 * dataset that they belong to. */
static int keep_earlier(const struct copy_source *s, struct writer *w, const uint64_t *versions, size_t n,
			struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (versions[i] >= s->version)
			continue;
		r = stage(s, w, versions[i], err);
		if (r == 0)
			r = writer_keep_staged(w, versions[i], err);
	}
	return r;
}

/* Adds the chunks and the log to the metadata of the copy, within the transaction. */
static int fill_metadata(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			 const struct change **ret_last, struct error *err)
{
	size_t n, n_changes = s->changes.bytes / sizeof(struct change);
	const struct meta_chunk *chunks = copy_chunks_of(s, &n);
	const struct change *changes = (const struct change *)s->changes.data;
	int r = s->has_digests ? meta_keep_digests(w->meta, err) : 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		_cleanup_(freep) void *head = NULL;
		struct digest sha256 = chunks[i].sha256;
		struct chunk_view view;

		r = store_read_head(w->store, &chunks[i].id, &head, &view, err);
		if (r == 0)
			r = meta_add_chunk(w->meta, &view, err);
		if (r == 0 && s->has_digests && !chunks[i].has_sha256)
			r = store_digest(w->store, &chunks[i].id, &sha256, err);
		if (r == 0 && s->has_digests)
			r = meta_put_digest(w->meta, &chunks[i].id, &sha256, err);
		if (o->progress)
			o->progress("committing", i + 1, n, 0, o->context);
	}
	*ret_last = NULL;
	for (size_t i = 0; i < n_changes && r == 0; i++) {
		if (changes[i].version < s->version)
			r = meta_put_change(w->meta, &changes[i], err);
		else if (changes[i].version == s->version)
			*ret_last = &changes[i];
	}
	return r;
}

static int commit(const struct copy_options *o, const struct copy_source *s, struct writer *w,
		  struct error *err)
{
	struct meta_info now = {0};
	const struct change *last;
	size_t n;

	copy_chunks_of(s, &n);
	int r = fill_metadata(o, s, w, &last, err);

	if (r == 0)
		r = meta_info(w->meta, &now, err);
	if (r == 0 && (now.n_chunks != n || now.n_paths != s->n_samples))
		r = error_set(err, -EBADMSG,
			      "the chunks of %s have %" PRIu64 " samples, its metadata %" PRIu64
			      ": run `dieselctl verify`",
			      s->path, now.n_paths, s->n_samples);
	if (r == 0)
		r = meta_commit(w->meta, s->version, last, err);
	if (r == 0)
		w->begun = false;
	return r;
}

/* Leaves the copy without metadata of its own. */
static void drop_metadata(struct writer *w)
{
	meta_rollback(w->meta, true);
	w->begun = false;
	frozen_drop_metadata(w->dir_fd, w->path, NULL);
}

/* Replaces the metadata of the copy: by none if it is frozen, or by those that the original has on a server.
 */
static int replace_metadata(const struct copy_source *s, struct writer *w, struct error *err)
{
	int r = s->is_frozen ? frozen_mark(w->dir_fd, w->path, err) : 0;

	if (r < 0)
		return r;
	drop_metadata(w);
	return s->is_frozen ? 0 : meta_redis_move(s->place->dir_fd, s->path, w->dir_fd, w->path, err);
}

static int publish_in_folder(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			     const uint64_t *versions, size_t n, struct error *err)
{
	int r = keep_earlier(s, w, versions, n, err);

	if (r == 0)
		r = stage(s, w, s->version, err);
	if (r == 0)
		r = writer_keep_staged(w, s->version, err);
	bool replaces = s->is_frozen || s->gives_redis;

	if (r == 0 && !replaces && w->info.version == 0)
		r = commit(o, s, w, err);
	if (r == 0)
		r = snapshot_publish(w->dir_fd, w->path, err);
	return r == 0 && replaces ? replace_metadata(s, w, err) : r;
}

/* A bucket publishes version, metadata and snapshot together. Snapshots of earlier versions follow, because a
 * reader would take the first one for the newest. */
static int publish_in_bucket(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			     const uint64_t *versions, size_t n, struct error *err)
{
	const struct backend_keep keep = {.n = UINT64_MAX};
	int r = 0;

	if (w->place->version != s->version) {
		r = stage(s, w, s->version, err);
		if (r == 0)
			r = commit(o, s, w, err);
		if (r == 0)
			r = snapshot_publish(w->dir_fd, w->path, err);
		if (r == 0)
			r = backend_publish(w->place, s->version, &keep, err);
	}
	for (size_t i = n; i > 0 && r == 0; i--) {
		_cleanup_(closep) int fd = -EBADF;

		if (versions[i - 1] >= s->version)
			continue;
		r = copy_source_snapshot(s, versions[i - 1], &fd, err);
		if (r == 0)
			r = backend_keep_version(w->place, versions[i - 1], fd, err);
	}
	return r;
}

/* Snapshots are kept in a bucket from some version to the newest. */
static int find_kept(const struct copy_source *s, uint64_t *ret_first)
{
	uint64_t first = s->version;
	int fd = -EBADF, r = 0;

	while (first > 1 && r == 0) {
		r = copy_source_snapshot(s, first - 1, &fd, NULL);
		if (r == 0) {
			closep(&fd);
			first--;
		}
	}
	if (r < 0 && r != -ENOENT)
		return r;
	*ret_first = first;
	return 0;
}

/* Lists the versions whose snapshots are kept, ascending, up to the newest: free() the array. */
static int copy_source_kept(const struct copy_source *s, uint64_t **ret, size_t *ret_n, struct error *err)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	uint64_t first = s->version;
	size_t n = 0;
	int r =
	    s->place->ops ? find_kept(s, &first) : snapshot_retained_list(s->place->dir_fd, &versions, &n);

	if (r == 0 && s->place->ops) {
		versions = calloc(s->version - first + 1, sizeof(*versions));
		r = versions ? 0 : -ENOMEM;
		for (; r == 0 && first + n <= s->version; n++)
			versions[n] = first + n;
	}
	if (r < 0)
		return error_errno(err, r, "cannot list the snapshots of %s", s->path);
	*ret = steal_pointer(versions);
	*ret_n = n;
	return 0;
}

/* Makes metadata and snapshots, and publishes them. */
static int copy_publish(const struct copy_options *o, const struct copy_source *s, struct writer *w,
			struct copy_result *result, struct error *err)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	size_t n = 0;
	int r = copy_source_kept(s, &versions, &n, err);

	if (r == 0)
		r = w->place->ops ? publish_in_bucket(o, s, w, versions, n, err)
				  : publish_in_folder(o, s, w, versions, n, err);
	result->version = s->version;
	result->n_samples = s->n_samples;
	result->n_snapshots = n;
	return r;
}

#define ACL       "system.posix_acl_access"
#define ACL_BYTES 4096

/* Who gets the copy: the owner of its folder if that is another user, who keeps it; else of each original. */
struct owner {
	bool is_fixed;
	uid_t uid;
	gid_t gid;
	struct timespec since; /* when the copy began */
};

/* Another user may rename any file of the caller's into the folder, to get it. So older files, and all where
 * the file system does not know their age, stay as they are. */
static bool may_change(int fd, const struct owner *owner)
{
	struct statx st;

	return !owner->is_fixed ||
	       (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) == 0 && st.stx_mask & STATX_BTIME &&
		(st.stx_btime.tv_sec > owner->since.tv_sec ||
		 (st.stx_btime.tv_sec == owner->since.tv_sec &&
		  st.stx_btime.tv_nsec >= (uint32_t)owner->since.tv_nsec)));
}

static void give(int to, uid_t uid, gid_t gid)
{
	if (fchown(to, uid, gid) < 0 && fchown(to, (uid_t)-1, gid) < 0)
		errno = 0; /* the caller may not */
}

/* The mode is last: a change of the owner removes bits, and the mode says less than the list. */
static void copy_attributes_to(int from, int to, const struct owner *owner)
{
	char acl[ACL_BYTES];
	struct stat st;

	if (owner->is_fixed)
		give(to, owner->uid, owner->gid);
	if (from < 0 || fstat(from, &st) < 0)
		return;
	if (!owner->is_fixed)
		give(to, st.st_uid, st.st_gid);
	(void)fchmod(to, st.st_mode & (S_ISDIR(st.st_mode) ? 07777 : 0777));
	ssize_t n = fgetxattr(from, ACL, acl, sizeof(acl));

	if (n > 0)
		(void)fsetxattr(to, ACL, acl, (size_t)n, 0);
	(void)futimens(to, (const struct timespec[]){st.st_atim, st.st_mtim});
}

static int open_same(int dir_fd, const char *name)
{
	return dir_fd < 0 ? -EBADF
			  : openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static DIR *list(int dir_fd)
{
	int listed = dir_fd < 0 ? -1 : openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = listed < 0 ? NULL : fdopendir(listed);

	if (!dir)
		closep(&listed);
	return dir;
}

static bool is_name_of(int dir_fd, const char *name, const struct stat *st)
{
	struct stat found;

	return fstatat(dir_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_dev == st->st_dev &&
	       found.st_ino == st->st_ino;
}

/* Returns true if the dataset has all names of the file. Else the folder's owner may have linked somebody's
 * file to this name, to get it. Only the newest snapshot has several names. */
static bool is_of_dataset(int dataset_fd, const struct stat *st)
{
	_cleanup_(closep) int kept = open_same(dataset_fd, SNAPSHOT_RETAINED_FOLDER);
	nlink_t n = is_name_of(dataset_fd, SNAPSHOT_FILE, st);
	DIR *dir = st->st_nlink > 1 ? list(kept) : NULL;

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		n += is_name_of(kept, entry->d_name, st);
	if (dir)
		closedir(dir);
	return S_ISREG(st->st_mode) && (st->st_nlink == 1 || st->st_nlink == n);
}

static void copy_folder(int from_fd, int to_fd, const char *name, const struct owner *owner)
{
	_cleanup_(closep) int from = open_same(from_fd, name), to = open_same(to_fd, name);
	DIR *dir = list(to);

	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		_cleanup_(closep) int file = open_same(from, entry->d_name),
				      copy = open_same(to, entry->d_name);
		struct stat st, there;

		if (file >= 0 && (fstat(file, &st) < 0 || !S_ISREG(st.st_mode)))
			continue;
		if (copy >= 0 && fstat(copy, &there) == 0 && is_of_dataset(to_fd, &there) &&
		    may_change(copy, owner))
			copy_attributes_to(file, copy, owner);
	}
	closedir(dir);
	if (strcmp(name, ".") == 0 || may_change(to, owner))
		copy_attributes_to(from, to, owner);
}

/* Gives the files of a folder owner, mode, access control list and times of those with the same names in the
 * other, as far as the caller may. A folder of another user stays that user's, who gets the files that were
 * made in it since then (CLOCK_REALTIME_COARSE). from_fd < 0: only this. */
static void copy_attributes(int from_fd, int to_fd, const struct timespec *since)
{
	struct owner owner = {0};
	struct stat st;

	if (fstat(to_fd, &st) < 0)
		return;
	if (st.st_uid != geteuid())
		owner = (struct owner){.is_fixed = true, .uid = st.st_uid, .gid = st.st_gid, .since = *since};
	copy_folder(from_fd, to_fd, "chunks", &owner);
	copy_folder(from_fd, to_fd, SNAPSHOT_RETAINED_FOLDER, &owner);
	copy_folder(from_fd, to_fd, ".", &owner);
}

/* Makes the folder of a copy, which nobody else may enter before it has the modes of the original. */
static int make_folder(const struct copy_source *s, const char *path, struct error *err)
{
	const char *name;
	_cleanup_(closep) int parent = file_folder(path, true, &name);

	if (parent == -EISDIR)
		return 0;
	if (parent < 0)
		return file_error(err, parent, "make the folder", path);
	if (mkdirat(parent, name, s->place->ops ? 0777 : 0700) < 0 && errno != EEXIST)
		return error_errno(err, -errno, "cannot make the folder %s", path);
	return 0;
}

static int check_places(const struct copy_options *o, const struct copy_source *s, struct error *err)
{
	if (s->place->ops || backend_is_elsewhere(o->to))
		return strcmp(o->from, o->to) == 0
			   ? error_set(err, -EINVAL, "%s cannot be copied to itself", o->from)
			   : 0;
	_cleanup_(freep) char *from = realpath(o->from, NULL);
	_cleanup_(freep) char *to = realpath(o->to, NULL);
	size_t n = from ? strlen(from) : 0;

	if (from && to && strncmp(from, to, n) == 0 && (to[n] == '\0' || to[n] == '/'))
		return error_set(err, -EINVAL, "%s is in %s: choose another folder", o->to, o->from);
	return 0;
}

/* Chooses the server for the metadata of a copy: that of the original, with a prefix that nobody uses. *ret
 * is NULL if there is nothing to choose, because the copy has metadata already, or has them in a file. */
static int choose_meta(const struct copy_options *o, const struct copy_source *s, char **ret,
		       struct error *err)
{
	_cleanup_(closep) int fd = file_folder_open(o->to, true);
	_cleanup_(freep) char *url = NULL;
	char *chosen = NULL;
	struct stat st;
	uint32_t random = 0;

	if (o->meta_url) {
		chosen = strdup(o->meta_url);
		if (!chosen)
			return error_errno(err, -ENOMEM, "%s", o->to);
		*ret = chosen;
		return 0;
	}
	if (!s->has_redis || s->gives_redis || backend_is_elsewhere(o->to) ||
	    fstatat(fd, META_REDIS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	int r = meta_redis_url(s->place->dir_fd, o->from, &url, err);

	if (r < 0)
		return r;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random) ||
	    asprintf(&chosen, "%s-%08x", url, random) < 0)
		return error_errno(err, -ENOMEM, "%s", o->to);
	*ret = chosen;
	return 0;
}

/* A dataset at the place of the copy must be what an earlier run has left. */
static int check_there(const struct copy_source *s, const struct writer *w, struct error *err)
{
	size_t n;
	const struct meta_chunk *chunks = copy_chunks_of(s, &n);
	const struct meta_info *there = &w->info;

	if (there->version == 0 ||
	    (there->version == s->version && there->n_chunks == n && there->n_paths == s->n_samples && n &&
	     there->has_newest && chunk_id_compare(&there->newest, &chunks[n - 1].id) == 0))
		return 0;
	return error_set(err, -EEXIST,
			 "%s has another dataset (version %" PRIu64 "): delete it, or choose another name",
			 w->path, there->version);
}

static int compare_ids(const void *id, const void *chunk)
{
	return chunk_id_compare(id, &((const struct meta_chunk *)chunk)->id);
}

/* Removes chunks that the original has not, such as those of an interrupted pack. */
static void remove_others(const struct copy_source *s, struct writer *w)
{
	size_t n;
	const struct meta_chunk *chunks = copy_chunks_of(s, &n);

	for (size_t i = 0; i < w->found.n && !w->place->ops; i++)
		if (!n || !bsearch(&w->found.all[i].id, chunks, n, sizeof(*chunks), compare_ids))
			store_remove(w->store, &w->found.all[i].id, NULL);
	w->found.n_leftovers = 0;
}

static int copy_to(const struct copy_options *o, const struct copy_source *s, struct writer *w,
		   struct copy_result *result, struct error *err)
{
	int r = check_there(s, w, err);

	if (r == 0)
		r = writer_hold(w, err);
	if (r == 0)
		r = copy_chunks(o, s, w, result, err);
	if (r < 0)
		return r;
	remove_others(s, w);
	return copy_publish(o, s, w, result, err);
}

int copy_of_source(const struct copy_options *o, const struct copy_source *s, struct copy_result *result,
		   struct error *err)
{
	_cleanup_(freep) char *meta_url = NULL;
	_cleanup_(closep) int to_fd = -EBADF;
	struct writer *w = NULL;
	struct timespec began;

	clock_gettime(CLOCK_REALTIME_COARSE, &began); /* the clock of files */
	int r = backend_is_elsewhere(o->to) ? 0 : make_folder(s, o->to, err);

	if (r == 0)
		r = check_places(o, s, err);
	if (r == 0)
		r = choose_meta(o, s, &meta_url, err);
	if (r == 0)
		r = writer_open_on(o->to, WRITER_COPY, CHUNK_MIN_BYTES, meta_url, &w, err);
	if (r == 0)
		r = copy_to(o, s, w, result, err);
	if (r == 0 && !w->place->ops)
		to_fd = fcntl(w->dir_fd, F_DUPFD_CLOEXEC, 0);
	writer_free(w); /* which changes the time of the folder */
	if (to_fd >= 0)
		copy_attributes(s->place->ops ? -EBADF : s->place->dir_fd, to_fd, &began);
	return r;
}

int dataset_copy(const struct copy_options *o, struct copy_result *ret, struct error *err)
{
	struct copy_result result = {0};
	struct copy_source s;
	int r = copy_source_open(o->from, false, &s, err);

	if (r < 0)
		return r;
	r = copy_of_source(o, &s, &result, err);
	copy_source_close(&s);
	if (r == 0)
		*ret = result;
	return r;
}
