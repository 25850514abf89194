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

#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "dataset/frozen.h"
#include "dataset/snapshot/snapshot_build.h"

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
