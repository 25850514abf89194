/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes chunks in a commit: their rows within the commit, their files only after it. A dataset in a folder
 * lists them in DATASET/.purge (the version, then the ids), so that the files can be found if a writer died
 * in between. Elsewhere, each chunk that the metadata does not know and that is older than the newest one
 * belongs to no version.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "writer_private.h"

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

int writer_drops_begin(struct writer *w, uint64_t version, struct error *err)
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

void writer_drops_end(struct writer *w)
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

int writer_known(struct writer *w, struct buffer *ret_ids, struct error *err)
{
	int r = meta_each_chunk(w->meta, take_id, ret_ids, err);

	return r == -ENOMEM ? error_errno(err, r, "%s", w->path) : r;
}

bool writer_knows(const struct buffer *known, const struct chunk_id *id)
{
	return chunk_id_is_among((const struct chunk_id *)known->data, known->bytes / sizeof(*id), id);
}

/* Removes the candidates that the metadata does not know, data before tombstones. */
static int remove_unknown(struct writer *w, const struct chunk_id *candidates, size_t n, struct error *err)
{
	struct buffer known = {0}, tombstones = {0};
	int r = writer_known(w, &known, err);

	for (size_t i = 0; i < n && r == 0; i++) {
		_cleanup_(freep) void *head = NULL;
		struct chunk_view view;

		if (writer_knows(&known, &candidates[i]))
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
