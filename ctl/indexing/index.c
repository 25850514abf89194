/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/chunk_id.h"
#include "dataset/external.h"
#include "dataset/pack.h"
#include "dataset/path_set.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "lib/sorted.h"
#include "lib/thread.h"
#include "rows.h"
#include "shards.h"

#define MODE (S_IFREG | 0644)

/* A shard's scan, made by a thread ahead of its turn. */
struct turn {
	struct scanned scanned;
	struct error error;
	int result;
	bool is_ready;
};

struct indexing {
	const struct index_options *options;
	struct writer *writer;
	struct row_reader *rows; /* NULL: the samples are in tar shards */
	struct shards shards;
	struct path_set paths;
	struct index_result result;
	char path[CHUNK_NAME_MAX + 1];
	/* scans ahead */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct turn *turns; /* ring of n_turns: that of shard i at i % n_turns */
	size_t n_turns;
	size_t n_begun, n_add; /* shards whose scan was begun, and that are added */
	bool stop;
};

/* The chunks of one source that follow one another, as an interrupted run leaves them. */
struct source_run {
	struct shard *shard;
	size_t first;
	uint32_t n_parts;
};

static bool is_unchanged(const struct external *e)
{
	return external_check(e, NULL) == 0;
}

/* A chunk of external samples. */
struct chunk_part {
	struct external source;
	enum chunk_layout layout;
	char first[CHUNK_NAME_MAX + 1]; /* path of its first sample */
	bool is_live;                   /* the dataset has a sample of it */
};

static bool is_live(struct indexing *x, const struct chunk_view *view)
{
	for (uint32_t i = 0; i < view->header->n_records; i++) {
		const struct chunk_record *record = &view->records[i];
		struct meta_path now;

		if (meta_find(writer_meta(x->writer), view->names + record->name_offset, record->name_length,
			      &now, NULL) == 0 &&
		    chunk_id_compare(&now.chunk, &view->header->id) == 0)
			return true;
	}
	return false;
}

/* Returns false if the chunk is not external, or cannot be read. */
static bool part_of(struct indexing *x, const struct chunk_id *id, struct chunk_part *ret)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;

	if (store_read_head(writer_store(x->writer), id, &head, &view, NULL) < 0 ||
	    !(view.header->flags & CHUNK_FLAG_EXTERNAL) || external_in_head(view.header, &ret->source) < 0)
		return false;
	external_trust(&ret->source);
	ret->layout = chunk_layout_of(view.header->flags);
	memcpy(ret->first, view.names + view.records->name_offset, view.records->name_length);
	ret->first[view.records->name_length] = '\0';
	ret->is_live = is_live(x, &view);
	return true;
}

static int adopt(struct indexing *x, const struct source_run *run, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < run->n_parts && r == 0; i++)
		r = writer_adopt(x->writer, run->first + i, err);
	if (r == 0) {
		run->shard->is_done = true;
		x->result.n_resumed++;
	}
	return r;
}

/* Returns true if this run would make such a chunk of the shard. */
static bool is_made_alike(const struct indexing *x, const struct shard *shard, const struct chunk_part *p)
{
	size_t n = strlen(shard->prefix);

	return p->source.range.chunk_bytes == x->options->chunk_bytes &&
	       p->layout == writer_layout(x->writer) && strncmp(p->first, shard->prefix, n) == 0 &&
	       p->first[n] == '/' && is_unchanged(&p->source);
}

/* Takes the shards whose chunks an interrupted run has all written. */
static int resume(struct indexing *x, struct error *err)
{
	_cleanup_(freep) struct chunk_part *p = malloc(sizeof(*p));
	struct source_run run = {0};
	size_t n;
	const struct store_object *leftovers = writer_leftovers(x->writer, &n);
	int r = p ? 0 : error_errno(err, -ENOMEM, "cannot continue where the last run stopped");

	for (size_t i = 0; i < n && r == 0; i++) {
		struct shard *shard =
		    part_of(x, &leftovers[i].id, p) ? shards_get(&x->shards, p->source.name) : NULL;
		uint32_t part = p->source.range.part;

		/* The tombstones of a changed shard's samples would hide these. */
		if (!shard || shard->is_done || shard->is_changed || !is_made_alike(x, shard, p) ||
		    (part > 0 && (shard != run.shard || part != run.n_parts))) {
			run.shard = NULL;
			continue;
		}
		if (part == 0)
			run = (struct source_run){.shard = shard, .first = i};
		run.n_parts++;
		if (!p->source.range.is_last)
			continue;
		r = adopt(x, &run, err);
		run.shard = NULL;
	}
	return r;
}

/* A chunk of the dataset that has samples of a source. */
struct known_chunk {
	struct chunk_id id;
	char *source;
	struct shard *shard; /* of this source; NULL: it is not to be indexed now */
	bool is_last;
	bool is_dropped; /* its samples are deleted: again, that would delete what replaced them */
};

struct known_chunks {
	struct known_chunk *chunks;
	size_t n, capacity;
};

static void known_free(struct known_chunks *k)
{
	for (size_t i = 0; i < k->n; i++)
		free(k->chunks[i].source);
	free(k->chunks);
}

static int take_chunk(const struct meta_chunk *chunk, void *context)
{
	struct known_chunks *k = context;

	if (!(chunk->flags & CHUNK_FLAG_EXTERNAL))
		return 0;
	if (array_reserve(k->chunks, k->n, k->capacity) < 0)
		return -ENOMEM;
	k->chunks[k->n++] = (struct known_chunk){.id = chunk->id};
	return 0;
}

/* Learns which chunks have samples of which source, and which shards have changed since. */
static int learn(struct indexing *x, struct known_chunks *k, struct error *err)
{
	_cleanup_(freep) struct chunk_part *p = malloc(sizeof(*p));
	int r = p ? meta_each_chunk(writer_meta(x->writer), take_chunk, k, err) : -ENOMEM;
	size_t kept = 0;

	for (size_t i = 0; i < k->n && r == 0; i++) {
		struct known_chunk c = {.id = k->chunks[i].id};

		if (!part_of(x, &c.id, p) || !p->is_live)
			continue;
		c.source = strdup(p->source.name);
		c.shard = shards_get(&x->shards, p->source.name);
		c.is_last = p->source.range.is_last;
		if (c.shard && !is_unchanged(&p->source))
			c.shard->is_changed = true;
		r = c.source ? 0 : -ENOMEM;
		k->chunks[kept++] = c;
	}
	k->n = kept;
	return r == -ENOMEM ? error_errno(err, r, "%s", x->options->dataset) : r;
}

/* Deletes the samples of a chunk whose source has changed. */
static int drop_samples(struct indexing *x, const struct chunk_id *id, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;
	int r = store_read_head(writer_store(x->writer), id, &head, &view, err);

	for (uint32_t i = 0; r == 0 && i < view.header->n_records; i++) {
		const struct chunk_record *record = &view.records[i];
		struct meta_path now;
		const char *name = view.names + record->name_offset;

		if (meta_find(writer_meta(x->writer), name, record->name_length, &now, NULL) == 0 &&
		    chunk_id_compare(&now.chunk, id) == 0)
			r = writer_delete(x->writer, name, record->name_length, err);
	}
	return r;
}

/* Leaves out shards that the dataset has already, unchanged, and drops the samples of changed ones. */
static int compare(struct indexing *x, const struct known_chunks *known, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < known->n && r == 0; i++) {
		const struct known_chunk *c = &known->chunks[i];

		if (c->shard && c->shard->is_changed) {
			r = drop_samples(x, &c->id, err);
		} else if (c->shard && c->is_last && !c->shard->is_done) {
			c->shard->is_done = true;
			x->result.n_unchanged++;
		}
	}
	return r;
}

/* Scans shards, each in its turn, at most a few ahead of those that are added. */
static void *scan_ahead(void *context)
{
	struct indexing *x = context;

	pthread_mutex_lock(&x->lock);
	for (;;) {
		while (x->n_begun < x->shards.n && x->shards.all[x->n_begun].is_done)
			x->n_begun++;
		if (x->stop || x->n_begun == x->shards.n)
			break;
		if (x->n_begun >= x->n_add + x->n_turns) {
			pthread_cond_wait(&x->changed, &x->lock);
			continue;
		}
		size_t i = x->n_begun++;
		struct turn *t = &x->turns[i % x->n_turns];

		pthread_mutex_unlock(&x->lock);
		t->result = scan_tar(x->shards.all[i].path, &t->scanned, &t->error);
		pthread_mutex_lock(&x->lock);
		t->is_ready = true;
		pthread_cond_broadcast(&x->changed);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

static struct turn *wait_for(struct indexing *x, size_t i)
{
	pthread_mutex_lock(&x->lock);
	x->n_add = i;
	pthread_cond_broadcast(&x->changed);
	while (!x->turns[i % x->n_turns].is_ready)
		pthread_cond_wait(&x->changed, &x->lock);
	pthread_mutex_unlock(&x->lock);
	return &x->turns[i % x->n_turns];
}

static int add_sample(struct indexing *x, const struct shard *shard, const struct scanned *s,
		      const struct scanned_sample *sample, struct error *err)
{
	bool is_shard = shard->prefix[0];
	const char *key = s->keys + sample->key_offset;
	char text[200];
	int n = snprintf(x->path, sizeof(x->path), "%s%s%.*s", shard->prefix, is_shard ? "/" : "",
			 (int)sample->key_length, key);
	int r;

	text_printable(text, sizeof(text), key, sample->key_length);
	if (n < 0 || (size_t)n >= sizeof(x->path) || !chunk_name_is_valid(x->path, (size_t)n))
		return error_set(err, -EINVAL, "%s: the key '%s' is no valid path of a sample", shard->path,
				 text);
	if (sample->bytes > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(err, -EFBIG, "%s: the sample '%s' has more than 1 GiB: split it",
				 shard->path, text);
	r = path_set_add(&x->paths, x->path, (size_t)n);
	if (r == 0)
		return error_set(err, -EEXIST,
				 is_shard
				     ? "%s: members of the sample '%s' are not next to one another: sort the "
				       "shard (tar --sort=name)"
				     : "%s: the sample '%s' occurs twice",
				 shard->path, text);
	if (r < 0)
		return error_errno(err, r, "%s", shard->path);
	const struct chunk_sample range = {
	    .path = x->path,
	    .path_length = (size_t)n,
	    .bytes = sample->bytes,
	    .mode = MODE,
	    .mtime_ns = sample->mtime_ns,
	    .offset = sample->offset,
	};

	return writer_add_range(x->writer, &range, err);
}

static int add_shard(struct indexing *x, const struct shard *shard, const struct scanned *s,
		     struct error *err)
{
	_cleanup_(freep) struct external *source = calloc(1, sizeof(*source));
	int r;

	if (!source || strlen(shard->path) > EXTERNAL_NAME_MAX)
		return error_errno(err, source ? -ENAMETOOLONG : -ENOMEM, "%s", shard->path);
	strcpy(source->name, shard->path);
	source->range.source_bytes = s->source_bytes;
	source->range.stamp = s->stamp;
	r = s->n ? writer_begin_source(x->writer, source, err) : 0;
	for (size_t i = 0; i < s->n && r == 0; i++) {
		r = add_sample(x, shard, s, &s->samples[i], err);
		x->result.bytes += s->samples[i].bytes;
	}
	if (r == 0 && s->n)
		r = writer_end_source(x->writer, err);
	x->result.n_shards++;
	x->result.n_samples += s->n;
	scanned_add_fields(&x->result.fields, s);
	return r;
}

static int add_all(struct indexing *x, struct error *err)
{
	const struct index_options *o = x->options;
	int r = 0;

	for (size_t i = 0; i < x->shards.n && r == 0; i++) {
		struct turn *t;

		if (x->shards.all[i].is_done)
			continue;
		t = wait_for(x, i);
		r = t->result;
		if (r < 0)
			*err = t->error;
		else
			r = add_shard(x, &x->shards.all[i], &t->scanned, err);
		scanned_free(&t->scanned);
		*t = (struct turn){0};
		if (o->progress)
			o->progress("indexing", i + 1, x->shards.n, x->result.bytes, o->context);
		if (r == 0 && o->cancelled && o->cancelled(o->context))
			r = error_set(err, -ECANCELED, "interrupted");
	}
	return r;
}

static int compare_known(const void *a, const void *b)
{
	const struct known_chunk *x = a, *y = b;
	int order = strcmp(x->source, y->source);

	return order ? order : chunk_id_compare(&x->id, &y->id);
}

/* Deletes all samples of a source, whose rows replace them. known: in order of sources. */
static int drop_source(struct indexing *x, struct known_chunks *known, const char *source, struct error *err)
{
	size_t first = sorted_count(known->n, i, strcmp(known->chunks[i].source, source) < 0);
	int r = 0;

	for (size_t i = first; i < known->n && strcmp(known->chunks[i].source, source) == 0 && r == 0; i++) {
		struct known_chunk *c = &known->chunks[i];

		if (c->is_dropped)
			continue;
		r = drop_samples(x, &c->id, err);
		c->is_dropped = true;
	}
	return r;
}

static int add_rows(struct indexing *x, struct known_chunks *known, struct error *err)
{
	const char *source;
	struct scanned s;
	int r;

	if (known->n)
		qsort(known->chunks, known->n, sizeof(*known->chunks), compare_known);
	while ((r = rows_next(x->rows, &s, &source, err)) > 0) {
		const struct shard shard = {.path = (char *)source, .prefix = (char *)""};

		r = drop_source(x, known, source, err);
		if (r == 0)
			r = add_shard(x, &shard, &s, err);
		scanned_free(&s);
		if (x->options->progress)
			x->options->progress("indexing", x->result.n_shards, 0, x->result.bytes,
					     x->options->context);
		if (r == 0 && x->options->cancelled && x->options->cancelled(x->options->context))
			r = error_set(err, -ECANCELED, "interrupted");
		if (r < 0)
			break;
	}
	return r;
}

static int scan_and_add(struct indexing *x, struct error *err)
{
	unsigned n_threads = x->options->n_threads, n = 0;
	_cleanup_(freep) pthread_t *threads = calloc(n_threads, sizeof(*threads));
	int r = 0;

	x->n_turns = 2 * (size_t)n_threads;
	x->turns = calloc(x->n_turns, sizeof(*x->turns));
	if (!threads || !x->turns)
		return error_errno(err, -ENOMEM, "%s", x->options->dataset);
	while (n < n_threads && r == 0) {
		r = thread_start(&threads[n], scan_ahead, x);
		n += r == 0;
	}
	r = r < 0 ? error_errno(err, r, "cannot start a thread") : add_all(x, err);
	pthread_mutex_lock(&x->lock);
	x->stop = true;
	pthread_cond_broadcast(&x->changed);
	pthread_mutex_unlock(&x->lock);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < x->n_turns; i++)
		scanned_free(&x->turns[i].scanned);
	return r;
}

static int index_all(struct indexing *x, struct error *err)
{
	_cleanup_(known_free) struct known_chunks known = {0};
	struct writer_result committed = {0};
	int r = learn(x, &known, err);

	if (r == 0)
		r = resume(x, err);
	if (r == 0)
		r = compare(x, &known, err);
	if (r == 0)
		r = x->options->rows ? add_rows(x, &known, err) : scan_and_add(x, err);
	if (r == 0 && x->options->rows && x->result.n_samples == 0)
		return error_set(err, -ENODATA, "%s has no rows", x->options->rows);
	if (r == 0 && x->result.n_samples + x->result.n_resumed + x->result.n_unchanged == 0)
		return error_set(err, -ENODATA,
				 "%s has no members whose names have an extension, so no samples",
				 x->options->arguments[0]);
	if (r == 0)
		r = writer_commit(x->writer, &committed, err);
	x->result.n_chunks = committed.n_chunks;
	x->result.version = committed.version;
	return r;
}

int index_run(const struct index_options *o, struct index_result *ret, struct error *err)
{
	struct pack_options options = {.dataset = o->dataset,
				       .chunk_bytes = o->chunk_bytes,
				       .command = o->command,
				       .append = true,
				       .layout = CHUNK_LAYOUT_TAR};
	struct indexing x = {.options = o};
	int r = o->rows ? rows_open(o->rows, &x.rows, err)
			: shards_find(o->arguments, o->n_arguments, &x.shards, err);

	if (r == 0 && x.rows)
		options.layout = rows_layout(x.rows, &options.columns);
	pthread_mutex_init(&x.lock, NULL);
	pthread_cond_init(&x.changed, NULL);
	if (r == 0)
		r = pack_open(&options, &x.writer, err);
	if (r == 0)
		r = index_all(&x, err);
	writer_free(x.writer);
	rows_free(x.rows);
	shards_free(&x.shards);
	path_set_free(&x.paths);
	free(x.turns);
	pthread_cond_destroy(&x.changed);
	pthread_mutex_destroy(&x.lock);
	if (r == 0)
		*ret = x.result;
	return r;
}
