/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stdio.h>
#include <sys/random.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/file_open.h"
#include "lib/units.h"
#include "dataset/snapshot/snapshot_build.h"
#include "writer_private.h"

#define NAME_DIGITS  32
#define MAX_ATTEMPTS 100
#define POLL_NS      (20 * NS_PER_MS)

struct writer_spool {
	int folder_fd, fd; /* DATASET/.shared, and this writer's folder in it */
	char name[NAME_DIGITS + 1];
	char *path; /* of this writer's folder, for messages */
	struct writer_lock *lock;
	struct store *store;
	bool has_joined;
};

static int open_folder(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Removes chunks, lock and folder. The caller holds the lock, which this frees. */
static void remove_spool(int folder_fd, const char *name, int fd, struct store *store,
			 struct writer_lock *lock)
{
	_cleanup_(freep) struct store_object *objects = NULL;
	size_t n = 0;

	if (store && store_list(store, NULL, &objects, &n, NULL) == 0)
		store_sweep(store, NULL);
	for (size_t i = 0; i < n; i++)
		store_remove(store, &objects[i].id, NULL);
	unlinkat(fd, "chunks", AT_REMOVEDIR);
	writer_lock_free(lock);
	unlinkat(folder_fd, name, AT_REMOVEDIR);
}

static void sweep_spool(int folder_fd, const char *name, const char *path)
{
	_cleanup_(closep) int fd = open_folder(folder_fd, name);
	struct writer_lock *lock;
	struct store *store = NULL;

	if (fd < 0 || writer_lock_take(fd, path, &lock, NULL) < 0)
		return;
	if (store_open_at(fd, path, false, &store, NULL) < 0)
		store = NULL;
	remove_spool(folder_fd, name, fd, store, lock);
	store_free(store);
}

void writer_sweep_spools(int dir_fd, const char *path)
{
	_cleanup_(closep) int fd = open_folder(dir_fd, WRITER_SPOOLS);
	int listed = fd < 0 ? -1 : open_folder(fd, ".");
	DIR *dir = listed < 0 ? NULL : fdopendir(listed);

	if (!dir) {
		closep(&listed);
		return;
	}
	for (struct dirent *entry; (entry = readdir(dir));)
		if (strspn(entry->d_name, "0123456789abcdef") == NAME_DIGITS &&
		    strlen(entry->d_name) == NAME_DIGITS)
			sweep_spool(fd, entry->d_name, path);
	closedir(dir);
	unlinkat(dir_fd, WRITER_SPOOLS, AT_REMOVEDIR); /* if it is empty */
}

static int random_name(char name[NAME_DIGITS + 1])
{
	unsigned char bytes[NAME_DIGITS / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(name + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* Makes the writer's folder, and locks it. -EAGAIN: it was removed meanwhile. */
static int make_folder(struct writer *w, struct writer_spool *s)
{
	int r = random_name(s->name);

	closep(&s->fd);
	closep(&s->folder_fd);
	if (r == 0 && mkdirat(w->dir_fd, WRITER_SPOOLS, 0777) < 0 && errno != EEXIST)
		return -errno;
	s->folder_fd = r < 0 ? r : open_folder(w->dir_fd, WRITER_SPOOLS);
	if (s->folder_fd < 0)
		return s->folder_fd == -ENOENT ? -EAGAIN : s->folder_fd;
	if (mkdirat(s->folder_fd, s->name, 0777) < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	s->fd = open_folder(s->folder_fd, s->name);
	r = s->fd < 0 ? s->fd : writer_lock_take(s->fd, w->path, &s->lock, NULL);
	return r == -ENOENT || r == -EBUSY ? -EAGAIN : r;
}

/* A writer's own folder for chunks, DATASET/.shared/ID, which it has locked. This makes it, and starts
 * the queue. */
static int writer_spool_new(struct writer *w, struct error *err)
{
	struct writer_spool *s = w->spool = calloc(1, sizeof(*s));
	int r = s ? -EAGAIN : -ENOMEM;

	if (s)
		s->fd = s->folder_fd = -EBADF;
	writer_sweep_spools(w->dir_fd, w->path);
	for (int i = 0; r == -EAGAIN && i < MAX_ATTEMPTS; i++)
		r = make_folder(w, s);
	if (r == 0 && asprintf(&s->path, "%s/" WRITER_SPOOLS "/%s", w->path, s->name) < 0) {
		s->path = NULL;
		r = -ENOMEM;
	}
	if (r < 0)
		return error_errno(err, r, "cannot make a folder in %s/" WRITER_SPOOLS, w->path);
	chunk_id_source_init(&w->ids, chunk_id_local_machine(), (uint32_t)getpid(), NULL);
	r = store_open_at(s->fd, s->path, true, &s->store, err);
	return r < 0 ? r : put_queue_new(s->store, s->lock, w->chunk_bytes, &w->queue, err);
}

static int take_newest(const struct change *change, void *context)
{
	struct chunk_id *newest = context;

	if (change->has_newest && chunk_id_compare(&change->newest, newest) > 0)
		*newest = change->newest;
	return 0;
}

/* Sets the floor for a dataset elsewhere, where none is stored. Chunks newer than all chunks of any version
 * are leftovers, or belong to another writer, which cannot publish them any more once this writer has
 * published. Older chunks that the newest version lacks may be in removal by a purge. */
static int assume_floor(struct writer *w, struct error *err)
{
	struct chunk_id newest = w->info.has_newest ? w->info.newest : (struct chunk_id){0};
	int r = w->place->ops ? meta_each_change(w->meta, take_newest, &newest, err) : 0;

	if (r == 0 && w->place->ops) {
		w->info.has_pending = true;
		w->info.pending = newest;
	}
	return r;
}

/* Leftovers are the chunks above the pending floor that the store has and the metadata has not. Nobody
 * adds to them while the writer lock is held. All chunks of the metadata, the newest one too, lie below them.
 */
static void count_leftovers(struct writer *w)
{
	const struct chunk_id *floor = w->info.has_pending ? &w->info.pending : NULL;

	while (floor && w->found.n_leftovers < w->found.n) {
		const struct chunk_id *id = &w->found.all[w->found.n - w->found.n_leftovers - 1].id;

		if (chunk_id_compare(id, floor) <= 0 ||
		    (w->info.has_newest && chunk_id_compare(id, &w->info.newest) <= 0))
			break;
		w->found.n_leftovers++;
	}
}

static int begin(struct writer *w, enum writer_purpose purpose, struct error *err)
{
	int r = meta_info(w->meta, &w->info, err);

	chunk_id_source_init(&w->ids, chunk_id_local_machine(), (uint32_t)getpid(), NULL);
	if (r == 0)
		r = writer_list(w, err);
	if (r < 0)
		return r;
	r = assume_floor(w, err);
	if (r < 0)
		return r;
	/* Refuse before anything is written, even the pending floor. */
	if (purpose != WRITER_REBUILD && w->info.version == 0 && !w->info.has_pending && w->found.n)
		return error_set(err, -ESTALE,
				 "%s has %zu chunk%s but lost its metadata: run `dieselctl rebuild %s`",
				 w->path, w->found.n, units_plural(w->found.n), w->path);
	if (!w->place->ops && purpose != WRITER_REBUILD && purpose != WRITER_COPY &&
	    writer_snapshot_version(w) > w->info.version)
		return error_set(
		    err, -ESTALE,
		    "%s has a snapshot that is newer than its metadata: run `dieselctl rebuild %s`", w->path,
		    w->path);
	if (purpose != WRITER_COPY)
		w->floor = chunk_id_next(&w->ids, clock_realtime_ns() / NS_PER_US);
	r = meta_begin(w->meta, &w->floor, &w->info, err);
	if (r < 0)
		return r;
	w->begun = true;
	r = writer_check_frozen(w, err);
	if (r < 0)
		return r;
	r = assume_floor(w, err);
	if (r == 0)
		r = writer_list(w, err); /* list again, now that nobody else writes */
	if (r == 0)
		r = store_sweep(w->store, err);
	if (r == 0)
		count_leftovers(w);
	return r;
}

/* Takes the lock, and begins the transaction. */
static int writer_begin(struct writer *w, struct error *err)
{
	enum meta_mode mode = w->purpose == WRITER_REBUILD ? META_REPLACE : META_CREATE;
	int r = w->place->ops ? 0 : writer_lock_take(w->dir_fd, w->path, &w->lock, err);

	if (r == 0)
		r = w->meta_url ? meta_redis_choose_at(w->place->dir_fd, w->place->folder, w->meta_url, mode,
						       &w->meta, err)
				: meta_open_at(w->place->dir_fd, w->place->folder, mode, &w->meta, err);
	if (r == 0)
		r = backend_store(w->place, true, &w->store, err);
	return r < 0 ? r : begin(w, w->purpose, err);
}

/* Waits for the dataset's lock, which others take over only from a dead writer. The lock is not loosened:
 * this writer has all its data, and the commit follows at once. */
static int wait_and_begin(struct writer *w, struct error *err)
{
	const struct writer_wait wait = {.dataset = w->path, .until_ns = UINT64_MAX, .poll_ns = POLL_NS};
	int r;

	while ((r = writer_begin(w, err)) == -EBUSY && !w->lock) {
		writer_wait(&wait);
		writer_pause(POLL_NS);
	}
	if (r == 0)
		r = writer_lock_check(w->spool->lock, err);
	return r;
}

static int take_chunk(struct writer *w, const struct chunk_id *id, const struct chunk_id *as,
		      struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;
	int r = store_read_head(w->spool->store, id, &head, &view, err);

	if (r < 0)
		return r;
	const struct iovec part = {head, view.header->payload_offset};

	chunk_set_id(head, as);
	return store_take(w->store, w->spool->store, id, as, &part, err);
}

/* Moves the chunks to the dataset's, with ids above all that it has had. */
static int take_chunks(struct writer *w, struct error *err)
{
	struct chunk_id *ids = (struct chunk_id *)w->chunks.data;
	size_t n = w->chunks.bytes / sizeof(*ids);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		struct chunk_id id = chunk_id_next(&w->ids, clock_realtime_ns() / NS_PER_US);

		r = take_chunk(w, &ids[i], &id, err);
		ids[i] = id;
	}
	return r == 0 && n ? store_sync(w->store, err) : r;
}

int writer_spool_join(struct writer *w, struct error *err)
{
	if (!w->spool || w->spool->has_joined)
		return 0;
	w->spool->has_joined = true;
	int r = wait_and_begin(w, err);

	w->has_known_layout = false; /* samples added before the join do not decide for the dataset */
	if (r == 0 && (w->info.has_digests || w->keeps_digests))
		r = writer_keep_digests(w, err);
	if (r == 0)
		r = writer_drop_leftovers(w, err);
	return r < 0 ? r : take_chunks(w, err);
}

/* Removes the dataset's directory. Only an empty directory can be removed, so it does not matter if another
 * one has the name by now. */
static void writer_remove_directory(const struct writer *w)
{
	size_t length = strlen(w->path);

	while (length > 1 && w->path[length - 1] == '/')
		length--;
	_cleanup_(freep) char *path = strndup(w->path, length);
	const char *slash = path ? strrchr(path, '/') : NULL;

	if (path)
		unlinkat(w->parent_fd, slash ? slash + 1 : path, AT_REMOVEDIR);
}

static void writer_spool_free(struct writer *w)
{
	struct writer_spool *s = w->spool;

	if (!s)
		return;
	if (s->lock)
		remove_spool(s->folder_fd, s->name, s->fd, s->store, s->lock);
	unlinkat(w->dir_fd, WRITER_SPOOLS, AT_REMOVEDIR); /* if it is empty */
	if (w->made_directory && !w->begun)
		writer_remove_directory(w);
	store_free(s->store);
	closep(&s->fd);
	closep(&s->folder_fd);
	free(s->path);
	free(s);
	w->spool = NULL;
}

/* Returns 1 if the directory holds a dataset or the beginning of one, 0 if it is empty, or -ENOTEMPTY if it
 * holds other things. */
static int inspect_directory(int dir_fd, const char *path, struct error *err)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = 0;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir) {
		int r = -errno;

		closep(&fd);
		return error_errno(err, r, "cannot read %s", path);
	}
	for (struct dirent *entry; result != 1 && (entry = readdir(dir));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    !strcmp(entry->d_name, WRITER_LOCK_FILE) || !strcmp(entry->d_name, META_REDIS_TMP) ||
		    !strcmp(entry->d_name, WRITER_SPOOLS))
			continue;
		result = !strcmp(entry->d_name, META_SQLITE_FILE) ||
				 !strcmp(entry->d_name, META_REDIS_FILE) || !strcmp(entry->d_name, "chunks")
			     ? 1
			     : -ENOTEMPTY;
	}
	closedir(dir);
	if (result < 0)
		return error_set(err, result, "%s is not empty and not a dataset; choose a new directory",
				 path);
	return result;
}

/* Makes the dataset's directory, and remembers its parent folder, through which it can be removed again. */
static int make_directory(struct writer *w, struct error *err)
{
	size_t length = strlen(w->path);

	while (length > 1 && w->path[length - 1] == '/')
		length--;
	_cleanup_(freep) char *path = strndup(w->path, length);
	const char *name;
	int parent_fd = path ? file_folder(path, true, &name) : -ENOMEM;

	if (parent_fd == -EISDIR) /* such as "." */
		return 0;
	if (parent_fd < 0)
		return file_error(err, parent_fd, "make the directory", w->path);
	w->made_directory = mkdirat(parent_fd, name, 0777) == 0;
	if (!w->made_directory && errno != EEXIST) {
		int r = -errno;

		close(parent_fd);
		return error_errno(err, r, "cannot make the directory %s", w->path);
	}
	w->parent_fd = parent_fd;
	if (w->made_directory)
		backend_open_folder(w->place, true);
	return 0;
}

static int no_directory(const struct writer *w, int r, struct error *err)
{
	if (!w->place->ops && r == -ENOTDIR)
		return error_set(
		    err, r,
		    "%s, or what is above it, is a file, but a dataset is a folder: choose another path",
		    w->path);
	if (!w->place->ops && r == -ENOENT)
		return error_set(err, r, "there is no dataset %s; make one with `dieselctl pack SOURCE %s`",
				 w->path, w->path);
	return file_error(err, r, "open", w->place->ops ? w->place->folder : w->path);
}

static int open_directory(struct writer *w, enum writer_purpose purpose, struct error *err)
{
	int r = !w->place->ops && purpose == WRITER_PACK ? make_directory(w, err) : 0;

	if (r < 0)
		return r;
	w->dir_fd = openat(w->place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->place->dir_fd < 0 || w->dir_fd < 0)
		return no_directory(w, w->place->dir_fd < 0 ? w->place->dir_fd : -errno, err);
	if (w->place->ops) /* backend_open() has checked that there is a dataset */
		return 0;
	r = inspect_directory(w->dir_fd, w->path, err);

	if (r == 0 && purpose != WRITER_PACK && purpose != WRITER_COPY)
		return error_set(err, -ENOENT, "%s is not a dataset: it is empty", w->path);
	return r < 0 ? r : writer_check_frozen(w, err);
}

/* Makes new ids greater than this one, regardless of the clock. */
static void raise_ids(struct writer *w, const struct chunk_id *id)
{
	if (chunk_id_time_us(id) >= w->ids.time_us)
		chunk_id_source_init(&w->ids, w->ids.machine, w->ids.process, id);
}

int writer_list(struct writer *w, struct error *err)
{
	free(w->found.all);
	w->found.all = NULL;
	w->found.n = 0;
	int r = store_list(w->store, NULL, &w->found.all, &w->found.n, err);

	if (r == 0 && w->found.n)
		raise_ids(w, &w->found.all[w->found.n - 1].id);
	if (r == 0 && w->info.has_newest)
		raise_ids(w, &w->info.newest);
	return r;
}

/* If the metadata is lost, the snapshot says whether the dataset had digests. */
static bool snapshot_has_digests(const struct writer *w)
{
	struct snapshot *snapshot;
	bool has = false;

	if (snapshot_open_at(w->place->dir_fd, w->place->folder, &snapshot, NULL) == 0) {
		has = snapshot_info(snapshot)->has_digests;
		snapshot_close(snapshot);
	}
	return has;
}

static int open_parts(struct writer *w, bool is_shared, struct error *err)
{
	static const enum backend_mode modes[] = {
	    [WRITER_PACK] = BACKEND_CREATE,
	    [WRITER_COPY] = BACKEND_CREATE,
	    [WRITER_CHANGE] = BACKEND_CHANGE,
	    [WRITER_REBUILD] = BACKEND_REBUILD,
	};
	int r = backend_open(w->path, modes[w->purpose], &w->place, err);

	if (r == 0 && w->meta_url && w->place->ops)
		r = error_set(err, -EINVAL, "%s: --meta applies only to datasets in a folder", w->path);
	if (r == 0)
		r = open_directory(w, w->purpose, err);
	if (r == 0 && is_shared && !w->place->ops)
		return writer_spool_new(w, err);
	if (r == 0)
		r = writer_begin(w, err);
	if (r == 0)
		r = put_queue_new(w->store, w->lock, w->chunk_bytes, &w->queue, err);
	if (r == 0 && (w->info.has_digests || (w->purpose == WRITER_REBUILD && snapshot_has_digests(w))))
		r = writer_keep_digests(w, err);
	if (r == 0)
		writer_lock_loosen(w->lock);
	return r;
}

int writer_open(const char *dataset_path, enum writer_purpose purpose, uint64_t chunk_bytes,
		struct writer **ret, struct error *err)
{
	return writer_open_on(dataset_path, purpose, chunk_bytes, NULL, ret, err);
}

int writer_open_on(const char *dataset_path, enum writer_purpose purpose, uint64_t chunk_bytes,
		   const char *meta_url, struct writer **ret, struct error *err)
{
	struct writer *w = calloc(1, sizeof(*w));

	if (!w || !(w->path = strdup(dataset_path)) || (meta_url && !(w->meta_url = strdup(meta_url)))) {
		free(w ? w->path : NULL);
		free(w);
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	w->dir_fd = w->parent_fd = -EBADF;
	w->chunk_bytes = chunk_bytes;
	w->purpose = purpose == WRITER_SHARE ? WRITER_PACK : purpose;
	w->n_kept = WRITER_KEEP_SNAPSHOTS;
	int r = open_parts(w, purpose == WRITER_SHARE, err);

	if (r < 0) {
		writer_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

/* Empties the directory if this writer made it and nothing else is in it. Returns true if the directory may
 * be removed, too. */
static bool empty_directory(const struct writer *w)
{
	if (unlinkat(w->dir_fd, "chunks", AT_REMOVEDIR) < 0 && errno != ENOENT)
		return false;
	unlinkat(w->dir_fd, META_SQLITE_FILE, 0);
	unlinkat(w->dir_fd, META_REDIS_FILE, 0);
	unlinkat(w->dir_fd, META_REDIS_TMP, 0);
	return true;
}

/* Returns true if the store has no chunk that is newer than those in the metadata. */
static bool leaves_nothing(const struct writer *w)
{
	const struct chunk_id *floor = w->info.has_pending ? &w->info.pending : &w->floor;
	struct store_object *objects;
	size_t n;

	if (w->info.has_newest && chunk_id_compare(floor, &w->info.newest) < 0)
		floor = &w->info.newest;
	if (store_list(w->store, floor, &objects, &n, NULL) < 0)
		return false;
	free(objects);
	return n == 0;
}

void writer_discard(struct writer *w)
{
	w->discards = true;
}

/* Removes the chunks that this writer wrote. A chunk that cannot be removed stays, unknown to the metadata,
 * for the next writer. Elsewhere than in a folder all of them stay: another writer may have adopted them by
 * now. */
static void remove_written(const struct writer *w)
{
	const struct chunk_id *chunks = (const struct chunk_id *)w->chunks.data;

	for (size_t i = 0; !w->place->ops && i < w->chunks.bytes / sizeof(*chunks); i++)
		store_remove(w->store, &chunks[i], NULL);
}

void writer_free(struct writer *w)
{
	if (!w)
		return;
	put_queue_free(w->queue); /* free the queue first: its threads may still be writing */
	bool is_ours = (w->discards ? writer_hold(w, NULL) : writer_lock_check(w->lock, NULL)) == 0;

	if (w->discards && w->begun && is_ours)
		remove_written(w);
	bool left_nothing = w->begun && is_ours && leaves_nothing(w);

	if (w->begun) {
		meta_rollback(w->meta, left_nothing);
		if (is_ours)
			snapshot_unstage(w->dir_fd);
	}
	writer_end_snapshot(w);
	buffer_free(&w->added.columns);
	buffer_free(&w->known.columns);
	meta_free(w->meta);
	bool removes = w->made_directory && w->dir_fd >= 0 && is_ours &&
		       (left_nothing || (!w->begun && !w->spool)) && empty_directory(w);

	writer_lock_free(w->lock);
	writer_spool_free(w);
	if (removes)
		writer_remove_directory(w);
	store_free(w->store);
	backend_close(w->place);
	closep(&w->dir_fd);
	closep(&w->parent_fd);
	buffer_free(&w->chunks);
	buffer_free(&w->drops);
	free(w->found.all);
	if (w->meta_url)
		explicit_bzero(w->meta_url, strlen(w->meta_url));
	free(w->meta_url);
	free(w->path);
	free(w->source);
	free(w);
}
