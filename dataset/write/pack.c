/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/backend.h"
#include "dataset/checksum/checksum.h"
#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/order/random.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "lib/units.h"
#include "read_ahead.h"
#include "source.h"

/* Marks the files to be skipped, because the dataset has them already with the same modification time and
 * size (of the file before any rewriting). Counts them in *ret_n_files. */

/* A sample whose length differs from its file's: the file has changed, or was rewritten when it was packed.
 * Only the chunk's head tells which. */
struct doubt {
	struct chunk_id chunk;
	uint32_t record;
	size_t file;
};

static int compare_doubts(const void *a, const void *b)
{
	const struct doubt *x = a, *y = b;

	return chunk_id_compare(&x->chunk, &y->chunk);
}

/* Returns true if a packed sample of equal length and time has the state of the source. Samples of a dataset
 * may have equal times; without a checksum, only what was packed after the dataset's snapshot was made can
 * have its state. */
static bool is_same_state(const struct pack_source *s, const struct source_file *f, uint64_t xxh3,
			  const struct chunk_id *chunk)
{
	if (!s->dataset)
		return true;
	if (f->xxh3)
		return f->xxh3 == xxh3;
	return chunk_id_time_us(chunk) * NS_PER_US > snapshot_info(dataset_snapshot(s->dataset))->created_ns;
}

static int look_up(struct writer *w, struct pack_source *source, struct buffer *doubts, uint64_t *n_files,
		   struct error *err)
{
	for (size_t i = 0; i < source->n_files; i++) {
		struct source_file *file = &source->files[i];
		struct path_text path = source_path(source, file);
		struct meta_path known;

		if (file->skip)
			continue;
		int r = meta_find(writer_meta(w), path.text, path.length, &known, err);

		if (r == -ENOENT || (r == 0 && known.record.mtime_ns != file->mtime_ns))
			continue;
		if (r < 0)
			return r;
		if (known.record.bytes == file->bytes &&
		    !is_same_state(source, file, known.record.xxh3, &known.chunk))
			continue;
		struct doubt doubt = {known.chunk, known.record_index, i};

		if (known.record.bytes != file->bytes) {
			if (buffer_append(doubts, &doubt, sizeof(doubt)) < 0)
				return error_errno(err, -ENOMEM, "%s", source->root);
			continue;
		}
		file->skip = true;
		++*n_files;
	}
	return 0;
}

/* Settles n doubts about samples of one chunk. If the chunk cannot be read, its files are packed again. */
static int settle(struct writer *w, struct pack_source *source, const struct doubt *doubts, size_t n,
		  uint64_t *n_files, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_view view;
	int r = store_read_head(writer_store(w), &doubts->chunk, &head, &view, NULL);

	if (r < 0)
		return r == -ENOMEM ? error_errno(err, r, "%s", source->root) : 0;
	for (size_t i = 0; i < n; i++) {
		struct source_file *file = &source->files[doubts[i].file];

		if (doubts[i].record >= view.header->n_records ||
		    view.records[doubts[i].record].source_bytes != file->bytes)
			continue;
		file->skip = true;
		++*n_files;
	}
	return 0;
}

/* 0 or -errno. */
static int pack_unchanged(struct writer *w, struct pack_source *source, uint64_t *ret_n_files,
			  struct error *err)
{
	struct buffer buffer = {0};
	uint64_t n_files = 0;
	int r = writer_info(w)->n_paths ? look_up(w, source, &buffer, &n_files, err) : 0;
	struct doubt *doubts = (struct doubt *)buffer.data;
	size_t n = buffer.bytes / sizeof(*doubts);

	if (n)
		qsort(doubts, n, sizeof(*doubts), compare_doubts);
	for (size_t i = 0, end; i < n && r == 0; i = end) {
		for (end = i + 1; end < n && compare_doubts(&doubts[i], &doubts[end]) == 0; end++)
			continue;
		r = settle(w, source, doubts + i, end - i, &n_files, err);
	}
	buffer_free(&buffer);
	if (r == 0)
		*ret_n_files = n_files;
	return r;
}

int pack_has(struct writer *w, const struct chunk_sample *sample, struct error *err)
{
	struct meta_path known;
	int r = meta_find(writer_meta(w), sample->path, sample->path_length, &known, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return known.record.bytes == sample->bytes && known.record.mtime_ns == sample->mtime_ns &&
	       known.record.mode == sample->mode &&
	       known.record.xxh3 == checksum_xxh3(sample->data, sample->bytes);
}

/* Adopts the chunks that an interrupted run packed from the same source, with the same rewriting, if the
 * files are unchanged, and marks their *ret_n_files files to be skipped. The commit drops chunks that hold
 * anything else. */

static struct source_file *find_record(const struct pack_source *source, const struct chunk_view *view,
				       uint32_t i)
{
	const struct chunk_record *r = &view->records[i];

	return source_find(source, (struct path_text){view->names + r->name_offset, r->name_length});
}

/* Returns true if each of the chunk's files is unchanged in the source, is in no earlier chunk, and was
 * packed in the form that is requested now. */
static bool is_current(const struct pack_source *source, const struct chunk_view *view, bool rewrites,
		       enum chunk_layout layout)
{
	if (view->header->flags & (CHUNK_FLAG_TOMBSTONE | CHUNK_FLAG_EXTERNAL) ||
	    chunk_layout_of(view->header->flags) != layout)
		return false;
	for (uint32_t i = 0; i < view->header->n_records; i++) {
		const struct chunk_record *r = &view->records[i];
		const struct source_file *file = find_record(source, view, i);

		if (!file || file->skip || file->bytes != (rewrites ? r->source_bytes : r->bytes) ||
		    file->mtime_ns != r->mtime_ns || (!rewrites && r->source_bytes) ||
		    !is_same_state(source, file, r->xxh3, &view->header->id))
			return false;
	}
	return true;
}

/* 0 or -errno. */
static int pack_resume(struct writer *w, struct pack_source *source, bool rewrites, uint64_t *ret_n_files,
		       struct error *err)
{
	size_t n;
	const struct store_object *leftovers = writer_leftovers(w, &n);
	uint64_t n_files = 0;

	for (size_t i = 0; i < n; i++) {
		_cleanup_(freep) void *head = NULL;
		struct chunk_view view;
		int r = store_read_head(writer_store(w), &leftovers[i].id, &head, &view, NULL);

		if (r == -ENOMEM)
			return error_errno(err, r, "cannot continue where the last run stopped");
		if (r < 0 || !is_current(source, &view, rewrites, writer_layout(w)))
			continue; /* its files are packed again */
		r = writer_adopt(w, i, err);
		if (r < 0)
			return r;
		for (uint32_t k = 0; k < view.header->n_records; k++)
			find_record(source, &view, k)->skip = true;
		n_files += view.header->n_records;
	}
	*ret_n_files = n_files;
	return 0;
}

/* memory for files that were read and not packed yet. It keeps all threads busy, and is small compared with
 * the chunk buffers. */
#define READ_AHEAD_BYTES (64u << 20)
/* a random stream that shuffle.c does not use, since its streams count from 0 */
#define STREAM_PACK UINT64_MAX

struct pack {
	const struct pack_options *options;
	struct writer *writer;
	struct pack_source *source;
	uint64_t *order; /* numbers of the files to read */
	size_t n_order;
	struct pack_result result;
};

static int unreadable(int code, const char *text, void *context)
{
	struct pack *p = context;

	if (!p->options->skip_unreadable)
		return code;
	p->result.n_skipped++;
	if (p->options->skipped)
		p->options->skipped(text, p->options->context);
	return 0;
}

/* Checks that the source is not in the dataset. Otherwise the dataset's own files would be packed, and change
 * meanwhile. */
static int check_places(const struct pack_options *o, struct error *err)
{
	bool in_bucket = backend_is_elsewhere(o->source);
	_cleanup_(freep) char *source = in_bucket ? NULL : realpath(o->source, NULL);
	_cleanup_(freep) char *dataset = backend_is_elsewhere(o->dataset) ? NULL : realpath(o->dataset, NULL);
	size_t n = dataset ? strlen(dataset) : 0;

	if (in_bucket)
		return 0;
	if (!source)
		return error_errno(err, -errno, "cannot read the source %s", o->source);
	if (dataset && strncmp(source, dataset, n) == 0 && (source[n] == '\0' || source[n] == '/'))
		return error_set(err, -EINVAL, "the source %s is in the dataset %s; choose another source",
				 o->source, o->dataset);
	return 0;
}

static int check_dataset(const struct pack_options *o, struct writer *w, struct error *err)
{
	const struct meta_info *info = writer_info(w);
	int r;

	if (info->n_paths == 0 || o->append)
		return 0;
	r = writer_catch_up(w, err); /* a killed run of this command may have left its commit unpublished */
	if (r < 0)
		return r;
	return error_set(
	    err, -EEXIST,
	    "%s has %llu sample%s already (version %llu): add --append to add to it and to replace "
	    "changed files, or choose a new directory",
	    o->dataset, (unsigned long long)info->n_paths, units_plural(info->n_paths),
	    (unsigned long long)info->version);
}

int pack_open(const struct pack_options *o, struct writer **ret, struct error *err)
{
	struct writer *w;
	int r = writer_open_on(o->dataset, o->shared ? WRITER_SHARE : WRITER_PACK, o->chunk_bytes,
			       o->meta_url, &w, err);

	if (r < 0)
		return r;
	if (o->command)
		writer_set_command(w, o->command);
	if (o->keep_snapshots)
		writer_keep_snapshots(w, o->keep_snapshots);
	writer_compress(w, o->level);
	writer_show(w, o->progress, o->context);
	r = check_dataset(o, w, err);
	if (r == 0 && o->layout < CHUNK_N_LAYOUTS)
		r = writer_set_layout(w, o->layout, o->columns, err);
	if (r == 0 && o->keep_digests)
		r = writer_keep_digests(w, err);
	if (r < 0)
		writer_free(w);
	else
		*ret = w;
	return r;
}

/* Returns true if the source is a dataset: its samples are packed, as those of another format's files. */
static bool is_dataset(const char *source)
{
	_cleanup_(freep) char *snapshot = NULL, *chunks = NULL;

	if (backend_is_elsewhere(source))
		return true;
	if (asprintf(&snapshot, "%s/" SNAPSHOT_FILE, source) < 0 ||
	    asprintf(&chunks, "%s/chunks", source) < 0)
		return false;
	return access(snapshot, F_OK) == 0 && access(chunks, F_OK) == 0;
}

static int scan_source(struct pack *p, struct error *err)
{
	struct stat st = {0}; /* stays zero for a dataset elsewhere, which cannot lie in the source */

	if (!backend_is_elsewhere(p->options->dataset) && stat(p->options->dataset, &st) < 0)
		return error_errno(err, -errno, "cannot find %s", p->options->dataset);
	if (p->source)
		return p->source->n_files ? 0
					  : error_set(err, -ENODATA, "%s has no samples", p->options->source);
	survey_begin(p->options->survey, p->options->source);
	const struct source_options options = {.root = p->options->source,
					       .exclude_device = st.st_dev,
					       .exclude_inode = st.st_ino,
					       .unreadable = unreadable,
					       .context = p};
	int r = source_scan(&options, p->options->survey, &p->source, err);

	if (r < 0) {
		error_prefix(err, "nothing packed");
		return r;
	}
	p->result.n_other = p->source->n_other;
	if (p->source->n_files == 0)
		return error_set(err, -ENODATA, "there are no files in %s", p->options->source);
	return 0;
}

static int choose_files(struct pack *p, struct error *err)
{
	struct random_state random;

	p->order = calloc(p->source->n_files, sizeof(*p->order));
	if (!p->order)
		return error_errno(err, -ENOMEM, "%s", p->options->source);
	for (size_t i = 0; i < p->source->n_files; i++)
		if (!p->source->files[i].skip)
			p->order[p->n_order++] = i;
	if (p->options->order == PACK_ORDER_RANDOM) {
		random_init(&random, p->options->seed, 0, STREAM_PACK);
		random_shuffle(&random, p->order, p->n_order);
	}
	return 0;
}

static int file_error(const struct pack *p, const struct read_item *item, struct error *err)
{
	struct path_text path = source_file_path(p->source, item->file);
	char text[200], size[24], limit[24];

	if (p->source->dataset && item->note.text[0])
		return error_set(err, item->result, "%s", item->note.text);
	text_printable(text, sizeof(text), path.text, path.length);
	if (item->result == -ESTALE)
		return error_set(err, -ESTALE,
				 "%s/%s changed while it was being packed; run the command again when the "
				 "file is complete",
				 p->source->root, text);
	if (item->result == -EFBIG)
		return error_set(
		    err, -EFBIG, "%s/%s has %s, but a sample can have at most %s: split it, or leave it out",
		    p->source->root, text, units_format_bytes(size, sizeof(size), item->file->bytes),
		    units_format_bytes(limit, sizeof(limit), CHUNK_SAMPLE_MAX_BYTES));
	return error_errno(err, item->result, "cannot read %s/%s", p->source->root, text);
}

static void tell_rewritten(const struct pack *p, const struct read_item *item)
{
	struct path_text path = source_file_path(p->source, item->file);
	char text[200];
	struct pack_rewritten file = {
	    .result = item->rewritten,
	    .path = text_printable(text, sizeof(text), path.text, path.length),
	    .source_bytes = item->source_bytes,
	    .bytes = item->bytes,
	    .note = &item->note,
	};

	if (p->options->rewrite && p->options->rewritten)
		p->options->rewritten(&file, p->options->context);
}

static int add_item(struct pack *p, const struct read_item *item, struct error *err)
{
	struct path_text path = source_path(p->source, item->file);
	struct chunk_sample sample = {
	    .path = path.text,
	    .path_length = path.length,
	    .data = item->data,
	    .bytes = item->bytes,
	    .mode = item->mode,
	    .mtime_ns = item->mtime_ns,
	    .source_bytes = item->source_bytes,
	};

	if (item->result < 0) {
		struct error read_err = ERROR_INIT;
		int r = file_error(p, item, &read_err);

		/* A lack of memory or descriptors is not the file's fault. */
		if (r != -ENOMEM && r != -EMFILE && r != -ENFILE)
			r = unreadable(r, read_err.text, p);
		if (r < 0 && err)
			*err = read_err;
		return r;
	}
	int r = writer_add(p->writer, &sample, err);

	if (r == 0) {
		p->result.n_files++;
		p->result.bytes += item->bytes;
		tell_rewritten(p, item);
	}
	return r;
}

static int pack_files(struct pack *p, struct error *err)
{
	const struct pack_options *o = p->options;
	const struct read_ahead_options options = {
	    .n_threads = o->n_threads,
	    .budget_bytes = READ_AHEAD_BYTES,
	    .max_bytes = CHUNK_SAMPLE_MAX_BYTES,
	    .rewrite = o->rewrite,
	};
	struct read_ahead *ra;
	int r = read_ahead_new(p->source, p->order, p->n_order, &options, &ra);

	if (r < 0)
		return error_errno(err, r, "cannot start reading %s", o->source);
	for (size_t i = 0; i < p->n_order && r == 0; i++) {
		struct read_item item = read_ahead_next(ra);

		r = add_item(p, &item, err);
		if (o->progress)
			o->progress("packing", i + 1, p->n_order, p->result.bytes, o->context);
		if (r == 0 && o->cancelled && o->cancelled(o->context))
			r = error_set(err, -ECANCELED, "interrupted");
	}
	read_ahead_free(ra);
	return r;
}

static int pack_all(struct pack *p, struct error *err)
{
	int r = scan_source(p, err);

	if (r == 0)
		r = pack_resume(p->writer, p->source, p->options->rewrite, &p->result.n_resumed, err);
	if (r == 0)
		r = pack_unchanged(p->writer, p->source, &p->result.n_unchanged, err);
	if (r == 0)
		r = choose_files(p, err);
	if (r < 0)
		return r;
	/* From here on, a failure leaves chunks that are worth keeping. */
	struct writer_result committed = {0};

	r = pack_files(p, err);
	if (r == 0)
		r = writer_commit(p->writer, &committed, err);
	p->result.n_chunks = committed.n_chunks;
	p->result.version = committed.version;
	if (r < 0 && r != -ESTALE && err && strlen(err->text) < sizeof(err->text) - 120)
		strcat(err->text, p->options->shared ? "; the dataset is unchanged"
						     : "; the dataset is unchanged. Run the same command "
						       "again to continue where this one stopped");
	return r;
}

int pack_run(const struct pack_options *options, struct pack_result *ret, struct error *err)
{
	struct pack_options with_layout = *options;
	struct pack p = {.options = &with_layout};
	int r = check_places(options, err);

	if (r == 0 && !options->survey->as_files && is_dataset(options->source))
		r = source_of_dataset(options->source, &p.source, err);
	if (r == 0 && p.source && options->survey->labels)
		r = error_set(
		    err, -EINVAL,
		    "%s is a dataset, whose samples have their classes: --labels applies only to files of a "
		    "folder or an archive",
		    options->source);
	if (r == 0 && p.source) {
		with_layout.layout = snapshot_info(dataset_snapshot(p.source->dataset))->layout;
		with_layout.columns = snapshot_info(dataset_snapshot(p.source->dataset))->columns;
	}
	if (r == 0)
		r = pack_open(&with_layout, &p.writer, err);
	if (r == 0)
		r = pack_all(&p, err);
	writer_free(p.writer);
	source_free(p.source);
	free(p.order);
	if (r == 0)
		*ret = p.result;
	return r;
}
