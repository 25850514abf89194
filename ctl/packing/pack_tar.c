/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/chunk.h"
#include "dataset/path_set.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "resume.h"
#include "tar.h"

struct packing {
	const struct pack_options *options;
	struct tar *tar;
	struct writer *writer;
	struct resume *resume;
	struct path_set paths;
	char name[CHUNK_NAME_MAX + 1];   /* needed by the survey, which requires a terminator */
	char sample[CHUNK_NAME_MAX + 1]; /* path of the sample; with labels */
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
