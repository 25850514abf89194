/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_tar.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/chunk.h"
#include "dataset/path_set.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "tar.h"
#include "dataset/chunk_builder.h"
#include "lib/array.h"

/*
 * Continues an interrupted run with samples that arrive one by one in the same order: samples that are
 * already in the run's chunks, byte for byte, need not be written again. A chunk is reused when all of its
 * samples have arrived; they are held in memory until then.
 */

/* A sample held until all samples of its chunk have arrived, with its path and bytes. */
struct held {
	struct chunk_sample sample;
	unsigned char *memory;
};

struct resume {
	struct writer *w;
	const struct store_object *leftovers;
	size_t n_leftovers, at; /* at: index of the current chunk; n_leftovers: no chunk is left */
	void *head;             /* header of the current chunk; NULL: none is open */
	struct chunk_view view;
	struct held *held;
	size_t n_held, n_allocated;
	uint64_t count, bytes;
};

static void drop_held(struct resume *r)
{
	for (size_t i = 0; i < r->n_held; i++)
		free(r->held[i].memory);
	r->n_held = 0;
}

/* Opens the next candidate chunk. Skips chunks that cannot be read. */
static void open_chunk(struct resume *r)
{
	free(r->head);
	r->head = NULL;
	for (; r->at < r->n_leftovers; r->at++) {
		if (store_read_head(writer_store(r->w), &r->leftovers[r->at].id, &r->head, &r->view, NULL) <
		    0)
			continue;
		if (!(r->view.header->flags & (CHUNK_FLAG_TOMBSTONE | CHUNK_FLAG_EXTERNAL)) &&
		    chunk_layout_of(r->view.header->flags) == writer_layout(r->w))
			return;
		free(r->head);
		r->head = NULL;
	}
}

/* Call it before the first writer_add(). w is borrowed. -ENOMEM. */
static int resume_new(struct writer *w, struct resume **ret, struct error *err)
{
	struct resume *r = calloc(1, sizeof(*r));

	if (!r)
		return error_errno(err, -ENOMEM, "cannot continue where the last run stopped");
	r->w = w;
	r->leftovers = writer_leftovers(w, &r->n_leftovers);
	open_chunk(r);
	*ret = r;
	return 0;
}

static void resume_free(struct resume *r)
{
	if (!r)
		return;
	drop_held(r);
	free(r->held);
	free(r->head);
	free(r);
}

static bool is_record(const struct chunk_view *view, uint32_t i, const struct chunk_sample *s)
{
	const struct chunk_record *record = &view->records[i];

	return record->name_length == s->path_length &&
	       memcmp(view->names + record->name_offset, s->path, s->path_length) == 0 &&
	       record->bytes == s->bytes && record->mode == s->mode && record->mtime_ns == s->mtime_ns &&
	       record->source_bytes == s->source_bytes &&
	       chunk_verify_record(view, i, s->data, "", NULL) == 0;
}

static int hold(struct resume *r, const struct chunk_sample *s)
{
	struct held held = {*s, malloc(s->path_length + s->bytes)};

	if (!held.memory || array_reserve(r->held, r->n_held, r->n_allocated) < 0) {
		free(held.memory);
		return -ENOMEM;
	}
	memcpy(held.memory, s->path, s->path_length);
	if (s->bytes)
		memcpy(held.memory + s->path_length, s->data, s->bytes);
	held.sample.path = (const char *)held.memory;
	held.sample.data = held.memory + s->path_length;
	r->held[r->n_held++] = held;
	return 0;
}

/* Call it after the last sample: writes the held samples. */
static int resume_end(struct resume *r, struct error *err)
{
	int result = 0;

	for (size_t i = 0; i < r->n_held && result == 0; i++)
		result = writer_add(r->w, &r->held[i].sample, err);
	drop_held(r);
	free(r->head);
	r->head = NULL;
	return result;
}

/* Takes and copies the next sample. Returns 1 if it matches a chunk of the interrupted run so far; 0 if the
 * caller must write it and all later ones. Errors as writer_add() and writer_adopt(). */
static int resume_take(struct resume *r, const struct chunk_sample *sample, struct error *err)
{
	int result;

	if (!r->head)
		return 0;
	if (!is_record(&r->view, (uint32_t)r->n_held, sample)) {
		result = resume_end(r, err);
		return result;
	}
	if (hold(r, sample) < 0)
		return error_errno(err, -ENOMEM, "a sample of %zu bytes", sample->bytes);
	if (r->n_held < r->view.header->n_records)
		return 1;
	result = writer_adopt(r->w, r->at, err);
	if (result < 0)
		return result;
	r->count += r->n_held;
	for (size_t i = 0; i < r->n_held; i++)
		r->bytes += r->held[i].sample.bytes;
	drop_held(r);
	r->at++;
	open_chunk(r);
	return 1;
}

/* Returns the number of samples that need not be written, and their bytes. */
static uint64_t resume_count(const struct resume *r, uint64_t *ret_bytes)
{
	*ret_bytes = r->bytes;
	return r->count;
}

struct packing {
	const struct pack_options *options;
	struct tar *tar;
	struct writer *writer;
	struct resume *resume;
	struct path_set paths;
	char name[CHUNK_NAME_MAX + 1];   /* needed by the survey, which requires a terminator */
	char sample[CHUNK_NAME_MAX + 1]; /* path of the sample; with labels */
	char key[CHUNK_NAME_MAX + 1];    /* path of the last file, up to the first dot of its name */
	struct pack_result result;
};

bool pack_is_tar(const char *source)
{
	struct stat st;

	return strcmp(source, "-") == 0 || (stat(source, &st) == 0 && !S_ISDIR(st.st_mode));
}

static int check_new(struct packing *p, const struct tar_file *file, struct error *err)
{
	char text[200];
	int r = path_set_add(&p->paths, file->path, file->path_length);

	if (r < 0)
		return error_errno(err, r, "%s", tar_name(p->tar));
	if (r == 0)
		return error_set(err, -EBADMSG,
				 "%s has '%s' twice, but a dataset has only one sample per path: remove one "
				 "from the archive",
				 tar_name(p->tar),
				 text_printable(text, sizeof(text), file->path, file->path_length));
	return 0;
}

static int add_sample(struct packing *p, const struct chunk_sample *sample, struct error *err)
{
	int r = p->options->append && !p->options->shared ? pack_has(p->writer, sample, err) : 0;

	if (r > 0) {
		p->result.n_unchanged++;
		return 0;
	}
	if (r == 0)
		r = resume_take(p->resume, sample, err);
	if (r == 0)
		r = writer_add(p->writer, sample, err);
	if (r < 0)
		return r;
	p->result.n_files++;
	p->result.bytes += sample->bytes;
	return 0;
}

/* Adds a file unchanged, or as options->rewrite changes it. */
static int add_file(struct packing *p, const struct tar_file *file, struct error *err)
{
	const struct pack_options *o = p->options;
	struct error note = ERROR_INIT;
	_cleanup_(freep) void *made = NULL;
	size_t made_bytes = 0;
	struct chunk_sample sample = {
	    .path = file->path,
	    .path_length = file->path_length,
	    .data = file->data,
	    .bytes = file->bytes,
	    .mode = file->mode,
	    .mtime_ns = file->mtime_ns,
	};
	char text[200];
	int rewritten = o->rewrite ? o->rewrite(file->data, file->bytes, &made, &made_bytes, &note) : 0;

	text_printable(text, sizeof(text), file->path, file->path_length);
	if (o->survey->labels) {
		int n = snprintf(p->sample, sizeof(p->sample), "%s/%s", o->survey->class_name, p->name);

		if (n < 0 || (size_t)n >= sizeof(p->sample))
			return error_set(err, -ENAMETOOLONG, "%s: '%s' is too long with its class in front",
					 tar_name(p->tar), text);
		sample.path = p->sample;
		sample.path_length = (size_t)n;
	}
	if (rewritten < 0)
		return error_errno(err, rewritten, "%s: '%s'", tar_name(p->tar), text);
	if (o->rewrite)
		sample.source_bytes = (uint64_t)file->bytes;
	if (made) {
		sample.data = made;
		sample.bytes = made_bytes;
	}
	int r = add_sample(p, &sample, err);

	if (r == 0 && o->rewrite && o->rewritten)
		o->rewritten(&(struct pack_rewritten){rewritten, text, file->bytes, sample.bytes, &note},
			     o->context);
	return r;
}

/* Counts a file that has the key of the file before, as the members of a sample in a shard of WebDataset. */
static void compare_key(struct packing *p)
{
	const char *slash = strrchr(p->name, '/'), *name = slash ? slash + 1 : p->name;
	size_t n = (size_t)(name - p->name) + strcspn(name, ".");

	p->result.n_alike += p->name[n] == '.' && strncmp(p->key, p->name, n) == 0 && !p->key[n];
	memcpy(p->key, p->name, n);
	p->key[n] = '\0';
}

static int take(struct packing *p, const struct tar_file *file, struct error *err)
{
	size_t length = file->path_length;
	int r;

	while (file->is_folder && length && file->path[length - 1] == '/')
		length--;
	if (length == 0 || length > CHUNK_NAME_MAX ||
	    (file->is_folder && !chunk_name_is_valid(file->path, length)))
		return 0; /* the archive's own root, or a folder that cannot contain files */
	memcpy(p->name, file->path, length);
	p->name[length] = '\0';
	if (file->is_folder) {
		r = survey_folder(p->options->survey, p->name, err);
		return r < 0 ? r : 0;
	}
	r = survey_file(p->options->survey, p->name, err);
	if (r <= 0)
		return r;
	compare_key(p);
	r = check_new(p, file, err);
	return r < 0 ? r : add_file(p, file, err);
}

static int pack_files(struct packing *p, struct error *err)
{
	const struct pack_options *o = p->options;
	struct tar_file file;
	int r;

	survey_begin(o->survey, o->source);
	while ((r = tar_next(p->tar, &file, err)) > 0) {
		r = take(p, &file, err);
		if (r == 0 && o->cancelled && o->cancelled(o->context))
			r = error_set(err, -ECANCELED, "interrupted");
		if (r < 0)
			return r;
		if (o->progress && !file.is_folder)
			o->progress("packing", tar_bytes(p->tar) ? tar_position(p->tar) : p->paths.n,
				    tar_bytes(p->tar), p->result.bytes, o->context);
	}
	if (r == 0)
		r = survey_end(o->survey, err);
	if (r == 0 && p->paths.n == 0)
		return error_set(err, -ENODATA, "there are no files in %s", tar_name(p->tar));
	return r < 0 ? r : resume_end(p->resume, err);
}

/* Returns true if the archive itself is invalid, so that no later run can continue. */
static bool is_useless(int r)
{
	return r == -EINVAL || r == -EBADMSG || r == -EFBIG || r == -EEXIST || r == -ENODATA;
}

static void end_failed(struct packing *p, int r, struct error *err)
{
	if (p->writer && is_useless(r))
		writer_discard(p->writer);
	if (p->writer && r != -ESTALE && err && strlen(err->text) < sizeof(err->text) - 90)
		strcat(err->text,
		       is_useless(r) || p->options->shared
			   ? "; the dataset is unchanged"
			   : "; the dataset is unchanged. To continue, pack the same archive again");
}

int pack_tar(const struct pack_options *options, struct pack_result *ret, struct error *err)
{
	struct packing p = {.options = options};
	struct writer_result committed = {0};
	uint64_t resumed_bytes;
	int r = pack_open(options, &p.writer,
			  err); /* first: a run that must wait for another writer has read nothing yet */

	if (r == 0)
		r = tar_open(options->source, &p.tar, err);
	if (r == 0)
		r = resume_new(p.writer, &p.resume, err);
	if (r == 0)
		r = pack_files(&p, err);
	if (r == 0)
		r = pack_commit(options, &p.writer, &committed, err);
	if (r < 0) {
		end_failed(&p, r, err);
	} else {
		p.result.n_resumed = resume_count(p.resume, &resumed_bytes);
		p.result.n_files -= p.result.n_resumed;
		p.result.bytes -= resumed_bytes;
	}
	resume_free(p.resume);
	writer_free(p.writer);
	tar_free(p.tar);
	path_set_free(&p.paths);
	p.result.n_chunks = committed.n_chunks;
	p.result.version = committed.version;
	if (r == 0)
		*ret = p.result;
	return r;
}
