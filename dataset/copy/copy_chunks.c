/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/blocks.h"
#include "dataset/checksum.h"
#include "dataset/chunk_id.h"
#include "dataset/external.h"
#include "lib/cleanup.h"
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

static int compare_ids(const void *a, const void *b)
{
	return chunk_id_compare(a, b);
}

static bool is_outside(const struct copy_run *c, const struct meta_chunk *chunk)
{
	const struct buffer *outside = &c->source->outside;

	return outside->bytes && bsearch(&chunk->id, outside->data, outside->bytes / sizeof(chunk->id),
					 sizeof(chunk->id), compare_ids);
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

int copy_chunks(const struct copy_options *o, const struct copy_source *s, struct writer *w,
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
