/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/columns.h"
#include "dataset/frozen.h"
#include "dataset/snapshot/snapshot_build.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/text.h"
#include "writer_private.h"

/*
 * Removes chunks in a commit: their rows within the commit, their files only after it. A dataset in a folder
 * lists them in DATASET/.purge (the version, then the ids), so that the files can be found if a writer died
 * in between. Elsewhere, each chunk that the metadata does not know and that is older than the newest one
 * belongs to no version.
 */
#define LIST_FILE  ".purge"
#define LIST_TMP   ".purge.tmp"
#define FIRST_LINE "DIESEL purge 1\n"
#define LIST_MAX   ((off_t)1 << 30)

int writer_drop_chunk(struct writer *w, const struct chunk_id *id, struct error *err)
{
	return buffer_append(&w->drops, id, sizeof(*id)) < 0 ? error_errno(err, -ENOMEM, "%s", w->path) : 0;
}

void writer_keep_from(struct writer *w, uint64_t version)
{
	w->keep_from = version;
}

static int write_list(int fd, const struct chunk_id *ids, size_t n, uint64_t version)
{
	struct buffer text = {0};
	char line[CHUNK_ID_TEXT + 32];
	int size = snprintf(line, sizeof(line), FIRST_LINE "%" PRIu64 "\n", version);
	int r = buffer_append(&text, line, (size_t)size);

	for (size_t i = 0; i < n && r == 0; i++) {
		chunk_id_format(&ids[i], line);
		line[CHUNK_ID_TEXT - 1] = '\n';
		r = buffer_append(&text, line, CHUNK_ID_TEXT);
	}
	if (r == 0)
		r = fd_write(fd, text.data, text.bytes);
	buffer_free(&text);
	return r == 0 && fsync(fd) < 0 ? -errno : r;
}

static int writer_drops_begin(struct writer *w, uint64_t version, struct error *err)
{
	if (w->place->ops || !w->drops.bytes)
		return 0;
	unlinkat(w->dir_fd, LIST_TMP, 0);
	_cleanup_(closep) int fd =
	    openat(w->dir_fd, LIST_TMP, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	int r = fd < 0 ? -errno
		       : write_list(fd, (const struct chunk_id *)w->drops.data,
				    w->drops.bytes / sizeof(struct chunk_id), version);

	if (r == 0 && (renameat(w->dir_fd, LIST_TMP, w->dir_fd, LIST_FILE) < 0 || fsync(w->dir_fd) < 0))
		r = -errno;
	return r < 0 ? error_errno(err, r, "cannot write %s/" LIST_FILE, w->path) : 0;
}

static void writer_drops_end(struct writer *w)
{
	const struct chunk_id *ids = (const struct chunk_id *)w->drops.data;
	bool all = true;

	for (size_t i = 0; i < w->drops.bytes / sizeof(*ids) && all; i++) {
		int r = store_remove(w->store, &ids[i], NULL);

		all = r == 0 || r == -ENOENT;
		if (w->progress)
			w->progress("removing", i + 1, w->drops.bytes / sizeof(*ids), 0, w->progress_context);
	}
	if (all && !w->place->ops && w->drops.bytes)
		unlinkat(w->dir_fd, LIST_FILE, 0);
	w->drops.bytes = 0;
}

static int parse_list(char *text, size_t bytes, uint64_t *version, struct buffer *ids)
{
	size_t at = strlen(FIRST_LINE);
	char *end;

	if (strncmp(text, FIRST_LINE, at) != 0)
		return -EBADMSG;
	*version = strtoull(text + at, &end, 10);
	if (end == text + at || *end != '\n')
		return -EBADMSG;
	for (at = (size_t)(end + 1 - text); at + CHUNK_ID_TEXT <= bytes; at += CHUNK_ID_TEXT) {
		struct chunk_id id;

		if (text[at + CHUNK_ID_TEXT - 1] != '\n')
			return -EBADMSG;
		text[at + CHUNK_ID_TEXT - 1] = '\0';
		if (chunk_id_parse(text + at, &id) < 0)
			return -EBADMSG;
		if (buffer_append(ids, &id, sizeof(id)) < 0)
			return -ENOMEM;
	}
	return at == bytes ? 0 : -EBADMSG;
}

/* Reads the list of chunks to remove. Without a list there is nothing to do. An unreadable list is ignored,
 * and removed with the next one. */
static int read_list(struct writer *w, struct buffer *ids)
{
	_cleanup_(closep) int fd =
	    openat(w->dir_fd, LIST_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	_cleanup_(freep) char *text = NULL;
	uint64_t version = 0;
	size_t done = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > LIST_MAX)
		return 0;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	int r = fd_read_at(fd, text, (size_t)st.st_size, 0, &done);

	text[r == 0 ? done : 0] = '\0';
	if (r == 0)
		r = parse_list(text, done, &version, ids);
	/* If the snapshot was not replaced, readers may still use the version before. */
	if (r < 0 || w->info.version < version || writer_snapshot_version(w) < version)
		ids->bytes = 0;
	return r == -ENOMEM ? r : 0;
}

static int take_id(const struct meta_chunk *chunk, void *context)
{
	return buffer_append(context, &chunk->id, sizeof(chunk->id));
}

/* Returns the ids of all chunks that the metadata knows, ascending. */
static int known_chunks(struct writer *w, struct buffer *ret_ids, struct error *err)
{
	int r = meta_each_chunk(w->meta, take_id, ret_ids, err);

	return r == -ENOMEM ? error_errno(err, r, "%s", w->path) : r;
}

static bool knows(const struct buffer *known, const struct chunk_id *id)
{
	return chunk_id_is_among((const struct chunk_id *)known->data, known->bytes / sizeof(*id), id);
}

/* Removes the candidates that the metadata does not know, data before tombstones. */
static int remove_unknown(struct writer *w, const struct chunk_id *candidates, size_t n, struct error *err)
{
	struct buffer known = {0}, tombstones = {0};
	int r = known_chunks(w, &known, err);

	for (size_t i = 0; i < n && r == 0; i++) {
		_cleanup_(freep) void *head = NULL;
		struct chunk_view view;

		if (knows(&known, &candidates[i]))
			continue;
		if (store_read_head(w->store, &candidates[i], &head, &view, NULL) < 0)
			continue;
		if (view.header->flags & CHUNK_FLAG_TOMBSTONE)
			r = buffer_append(&tombstones, &candidates[i], sizeof(candidates[i]));
		else
			r = store_remove(w->store, &candidates[i], err);
	}
	const struct chunk_id *last = (const struct chunk_id *)tombstones.data;

	for (size_t i = 0; i < tombstones.bytes / sizeof(*last) && r == 0; i++)
		r = store_remove(w->store, &last[i], err);
	buffer_free(&known);
	buffer_free(&tombstones);
	return r;
}

int writer_finish_drops(struct writer *w, struct error *err)
{
	struct backend_keep keep = {.n = UINT64_MAX};
	struct buffer ids = {0};
	int r = writer_catch_up(w, err);

	if (r == 0 && !w->place->ops)
		r = read_list(w, &ids);
	/* Remove the snapshots that need these chunks first. */
	if (r == 0 && ids.bytes)
		r = writer_find_oldest(w, w->info.version, &keep.oldest, err);
	if (r == 0 && ids.bytes)
		r = writer_trim_retained(w, w->info.version, keep, err);
	for (size_t i = 0; r == 0 && w->place->ops && i < w->found.n - w->found.n_leftovers; i++)
		r = buffer_append(&ids, &w->found.all[i].id, sizeof(w->found.all[i].id));
	if (r == 0 && ids.bytes)
		r = writer_hold(w, err);
	if (r == 0)
		r = remove_unknown(w, (const struct chunk_id *)ids.data, ids.bytes / sizeof(struct chunk_id),
				   err);
	buffer_free(&ids);
	if (r == 0)
		r = writer_list(w, err);
	if (r < 0 && err && !err->text[0])
		error_errno(err, r, "%s", w->path);
	return r;
}

/* Makes a commit's entry in the dataset's log. */

/* maximum number of counted runs of adds or deletes. Each count of paths takes time, and a caller may
 * alternate adds and deletes any number of times. */
#define MAX_RUNS 64

void writer_set_command(struct writer *w, const char *command)
{
	text_printable(w->command, sizeof(w->command), command, strlen(command));
}

/* Three functions make the commit's log entry: this one before the first chunk, writer_change_count() for
 * each chunk, and the last one after all chunks, with the state that the transaction leaves. */
static void writer_change_begin(struct writer *w)
{
	w->change = (struct change){.is_counted = !w->rebuilt};
	w->run.flags = 0;
	w->run.n = 0;
	w->run.records = 0;
	w->run.paths = w->info.n_paths;
}

/* Ends a run of chunks of one kind. The change of the number of paths shows how many paths were new, and how
 * many existed. */
static void end_run(struct writer *w, uint64_t n_paths)
{
	if (w->run.flags & CHUNK_FLAG_TOMBSTONE) {
		w->change.n_deleted += w->run.paths - n_paths;
	} else {
		w->change.n_added += n_paths - w->run.paths;
		w->change.n_replaced += w->run.records - (n_paths - w->run.paths);
	}
	w->run.paths = n_paths;
	w->run.records = 0;
}

static int writer_change_count(struct writer *w, const struct chunk_view *view, struct error *err)
{
	const struct chunk_header *h = view->header;
	uint32_t kind = h->flags & CHUNK_FLAG_TOMBSTONE; /* the chunk's other flags make no difference */
	struct meta_info now;

	if (kind != w->run.flags && ++w->run.n > MAX_RUNS)
		w->change.is_counted = false;
	if (kind != w->run.flags && w->run.records && w->change.is_counted) {
		int r = meta_info(w->meta, &now, err);

		if (r < 0)
			return r;
		end_run(w, now.n_paths);
	}
	w->run.flags = kind;
	w->run.records += h->n_records;
	w->change.n_chunks++;
	for (uint32_t i = 0; i < h->n_records; i++)
		w->change.n_bytes += view->records[i].bytes;
	return 0;
}

struct last {
	uint64_t version, oldest;
};

static int take_last(const struct change *change, void *context)
{
	*(struct last *)context = (struct last){change->version, change->oldest};
	return 0;
}

/* Versions before a rebuild, or before a version without a log entry, cannot be read: the store may have had
 * chunks that did not belong to them. */
int writer_find_oldest(struct writer *w, uint64_t version, uint64_t *ret, struct error *err)
{
	struct last last = {0};
	int r = w->rebuilt ? 0 : meta_each_change(w->meta, take_last, &last, err);

	if (r == 0)
		*ret = last.version && last.version == w->info.version ? last.oldest : version;
	return r;
}

static void name_writer(struct change *c)
{
	char host[CHANGE_NAME + 1] = "", buffer[1024];
	struct passwd entry, *found = NULL;

	gethostname(host, sizeof(host) - 1);
	text_printable(c->host, sizeof(c->host), host, strlen(host));
	if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
		text_printable(c->user, sizeof(c->user), found->pw_name, strlen(found->pw_name));
	else
		snprintf(c->user, sizeof(c->user), "%u", (unsigned)geteuid());
}

static int writer_change_end(struct writer *w, uint64_t version, const struct meta_info *now,
			     struct error *err)
{
	struct change *c = &w->change;

	end_run(w, now->n_paths);
	if (!c->is_counted || w->keep_from) /* a purge only copies existing samples */
		c->n_added = c->n_replaced = c->n_deleted = 0;
	c->version = version;
	c->time_ns = clock_realtime_ns();
	c->has_newest = now->has_newest;
	c->newest = now->newest;
	c->n_samples = now->n_paths;
	if (!w->command[0])
		writer_set_command(w, program_invocation_short_name);
	memcpy(c->command, w->command, sizeof(c->command));
	name_writer(c);
	c->oldest = w->keep_from;
	return w->keep_from ? 0 : writer_find_oldest(w, version, &c->oldest, err);
}

/* Update the snapshot only if at most 1 in this many samples changed; otherwise rebuild it, because each
 * change takes several searches. */
#define FEW_OF 256

const struct meta_info *writer_info(const struct writer *w)
{
	return &w->info;
}

struct meta *writer_meta(const struct writer *w)
{
	return w->meta;
}

struct store *writer_store(const struct writer *w)
{
	return w->store;
}

int writer_keep_digests(struct writer *w, struct error *err)
{
	if (w->info.n_chunks && !w->info.has_digests && w->purpose != WRITER_REBUILD)
		return error_set(err, -EEXIST,
				 "%s has chunks without digests: run `dieselctl rebuild --digest " DIGEST_NAME
				 " %s` first",
				 w->path, w->path);
	if (w->spool && !w->meta) { /* the commit does the rest */
		w->keeps_digests = true;
		return 0;
	}
	int r = meta_keep_digests(w->meta, err);

	if (r == 0)
		w->keeps_digests = true;
	return r;
}

void writer_compress(struct writer *w, int level)
{
	w->level = level;
}

static int keep_columns(struct buffer *to, struct columns columns)
{
	if (columns_equal(writer_columns(to), columns))
		return 0;
	to->bytes = 0;
	return buffer_append(to, columns.data, columns.bytes);
}

struct layout_search {
	struct writer *w;
	struct error *err;
};

static int take_layout(const struct meta_chunk *chunk, void *context)
{
	struct layout_search *search = context;
	struct writer *w = search->w;
	_cleanup_(freep) void *head = NULL;
	struct columns columns = {0};
	struct chunk_view view;
	int r = 0;

	if (chunk->flags & CHUNK_FLAG_TOMBSTONE)
		return 0;
	if (chunk_layout_has_columns(chunk_layout_of(chunk->flags))) { /* which only the file has */
		r = store_read_head(w->store, &chunk->id, &head, &view, search->err);
		if (r == 0)
			r = chunk_columns(view.header, &columns);
	}
	if (r == 0 && keep_columns(&w->known.columns, columns) < 0)
		r = error_errno(search->err, -ENOMEM, "%s", w->path);
	if (r < 0)
		return r;
	w->known.layout = chunk_layout_of(chunk->flags);
	w->has_known_layout = true;
	return 1;
}

int writer_known_layout(struct writer *w, enum chunk_layout *ret, struct error *err)
{
	int r = w->has_known_layout || w->rebuilt || !w->info.n_chunks
		    ? 0
		    : meta_each_chunk(w->meta, take_layout, &(struct layout_search){w, err}, err);

	if (r < 0)
		return r;
	*ret = w->known.layout;
	return w->has_known_layout;
}

/* Checks that samples of this layout may be added. The first ones decide for the dataset. */
static int check_layout(struct writer *w, enum chunk_layout layout, struct columns columns, struct error *err)
{
	enum chunk_layout known;
	int r = writer_known_layout(w, &known, err);

	if (r > 0 && layout != known)
		return error_set(err, -EEXIST,
				 "%s has samples of the layout '%s', so samples of the layout '%s' cannot be "
				 "added: choose a new directory",
				 w->path, chunk_layout_name(known), chunk_layout_name(layout));
	if (r > 0 && !columns_equal(columns, writer_columns(&w->known.columns)))
		return error_set(err, -EEXIST,
				 "%s has samples with other columns or encodings, so these cannot be added: "
				 "choose a new directory",
				 w->path);
	return r < 0 ? r : 0;
}

int writer_set_layout(struct writer *w, enum chunk_layout layout, struct columns columns, struct error *err)
{
	int r = chunk_layout_has_columns(layout) != (columns.bytes > 0)
		    ? error_set(err, -EINVAL, "samples of the layout '%s' %s columns",
				chunk_layout_name(layout), columns.bytes ? "have no" : "need")
		    : check_layout(w, layout, columns, err);

	if (r == 0 && keep_columns(&w->added.columns, columns) < 0)
		r = error_errno(err, -ENOMEM, "%s", w->path);
	if (r == 0)
		w->added.layout = layout;
	return r;
}

int writer_set_layout_of(struct writer *w, const struct chunk_header *h, struct error *err)
{
	struct columns columns = {0};

	(void)chunk_columns(h, &columns); /* its head was checked */
	return writer_set_layout(w, chunk_layout_of(h->flags), columns, err);
}

enum chunk_layout writer_layout(const struct writer *w)
{
	return w->added.layout;
}

int writer_take_layout(struct writer *w, enum chunk_layout layout, struct columns columns, struct error *err)
{
	int r = check_layout(w, layout, columns, err);

	if (r == 0 && keep_columns(&w->known.columns, columns) < 0)
		r = error_errno(err, -ENOMEM, "%s", w->path);
	if (r == 0) {
		w->has_known_layout = true;
		w->known.layout = layout;
	}
	return r;
}

static int take_chunk_layout(struct writer *w, const struct chunk_header *h, struct error *err)
{
	enum chunk_layout layout = chunk_layout_of(h->flags);
	struct columns columns = {0};
	char name[STORE_NAME_MAX];

	if (h->flags & CHUNK_FLAG_TOMBSTONE)
		return 0;
	(void)chunk_columns(h, &columns); /* its head was checked */
	if (w->rebuilt && w->has_known_layout &&
	    (layout != w->known.layout || !columns_equal(columns, writer_columns(&w->known.columns))))
		return error_set(
		    err, -EEXIST,
		    "%s has samples of the layout '%s', but earlier chunks have %s'%s': move it to "
		    "another dataset, and run the command again",
		    store_describe(w->store, &h->id, name), chunk_layout_name(layout),
		    layout == w->known.layout ? "other columns of " : "", chunk_layout_name(w->known.layout));
	return writer_take_layout(w, layout, columns, err);
}

static size_t n_chunks_of(const struct writer *w)
{
	return w->chunks.bytes / sizeof(struct chunk_id);
}

const struct store_object *writer_leftovers(const struct writer *w, size_t *ret_n)
{
	*ret_n = w->found.n_leftovers;
	return w->found.n_leftovers ? w->found.all + (w->found.n - w->found.n_leftovers) : NULL;
}

const struct chunk_id *writer_chunks(const struct writer *w, size_t *ret_n)
{
	*ret_n = n_chunks_of(w);
	return (const struct chunk_id *)w->chunks.data;
}

int writer_adopt(struct writer *w, size_t i, struct error *err)
{
	size_t n;
	const struct store_object *leftovers = writer_leftovers(w, &n);

	assert(i < n && i >= w->found.n_taken && !w->current);
	if (buffer_append(&w->chunks, &leftovers[i].id, sizeof(leftovers[i].id)) < 0)
		return error_errno(err, -ENOMEM, "%s", w->path);
	w->found.n_taken = i + 1;
	return 0;
}

/* Adds a chunk's digest: of the written bytes, or, for an existing chunk, of its file. */
static int add_digest(struct writer *w, const struct chunk_id *id, struct digest *sha256, struct error *err)
{
	int r = put_queue_digest(w->queue, id, sha256) ? 0 : store_digest(w->store, id, sha256, err);

	return r < 0 ? r : meta_put_digest(w->meta, id, sha256, err);
}

/* Begins a snapshot. A writer that replayed all chunks needs no paths from the metadata. */
static int begin_snapshot(struct writer *w, struct error *err)
{
	int r;

	writer_end_snapshot(w); /* from an earlier commit that failed */
	if (w->rebuilt || w->info.version == 0)
		r = snapshot_builder_new(w->dir_fd, SNAPSHOT_BUILD_BYTES, &w->builder);
	else
		r = snapshot_changes_new(w->info.n_paths / FEW_OF, &w->changes);
	return r < 0 ? error_errno(err, r, "%s", w->path) : 0;
}

void writer_end_snapshot(struct writer *w)
{
	snapshot_builder_free(steal_pointer(w->builder));
	snapshot_changes_free(steal_pointer(w->changes));
}

static int add_to_snapshot(struct writer *w, const struct chunk_view *view, const struct digest *sha256,
			   struct error *err)
{
	int r = 0;

	if (w->builder)
		r = snapshot_builder_replay(w->builder, view, sha256);
	else if (w->changes)
		r = snapshot_changes_add(w->changes, view, sha256);
	return r < 0 ? error_errno(err, r, "cannot sort the paths of %s", w->path) : 0;
}

static int add_chunk(struct writer *w, const struct chunk_view *view, struct error *err)
{
	struct digest sha256 = {0};
	int r = take_chunk_layout(w, view->header, err);

	if (r == 0)
		r = writer_change_count(w, view, err);
	if (r == 0)
		r = meta_add_chunk(w->meta, view, err);
	if (r == 0 && w->keeps_digests)
		r = add_digest(w, &view->header->id, &sha256, err);
	if (r == 0)
		r = add_to_snapshot(w, view, w->keeps_digests ? &sha256 : NULL, err);
	return r;
}

static int replay(struct writer *w, const struct chunk_id *id, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;
	int r = store_read_head(w->store, id, &head, &view, err);

	return r < 0 ? r : add_chunk(w, &view, err);
}

uint64_t writer_snapshot_version(const struct writer *w)
{
	struct snapshot *snapshot;
	uint64_t version = 0;

	if (snapshot_open_at(w->place->dir_fd, w->place->folder, &snapshot, NULL) == 0) {
		version = snapshot_info(snapshot)->version;
		snapshot_close(snapshot);
	}
	return version;
}

/* 0: none is kept */
static uint64_t writer_newest_kept(const struct writer *w)
{
	_cleanup_(freep) uint64_t *versions = NULL;
	size_t n = 0;

	if (w->place->ops || snapshot_retained_list(w->dir_fd, &versions, &n) < 0 || n == 0)
		return 0;
	return versions[n - 1];
}

/* Returns a version above all that any reader may have seen, even if the metadata was lost. */
static uint64_t next_version(const struct writer *w)
{
	uint64_t seen = w->rebuilt ? writer_snapshot_version(w) : 0,
		 kept = w->rebuilt ? writer_newest_kept(w) : 0;

	if (kept > seen)
		seen = kept;
	if (w->place->version > seen)
		seen = w->place->version;
	return (seen > w->info.version ? seen : w->info.version) + 1;
}

/* Writes the snapshot of the state that this transaction leaves. */
static int stage_snapshot(struct writer *w, uint64_t version, struct error *err)
{
	const struct snapshot_progress progress = {w->progress, w->progress_context};
	struct snapshot_source from = {.meta = w->meta, .before = &w->info};
	enum chunk_layout layout;
	int r = writer_known_layout(w, &layout, err);

	if (r < 0)
		return r;
	from.columns = writer_columns(&w->known.columns);

	if (!w->drops.bytes) {
		from.builder = w->builder;
		from.changes = w->changes;
	}
	r = snapshot_stage(&from, version, clock_realtime_ns(), w->dir_fd, w->path, &progress, err);
	writer_end_snapshot(w);
	return r;
}

/* Publishes the version. Elsewhere than in a folder, the published state is the folder as the commit leaves
 * it. Publishes the newest snapshot even if an earlier one cannot be kept. */
static int publish(struct writer *w, uint64_t version, struct backend_keep keep, struct error *err)
{
	writer_keep_published(w);
	int kept = writer_keep_staged(w, version, err);
	int r = snapshot_publish(w->dir_fd, w->path, kept < 0 ? NULL : err);

	if (r == 0 && kept == 0)
		r = backend_publish(w->place, version, &keep, err);
	if (r == 0 && kept == 0)
		r = writer_trim_retained(w, version, keep, err);
	return kept < 0 ? kept : r;
}

static int commit_version(struct writer *w, uint64_t version, const struct meta_info *now, struct error *err)
{
	int r = writer_change_end(w, version, now, err);

	if (r == 0)
		r = meta_commit(w->meta, version, &w->change, err);
	if (r < 0)
		return r;
	w->begun = false;
	r = publish(w, version, (struct backend_keep){w->n_kept, w->change.oldest}, err);
	if (r < 0 && !w->place->ops) {
		error_prefix(err, "committed, but");
		return -ESTALE;
	}
	return r;
}

/* Before the commit, after which they would be older than a chunk of the metadata: a kill between the two
 * would leave them to no writer, and to the next rebuild. Elsewhere another writer may still need its chunks
 * to continue from this version. There, a purge removes them. */
int writer_drop_leftovers(struct writer *w, struct error *err)
{
	size_t n, adopted = 0, removed = 0;
	int r = 0;
	const struct store_object *leftovers = writer_leftovers(w, &n);
	const struct chunk_id *chunks = (const struct chunk_id *)w->chunks.data;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (adopted < n_chunks_of(w) && chunk_id_compare(&chunks[adopted], &leftovers[i].id) == 0) {
			adopted++;
		} else {
			r = store_remove(w->store, &leftovers[i].id, err);
			r = r == -ENOENT ? 0 : r;
			removed++;
		}
	}
	w->found.n_leftovers = 0;
	return r == 0 && removed ? store_sync(w->store, err) : r;
}

/* Removes the rows of the dropped chunks, within the transaction. */
static int writer_drop_rows(struct writer *w, struct error *err)
{
	const struct chunk_id *ids = (const struct chunk_id *)w->drops.data;
	int r = 0;

	for (size_t i = 0; i < w->drops.bytes / sizeof(*ids) && r == 0; i++)
		r = meta_remove_chunk(w->meta, &ids[i], err);
	return r;
}

int writer_commit(struct writer *w, struct writer_result *ret, struct error *err)
{
	const struct chunk_id *chunks;
	int r = writer_settle(w, err);

	if (r == 0)
		r = writer_spool_join(w, err);
	if (r == 0)
		r = writer_hold(w, err);
	if (r == 0 && !w->rebuilt && !w->place->ops)
		r = writer_drop_leftovers(w, err);
	if (r < 0)
		return r;
	chunks = (const struct chunk_id *)w->chunks.data;
	if (!w->rebuilt) {
		writer_change_begin(w);
		r = begin_snapshot(w, err);
	}
	for (size_t i = 0; i < n_chunks_of(w) && r == 0; i++) {
		r = replay(w, &chunks[i], err);
		if (w->progress)
			w->progress("committing", i + 1, n_chunks_of(w), 0, w->progress_context);
	}
	if (r == 0)
		r = writer_drop_rows(w, err);
	struct writer_result result = {.version = w->info.version};
	bool has_changed = n_chunks_of(w) || w->rebuilt || w->drops.bytes;
	struct meta_info now = {0};

	if (r == 0 && has_changed) {
		result.version = next_version(w);
		r = writer_drops_begin(w, result.version, err);
	}
	/* Write the snapshot while the metadata still stores rows of chunks. */
	if (r == 0 && has_changed)
		r = stage_snapshot(w, result.version, err);
	if (r == 0)
		r = meta_info(w->meta, &now, err);
	if (r == 0 && has_changed) {
		r = commit_version(w, result.version, &now, err);
	} else if (r == 0) {
		r = writer_catch_up(w, err);
		writer_keep_published(w);
	}
	if (r == 0 && w->rebuilt && frozen_is(w->dir_fd, "."))
		r = frozen_unmark(w->dir_fd, w->path, err);
	if (r < 0)
		return r;
	if (!w->rebuilt && !w->place->ops)
		writer_sweep_spools(w->dir_fd, w->path);
	writer_drops_end(w);
	result.n_chunks = w->rebuilt ? now.n_chunks : n_chunks_of(w);
	result.n_paths = now.n_paths;
	result.n_foreign = w->n_foreign;
	w->found.n_leftovers = 0;
	w->made_directory = w->made_directory && w->spool && !has_changed;
	*ret = result;
	return 0;
}

int writer_snapshot(struct writer *w, struct error *err)
{
	if (w->info.version == 0)
		return error_set(err, -ENODATA, "%s is empty: no sample was ever packed into it", w->path);
	if (w->place->ops)
		return error_set(err, -EOPNOTSUPP,
				 "%s is in a bucket, where metadata and snapshot are published together. To "
				 "rebuild both, run `dieselctl rebuild`",
				 w->path);
	/* Keep all: only a writer that changes the dataset decides how many versions stay. */
	struct backend_keep keep = {.n = UINT64_MAX};
	int r = writer_hold(w, err);

	if (r == 0)
		r = writer_find_oldest(w, w->info.version, &keep.oldest, err);
	if (r == 0)
		r = stage_snapshot(w, w->info.version, err);
	return r < 0 ? r : publish(w, w->info.version, keep, err);
}

int writer_catch_up(struct writer *w, struct error *err)
{
	if (w->place->ops || w->info.version == 0 || writer_snapshot_version(w) == w->info.version)
		return 0;
	return writer_snapshot(w, err);
}

void writer_show(struct writer *w, progress_callback *progress, void *context)
{
	w->progress = progress;
	w->progress_context = context;
}

void writer_take_all(struct writer *w)
{
	w->takes_all = true;
}

/* Chooses the chunks that a rebuild takes. Elsewhere, readable metadata is the published state. A chunk
 * unknown to it is then not part of the dataset: another writer is about to publish or remove it. */
static int choose_known(struct writer *w, struct buffer *known, struct error *err)
{
	return w->place->ops && w->info.version && !w->takes_all ? known_chunks(w, known, err) : 0;
}

static int replay_head(struct writer *w, const struct store_object *object, size_t *likely,
		       writer_lost_callback *lost, void *context, uint64_t *n_lost, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct error head_err = ERROR_INIT;
	struct chunk_view view;
	int r = store_read_head_of(w->store, object, likely, &head, &view, &head_err);

	if (r == -EBADMSG) {
		lost(&object->id, head_err.text, context);
		++*n_lost;
		return 0;
	}
	if (r == -ENOENT && w->place->ops) /* the chunk was removed after the listing */
		return error_set(err, -EBUSY,
				 "%s was changed by another dieselctl meanwhile; run the same command again",
				 w->path);
	if (r < 0 && err)
		*err = head_err;
	return r < 0 ? r : add_chunk(w, &view, err);
}

int writer_rebuild(struct writer *w, writer_lost_callback *lost, void *context, uint64_t *ret_n_lost,
		   struct error *err)
{
	struct buffer known = {0};
	uint64_t n_lost = 0, bytes = 0;
	size_t likely = 0;
	int r = writer_hold(w, err);

	if (r == 0)
		r = choose_known(w, &known, err);
	if (r == 0)
		r = meta_clear(w->meta, err);
	w->rebuilt = true;
	w->has_known_layout = false;
	writer_change_begin(w);
	if (r == 0)
		r = begin_snapshot(w, err);
	for (size_t i = 0; i < w->found.n && r == 0; i++) {
		bytes += w->found.all[i].bytes;
		if (w->progress)
			w->progress("rebuilding", i + 1, w->found.n, bytes, w->progress_context);
		if (known.bytes && !knows(&known, &w->found.all[i].id))
			w->n_foreign++;
		else
			r = replay_head(w, &w->found.all[i], &likely, lost, context, &n_lost, err);
	}
	buffer_free(&known);
	if (r == 0)
		*ret_n_lost = n_lost;
	return r;
}
