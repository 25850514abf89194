/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/purge.h"

#include <errno.h>
#include <stdlib.h>

#include "checksum.h"
#include "dataset/chunk_id.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "purge_plan.h"

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

/* Takes over what an interrupted purge has copied. A chunk with anything else in it is dropped by the commit.
 */
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
		    "%s: sample '%s' is stored in a way that this program does not know; update it", name,
		    text);
	if (checksum_xxh3(sample.data, r->stored_bytes) != r->xxh3)
		return error_set(
		    p->err, -EBADMSG,
		    "%s: sample '%s' at byte %llu is damaged (checksum mismatch): restore the file first",
		    name, text, (unsigned long long)r->offset);
	p->bytes += r->bytes;
	return writer_add(p->w, &sample, p->err);
}

/* The chunk's plain form, with one read. */
static int read_chunk(struct purge *p, const struct meta_chunk *known, unsigned char **ret,
		      struct chunk_view *ret_view)
{
	struct store *store = writer_store(p->w);
	_cleanup_(freep) unsigned char *file = NULL;
	uint64_t bytes = known->file_bytes, needed;
	char name[STORE_NAME_MAX];
	void *plain = NULL;
	int r = 0;

	store_describe(store, &known->id, name);
	if (known->flags & CHUNK_FLAG_COMPRESSED)
		r = store_size(store, &known->id, &bytes, p->err);
	if (r < 0)
		return r;
	file = malloc(bytes ? bytes : 1);
	if (!file)
		return error_errno(p->err, -ENOMEM, "%s", name);
	r = store_read(store, &known->id, 0, file, bytes, p->err);
	if (r == 0)
		r = store_parse_head(store, &known->id, file, bytes, bytes, ret_view, &needed, p->err);
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

/* Its live samples, into chunks that are compressed as it is. */
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
		r = error_set(p->err, -EBADMSG, "%s is another file than the metadata describes; restore it",
			      store_describe(writer_store(p->w), id, name));
	if (r == 0)
		writer_compress(p->w, view.header->flags & CHUNK_FLAG_COMPRESSED ? view.header->level : 0);
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
			r = error_set(p->err, -ECANCELED,
				      "interrupted; the dataset is as it was, the same command goes on");
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

/* Data first: a tombstone that is left over hides nothing that there is, one that is missing would. */
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

/* A purge that died right behind its commit has left the snapshot, and what it had copied before. */
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
	/* Where there is nothing to gain no version is made, and those that can be read stay. */
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
