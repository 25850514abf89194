/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/purge.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/chunk/buffer.h"
#include "dataset/checksum/checksum.h"
#include "dataset/chunk_id.h"
#include "dataset/meta.h"
#include "dataset/version.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/sorted.h"
#include "lib/text.h"

/* A chunk, and how many of its samples are still needed. */
struct purge_chunk {
	struct meta_chunk known;
	uint32_t n_live; /* records that the newest version has */
	uint32_t n_kept; /* records that the oldest version to be kept has */
	bool goes;
};

/* A sample that has to be copied. */
struct purge_sample {
	uint32_t chunk, record; /* chunk: its place in the plan */
	bool is_copied;
};

struct purge_plan {
	struct buffer chunks;  /* struct purge_chunk, by id */
	struct buffer samples; /* struct purge_sample, by chunk and record */
	struct buffer log;     /* struct change */
	struct meta_info info;
	uint64_t readable; /* the oldest version that can be read now */
	uint64_t oldest;   /* oldest version to keep; info.version + 1: the version that the purge makes */
};

static inline struct purge_chunk *purge_chunks(const struct purge_plan *p, size_t *ret_n)
{
	*ret_n = p->chunks.bytes / sizeof(struct purge_chunk);
	return (struct purge_chunk *)p->chunks.data;
}

static inline bool purge_is_tombstone(const struct purge_chunk *c)
{
	return c->known.flags & CHUNK_FLAG_TOMBSTONE;
}

static inline bool purge_is_holed(const struct purge_chunk *c)
{
	/* The payload of external chunks takes no space here. */
	return c->n_live && c->n_live < c->known.n_records && !(c->known.flags & CHUNK_FLAG_EXTERNAL);
}

struct purge_collect {
	struct purge_plan *plan;
	bool kept; /* counts the oldest version's samples, not the newest version's */
	struct error *err;
};

static void purge_plan_free(struct purge_plan *p)
{
	buffer_free(&p->chunks);
	buffer_free(&p->samples);
	buffer_free(&p->log);
}

/* Returns the place of the chunk, or SIZE_MAX. */
static size_t purge_find_chunk(const struct purge_plan *p, const struct chunk_id *id)
{
	size_t n;
	const struct purge_chunk *chunks = purge_chunks(p, &n);
	size_t at = sorted_count(n, i, chunk_id_compare(&chunks[i].known.id, id) < 0);

	return at < n && chunk_id_compare(&chunks[at].known.id, id) == 0 ? at : SIZE_MAX;
}

static int compare_samples(const void *a, const void *b)
{
	const struct purge_sample *x = a, *y = b;

	if (x->chunk != y->chunk)
		return x->chunk < y->chunk ? -1 : 1;
	return (x->record > y->record) - (x->record < y->record);
}

/* Finds a sample that has to be copied. NULL: this one need not be copied. */
static struct purge_sample *purge_find_sample(const struct purge_plan *p, uint32_t chunk, uint32_t record)
{
	const struct purge_sample key = {.chunk = chunk, .record = record};

	return p->samples.bytes ? bsearch(&key, p->samples.data, p->samples.bytes / sizeof(key), sizeof(key),
					  compare_samples)
				: NULL;
}

static int no_memory(struct error *err)
{
	return error_errno(err, -ENOMEM, "purge");
}

static int take_chunk(const struct meta_chunk *chunk, void *context)
{
	struct purge_collect *c = context;
	struct purge_chunk entry = {.known = *chunk};

	return buffer_append(&c->plan->chunks, &entry, sizeof(entry)) < 0 ? no_memory(c->err) : 0;
}

static int take_change(const struct change *change, void *context)
{
	struct purge_collect *c = context;

	return buffer_append(&c->plan->log, change, sizeof(*change)) < 0 ? no_memory(c->err) : 0;
}

static struct purge_chunk *chunk_of(struct purge_collect *c, const struct meta_path *path)
{
	size_t at = purge_find_chunk(c->plan, &path->chunk), n;

	if (at == SIZE_MAX)
		error_set(c->err, -EBADMSG,
			  "the metadata has a path in an unknown chunk: run `dieselctl rebuild`");
	return at == SIZE_MAX ? NULL : purge_chunks(c->plan, &n) + at;
}

static int count_path(const struct meta_path *path, void *context)
{
	struct purge_collect *c = context;
	struct purge_chunk *chunk = chunk_of(c, path);

	if (!chunk)
		return -EBADMSG;
	++*(c->kept ? &chunk->n_kept : &chunk->n_live);
	return 0;
}

static int take_sample(const struct meta_path *path, void *context)
{
	struct purge_collect *c = context;
	const struct purge_chunk *chunk = chunk_of(c, path);

	if (!chunk)
		return -EBADMSG;
	struct purge_sample sample = {.chunk = (uint32_t)(chunk - (struct purge_chunk *)c->plan->chunks.data),
				      .record = path->record_index};

	if (!purge_is_holed(chunk))
		return 0;
	return buffer_append(&c->plan->samples, &sample, sizeof(sample)) < 0 ? no_memory(c->err) : 0;
}

/* Returns the oldest version to keep, which can be read. */
static uint64_t find_oldest(struct purge_plan *p, const struct purge_options *o)
{
	const struct change *log = (const struct change *)p->log.data;
	size_t n = p->log.bytes / sizeof(*log);
	uint64_t made = p->info.version + 1, now_ns = clock_realtime_ns(), oldest;

	p->readable = n && log[n - 1].version == p->info.version ? log[n - 1].oldest : p->info.version;
	oldest = o->keep >= made ? 1 : made - o->keep + 1;
	for (size_t i = 0; i < n; i++) {
		/* time at which the next version replaced this one; if the clock went back, the version is
		 * kept */
		uint64_t until_ns = i + 1 < n ? log[i + 1].time_ns : now_ns;

		if (log[i].version < oldest && log[i].version >= p->readable && o->older_ns &&
		    (until_ns > now_ns || now_ns - until_ns < o->older_ns))
			oldest = log[i].version;
	}
	if (o->older_ns && oldest > p->info.version) /* even if the log has no entry of it */
		oldest = p->info.version;
	return oldest > p->readable ? oldest : p->readable;
}

/* Counts the samples of each chunk that the oldest version has. */
static int count_kept(struct purge_plan *p, const struct purge_options *o, struct error *err)
{
	struct purge_collect c = {.plan = p, .kept = true, .err = err};
	struct place *place = NULL;
	struct meta *meta = NULL;
	size_t n;
	struct purge_chunk *chunks = purge_chunks(p, &n);

	if (p->oldest >= p->info.version) {
		for (size_t i = 0; i < n; i++)
			chunks[i].n_kept =
			    p->oldest > p->info.version && purge_is_holed(&chunks[i]) ? 0 : chunks[i].n_live;
		return 0;
	}
	int r = version_open(o->dataset, p->oldest, &place, err);

	if (r == 0)
		r = meta_open_at(place->dir_fd, place->folder, META_READ, &meta, err);
	if (r == 0)
		r = meta_each_path(meta, count_path, &c, err);
	meta_free(meta);
	backend_close(place);
	return r;
}

/* Returns the newest chunk of the oldest version; NULL: that version has all chunks. */
static const struct chunk_id *last_of_oldest(const struct purge_plan *p)
{
	const struct change *log = (const struct change *)p->log.data;
	size_t n = p->log.bytes / sizeof(*log);

	for (size_t i = 0; i < n && p->oldest < p->info.version; i++)
		if (log[i].version == p->oldest)
			return &log[i].newest;
	return NULL;
}

/* Chooses the chunks to remove. A tombstone stays as long as an older chunk with deleted samples stays,
 * because the tombstone may be what hides them. */
static void choose(struct purge_plan *p)
{
	const struct chunk_id *last = last_of_oldest(p);
	size_t n, first_holed = SIZE_MAX;
	struct purge_chunk *chunks = purge_chunks(p, &n);

	for (size_t i = 0; i < n; i++) {
		struct purge_chunk *c = &chunks[i];

		if (last && chunk_id_compare(&c->known.id, last) > 0)
			return;
		if (purge_is_tombstone(c)) {
			c->goes = first_holed == SIZE_MAX;
			continue;
		}
		c->goes = c->n_kept == 0;
		if (!c->goes && c->n_kept < c->known.n_records && first_holed == SIZE_MAX)
			first_holed = i;
	}
}

static int purge_plan_make(struct purge_plan *p, struct meta *meta, const struct purge_options *o,
			   struct error *err)
{
	struct purge_collect c = {.plan = p, .err = err};
	int r = meta_each_chunk(meta, take_chunk, &c, err);

	if (r == 0)
		r = meta_each_change(meta, take_change, &c, err);
	if (r == 0)
		r = meta_each_path(meta, count_path, &c, err);
	if (r == 0)
		r = meta_each_path(meta, take_sample, &c, err);
	if (r < 0)
		return r;
	if (p->samples.bytes)
		qsort(p->samples.data, p->samples.bytes / sizeof(struct purge_sample),
		      sizeof(struct purge_sample), compare_samples);
	p->oldest = find_oldest(p, o);
	r = count_kept(p, o, err);
	if (r == 0)
		choose(p);
	return r;
}

struct purge {
	const struct purge_options *o;
	struct writer *w;
	struct purge_plan plan;
	struct purge_result result;
	uint64_t bytes; /* copied */
	struct error *err;
};

/* Returns true if the record is a copy of a sample that has to be copied: *ret. */
static bool is_copy(struct purge *p, const struct chunk_view *view, uint32_t i, struct purge_sample **ret)
{
	const struct chunk_record *r = &view->records[i];
	struct meta_path known;

	if (meta_find(writer_meta(p->w), view->names + r->name_offset, r->name_length, &known, NULL) < 0)
		return false;
	size_t chunk = purge_find_chunk(&p->plan, &known.chunk);

	*ret = chunk == SIZE_MAX ? NULL : purge_find_sample(&p->plan, (uint32_t)chunk, known.record_index);
	return *ret && !(*ret)->is_copied && known.record.xxh3 == r->xxh3 && known.record.bytes == r->bytes &&
	       known.record.mtime_ns == r->mtime_ns && known.record.mode == r->mode;
}

/* Takes over the copies that an interrupted purge has made. The commit drops a chunk that has anything else
 * in it. */
static int resume(struct purge *p)
{
	size_t n;
	const struct store_object *leftovers = writer_leftovers(p->w, &n);

	for (size_t i = 0; i < n; i++) {
		_cleanup_(freep) void *head = NULL;
		struct purge_sample *sample = NULL;
		struct chunk_view view;
		uint32_t n_copies = 0;

		if (store_read_head(writer_store(p->w), &leftovers[i].id, &head, &view, NULL) < 0 ||
		    (view.header->flags & CHUNK_FLAG_TOMBSTONE))
			continue;
		while (n_copies < view.header->n_records && is_copy(p, &view, n_copies, &sample))
			n_copies++;
		if (n_copies < view.header->n_records)
			continue;
		int r = writer_adopt(p->w, i, p->err);

		if (r < 0)
			return r;
		for (uint32_t k = 0; k < view.header->n_records; k++)
			if (is_copy(p, &view, k, &sample))
				sample->is_copied = true;
		p->result.n_resumed += view.header->n_records;
	}
	return 0;
}

static int copy_sample(struct purge *p, const struct chunk_id *id, const struct chunk_view *view,
		       const unsigned char *file, uint32_t i)
{
	const struct chunk_record *r = &view->records[i];
	const char *path = view->names + r->name_offset;
	char name[STORE_NAME_MAX], text[160];
	struct chunk_sample sample = {
	    .path = path,
	    .path_length = r->name_length,
	    .data = file + r->offset,
	    .bytes = r->bytes,
	    .mode = r->mode,
	    .mtime_ns = r->mtime_ns,
	    .source_bytes = r->source_bytes,
	};

	text_printable(text, sizeof(text), path, r->name_length);
	store_describe(writer_store(p->w), id, name);
	if (r->encoding != CHUNK_ENCODING_RAW)
		return error_set(
		    p->err, -EPROTONOSUPPORT,
		    "%s: sample '%s' has an encoding that this program does not support; update it", name,
		    text);
	if (checksum_xxh3(sample.data, r->stored_bytes) != r->xxh3)
		return error_set(
		    p->err, -EBADMSG,
		    "%s: sample '%s' at byte %llu is damaged (checksum mismatch): restore the file first",
		    name, text, (unsigned long long)r->offset);
	p->bytes += r->bytes;
	return writer_add(p->w, &sample, p->err);
}

/* Returns the chunk's plain form, which takes one read. */
static int read_chunk(struct purge *p, const struct meta_chunk *known, unsigned char **ret,
		      struct chunk_view *ret_view)
{
	struct store *store = writer_store(p->w);
	_cleanup_(freep) unsigned char *file = NULL;
	struct store_object object = {.id = known->id, .bytes = known->file_bytes};
	uint64_t needed;
	char name[STORE_NAME_MAX];
	void *plain = NULL;
	int r = 0;

	store_describe(store, &known->id, name);
	if (known->flags & CHUNK_FLAG_COMPRESSED)
		r = store_size(store, &known->id, &object.bytes, p->err);
	if (r < 0)
		return r;
	file = malloc(object.bytes ? object.bytes : 1);
	if (!file)
		return error_errno(p->err, -ENOMEM, "%s", name);
	r = store_read(store, &known->id, 0, file, object.bytes, p->err);
	if (r == 0)
		r = store_parse_head(store, &object, file, object.bytes, ret_view, &needed, p->err);
	if (r == -EAGAIN)
		r = error_set(p->err, -EBADMSG, "%s is damaged: its head is longer than the file", name);
	if (r == 0 && (ret_view->header->flags & CHUNK_FLAG_COMPRESSED)) {
		r = chunk_make_plain(file, name, &plain, NULL, p->err);
		free(file);
		file = plain;
		if (r == 0)
			r = chunk_parse_plain(file, known->file_bytes, name, ret_view, p->err);
	}
	if (r == 0)
		*ret = steal_pointer(file);
	return r;
}

/* Copies the chunk's live samples into chunks with the same compression. */
static int copy_chunk(struct purge *p, size_t at)
{
	size_t n;
	const struct purge_chunk *chunk = purge_chunks(&p->plan, &n) + at;
	const struct chunk_id *id = &chunk->known.id;
	_cleanup_(freep) unsigned char *file = NULL;
	struct chunk_view view;
	char name[STORE_NAME_MAX];
	int r = read_chunk(p, &chunk->known, &file, &view);

	if (r == 0 && view.header->head_xxh3 != chunk->known.head_xxh3)
		r = error_set(p->err, -EBADMSG, "%s is not the file that the metadata describes; restore it",
			      store_describe(writer_store(p->w), id, name));
	if (r == 0)
		writer_compress(p->w, view.header->flags & CHUNK_FLAG_COMPRESSED ? view.header->level : 0);
	if (r == 0)
		r = writer_set_layout_of(p->w, view.header, p->err);
	for (uint32_t i = 0; r == 0 && i < view.header->n_records; i++) {
		const struct purge_sample *sample = purge_find_sample(&p->plan, (uint32_t)at, i);

		if (sample && !sample->is_copied)
			r = copy_sample(p, id, &view, file, i);
	}
	return r;
}

static int copy_all(struct purge *p)
{
	const struct purge_options *o = p->o;
	uint64_t done = 0;
	size_t n;
	const struct purge_chunk *chunks = purge_chunks(&p->plan, &n);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		if (!purge_is_holed(&chunks[i]))
			continue;
		r = copy_chunk(p, i);
		if (r == 0 && o->progress)
			o->progress("purging", ++done, p->result.n_holed, p->bytes, o->context);
		if (r == 0 && o->cancelled && o->cancelled(o->context))
			r = error_set(
			    p->err, -ECANCELED,
			    "interrupted; the dataset is unchanged. Run the same command again to continue");
	}
	return r;
}

static void count(struct purge *p)
{
	size_t n;
	const struct purge_chunk *chunks = purge_chunks(&p->plan, &n);

	for (size_t i = 0; i < n; i++) {
		const struct purge_chunk *c = &chunks[i];

		p->result.n_holed += purge_is_holed(c);
		if (c->goes) {
			p->result.n_removed++;
			p->result.removed_bytes += c->known.file_bytes;
		} else if (!purge_is_tombstone(c) && (c->n_live == 0 || purge_is_holed(c))) {
			p->result.n_waiting++;
			p->result.waiting_bytes += c->known.file_bytes;
		}
	}
	p->result.n_samples = p->plan.samples.bytes / sizeof(struct purge_sample);
}

/* Removes the chunks, data before tombstones. A leftover tombstone does no harm, but a missing one would
 * bring deleted samples back in a rebuild. */
static int drop_chunks(struct purge *p)
{
	size_t n;
	const struct purge_chunk *chunks = purge_chunks(&p->plan, &n);
	int r = 0;

	for (int tombstones = 0; tombstones < 2; tombstones++)
		for (size_t i = 0; i < n && r == 0; i++)
			if (chunks[i].goes && purge_is_tombstone(&chunks[i]) == (tombstones == 1))
				r = writer_drop_chunk(p->w, &chunks[i].known.id, p->err);
	return r;
}

static int change(struct purge *p)
{
	struct writer_result committed = {0};
	int r = resume(p);

	if (r == 0)
		r = copy_all(p);
	if (r == 0)
		r = drop_chunks(p);
	writer_keep_from(p->w, p->plan.oldest);
	if (r == 0)
		r = writer_commit(p->w, &committed, p->err);
	p->result.version = committed.version;
	p->result.n_written = committed.n_chunks;
	return r;
}

/* Commits without a change, after a purge that died right after its commit: publishes the snapshot, and drops
 * copies that the purge has left. */
static int clear_up(struct purge *p)
{
	struct writer_result committed;

	return writer_commit(p->w, &committed, p->err);
}

static int purge(struct purge *p)
{
	int r = p->o->dry_run ? 0 : writer_finish_drops(p->w, p->err);

	p->plan.info = *writer_info(p->w);
	p->result.version = p->plan.info.version;
	if (r == 0)
		r = purge_plan_make(&p->plan, writer_meta(p->w), p->o, p->err);
	if (r < 0)
		return r;
	count(p);
	/* If nothing can be freed, no version is made, and all readable versions stay. */
	p->result.oldest = p->result.n_holed + p->result.n_removed ? p->plan.oldest : p->plan.readable;
	if (p->o->dry_run)
		return 0;
	return p->result.n_holed + p->result.n_removed ? change(p) : clear_up(p);
}

int purge_run(const struct purge_options *options, struct purge_result *ret, struct error *err)
{
	struct purge p = {.o = options, .err = err};
	int r = writer_open(options->dataset, WRITER_CHANGE, options->chunk_bytes, &p.w, err);

	if (r == 0 && options->command)
		writer_set_command(p.w, options->command);
	if (r == 0 && options->keep_snapshots)
		writer_keep_snapshots(p.w, options->keep_snapshots);
	if (r == 0)
		writer_show(p.w, options->progress, options->context);
	if (r == 0)
		r = purge(&p);
	writer_free(p.w);
	purge_plan_free(&p.plan);
	if (r == 0)
		*ret = p.result;
	return r;
}
