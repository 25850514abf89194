/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several writers of one folder. Each writes its chunks to a folder of its own, which it has locked:
 *
 *   DATASET/.shared/<32 hexadecimal digits>/.writer    the lock (writer_lock.h), which ends with its process
 *   DATASET/.shared/<32 hexadecimal digits>/chunks/    the chunks
 *
 * So whoever gets the lock of such a folder knows that its writer is dead, and removes it. The folder's
 * writer makes it again if it is removed between mkdir() and the lock.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
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

int writer_spool_new(struct writer *w, struct error *err)
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

void writer_spool_free(struct writer *w)
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
