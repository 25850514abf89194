/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl stat: prints figures of a dataset, or of one path in it. */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl_dataset.h"
#include "dataset/chunk_id.h"
#include "dataset/dataset.h"
#include "dataset/digest.h"
#include "dataset/fields.h"
#include "dataset/frozen.h"
#include "dataset/meta.h"
#include "dataset/backend.h"
#include "dataset/sample.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "dataset/store.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "lib/units.h"

/*
 * The shape of a dataset: the sizes of its samples, and the dead space in its chunks. A hole is the space
 * that a chunk's file would save without its deleted and replaced samples, in whole blocks of 4096 bytes. The
 * snapshot is enough to compute it: no chunk is read.
 */

#define SHAPE_SIZES 32 /* a sample has at most 1 GiB */

struct shape {
	uint64_t n_samples[SHAPE_SIZES]; /* [0]: empty samples; [i]: samples of 2^(i-1) to 2^i - 1 bytes */
	uint64_t bytes[SHAPE_SIZES];
	uint64_t n_holes, hole_bytes; /* chunks with a hole */
	bool knows_rest;              /* the metadata exists, so the fields below are known */
	uint64_t n_rest, rest_bytes; /* chunks without live samples: tombstones, and chunks whose samples were
					all deleted */
	uint64_t oldest;             /* oldest version that can still be read; 0: not known */
};

#define BAR_CELLS 30

static unsigned size_class(uint32_t bytes)
{
	return bytes ? 32 - (unsigned)__builtin_clz(bytes) : 0;
}

static uint64_t round_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

static void add_chunk(const struct snapshot *s, const struct snapshot_chunk *chunk, struct shape *shape)
{
	uint64_t live = 0;

	for (uint64_t i = 0; i < chunk->n_samples; i++) {
		struct snapshot_sample sample;

		if (snapshot_sample_get(s, chunk->first_sample + i, &sample) < 0)
			continue; /* cannot happen: the snapshot was verified */
		live = round_up(live, CHUNK_SAMPLE_ALIGN) + sample.stored_bytes;
		shape->n_samples[size_class(sample.bytes)]++;
		shape->bytes[size_class(sample.bytes)] += sample.bytes;
	}
	uint64_t needed = chunk->payload_offset + round_up(live, CHUNK_ALIGN);

	if (chunk->file_bytes > needed && !chunk->is_external) {
		shape->n_holes++;
		shape->hole_bytes += chunk->file_bytes - needed;
	}
}

struct rest {
	const struct snapshot *snapshot;
	uint64_t next; /* position in the chunk table: ids ascend in both */
	struct shape *shape;
};

static int add_rest(const struct meta_chunk *chunk, void *context)
{
	struct rest *rest = context;
	struct snapshot_chunk used;

	if (snapshot_chunk_get(rest->snapshot, rest->next, &used) == 0 &&
	    memcmp(&used.id, &chunk->id, sizeof(used.id)) == 0) {
		rest->next++;
		return 0;
	}
	rest->shape->n_rest++;
	rest->shape->rest_bytes += chunk->file_bytes;
	return 0;
}

static int take_oldest(const struct change *change, void *context)
{
	*(struct change *)context = *change;
	return 0;
}

/* meta may be NULL: then the fields that need knows_rest, and `oldest`, are unknown. */
static void shape_collect(const struct snapshot *s, struct meta *meta, struct shape *ret)
{
	struct shape shape = {0};
	struct snapshot_chunk chunk;
	struct rest rest = {.snapshot = s, .shape = &shape};
	struct change newest = {0};

	for (uint64_t i = 0; snapshot_chunk_get(s, i, &chunk) == 0; i++)
		add_chunk(s, &chunk, &shape);
	shape.knows_rest = meta && meta_each_chunk(meta, add_rest, &rest, NULL) == 0;
	/* The newest log entry has the oldest readable version, unless a program that writes no log made a
	 * later version. */
	if (meta && meta_each_change(meta, take_oldest, &newest, NULL) == 0 &&
	    newest.version == snapshot_info(s)->version)
		shape.oldest = newest.oldest;
	*ret = shape;
}

static void print_size(unsigned i, const struct shape *shape, uint64_t most, uint64_t all)
{
	char from[24], below[24], bytes[24], range[64], bar[BAR_CELLS + 1];
	uint64_t n = shape->n_samples[i];
	int cells = (int)((n * BAR_CELLS + most - 1) / most);

	if (i == 0)
		snprintf(range, sizeof(range), "empty");
	else
		snprintf(range, sizeof(range), "%s to %s",
			 units_format_bytes(from, sizeof(from), (uint64_t)1 << (i - 1)),
			 units_format_bytes(below, sizeof(below), (uint64_t)1 << i));
	memset(bar, '#', (size_t)cells);
	bar[cells] = '\0';
	printf("  %-20s %-*s %5.1f %%  %llu, %s\n", range, BAR_CELLS, bar, 100.0 * (double)n / (double)all,
	       (unsigned long long)n, units_format_bytes(bytes, sizeof(bytes), shape->bytes[i]));
}

static void print_sizes(const struct shape *shape)
{
	unsigned first = SHAPE_SIZES, last = 0;
	uint64_t most = 0, all = 0;

	for (unsigned i = 0; i < SHAPE_SIZES; i++) {
		if (!shape->n_samples[i])
			continue;
		first = first < i ? first : i;
		last = i;
		most = most > shape->n_samples[i] ? most : shape->n_samples[i];
		all += shape->n_samples[i];
	}
	if (!all)
		return;
	puts("sizes");
	for (unsigned i = first; i <= last; i++)
		print_size(i, shape, most, all);
}

static void shape_print(const struct option_verb *verb, const struct shape *shape, uint64_t version)
{
	struct error text = ERROR_INIT;
	char bytes[24];

	if (shape->n_holes)
		printf("holes     %s in %llu chunk%s, from deleted and replaced samples\n",
		       units_format_bytes(bytes, sizeof(bytes), shape->hole_bytes),
		       (unsigned long long)shape->n_holes, units_plural(shape->n_holes));
	else
		puts("holes     none");
	if (shape->n_rest)
		printf("unused    %llu chunk%s without a sample, %s\n", (unsigned long long)shape->n_rest,
		       units_plural(shape->n_rest),
		       units_format_bytes(bytes, sizeof(bytes), shape->rest_bytes));
	if (shape->oldest && shape->oldest < version) {
		error_set(&text, 0, "versions  %llu to %llu can be read: `dieselctl log` lists them",
			  (unsigned long long)shape->oldest, (unsigned long long)version);
		ctl_print_advice(stdout, verb, text.text);
		putchar('\n');
	}
	print_sizes(shape);
}

/* Prints members of a JSON object, followed by a comma. */
static void shape_print_json(const struct shape *shape)
{
	bool first = true;

	fputs("\"sizes\": [", stdout);
	for (unsigned i = 0; i < SHAPE_SIZES; i++) {
		if (!shape->n_samples[i])
			continue;
		printf("%s{\"from\": %llu, \"below\": %llu, \"samples\": %llu, \"bytes\": %llu}",
		       first ? "" : ", ", i ? 1ull << (i - 1) : 0ull, 1ull << i,
		       (unsigned long long)shape->n_samples[i], (unsigned long long)shape->bytes[i]);
		first = false;
	}
	printf("], \"holes\": {\"chunks\": %llu, \"bytes\": %llu}, ", (unsigned long long)shape->n_holes,
	       (unsigned long long)shape->hole_bytes);
	if (shape->knows_rest)
		printf("\"unused\": {\"chunks\": %llu, \"bytes\": %llu}, ", (unsigned long long)shape->n_rest,
		       (unsigned long long)shape->rest_bytes);
	else
		fputs("\"unused\": null, ", stdout);
	if (shape->oldest)
		printf("\"oldest_version\": %llu, ", (unsigned long long)shape->oldest);
	else
		fputs("\"oldest_version\": null, ", stdout);
}

/* Prints the fields of a sample: "image (image, 12 KiB), ...", or a JSON array. Returns false, and prints
 * nothing, if the sample is damaged. */
static bool print_fields(const struct snapshot_info *of, const void *sample, size_t bytes, bool json)
{
	struct fields_walk w;
	struct field f;
	char name[160], encoding[160], size[24];
	const char *before = json ? "[" : "";
	int r = fields_begin(&w, of->layout, of->columns, sample, bytes);

	while (r == 0 && (r = fields_next(&w, &f)) > 0)
		r = 0;
	if (r < 0 || fields_begin(&w, of->layout, of->columns, sample, bytes) < 0)
		return false;
	for (; fields_next(&w, &f) > 0; before = ", ") {
		fputs(before, stdout);
		if (json) {
			fputs("{\"name\": ", stdout);
			ctl_json_string(f.name, f.name_length);
			printf(", \"kind\": \"%s\", \"bytes\": %zu", field_kind_name(f.kind), f.bytes);
			if (f.encoding) {
				fputs(", \"encoding\": ", stdout);
				ctl_json_string(f.encoding, f.encoding_length);
			}
			putchar('}');
		} else {
			printf("%s (%s, %s)", text_printable(name, sizeof(name), f.name, f.name_length),
			       f.kind == FIELD_ENCODED
				   ? text_printable(encoding, sizeof(encoding), f.encoding, f.encoding_length)
				   : field_kind_name(f.kind),
			       units_format_bytes(size, sizeof(size), f.bytes));
		}
	}
	if (json)
		fputs(before[0] == '[' ? "[]" : "]", stdout);
	return true;
}

/* Reads the first sample. Returns NULL if there is none, or it cannot be read. */
static unsigned char *read_first(const struct dataset *d, uint32_t *ret_bytes)
{
	const struct snapshot *s = dataset_snapshot(d);
	struct snapshot_sample sample;
	unsigned char *data;

	if (snapshot_sample_get(s, 0, &sample) < 0 || !(data = malloc(sample.bytes ? sample.bytes : 1)))
		return NULL;
	if (sample_read(s, dataset_store(d), &sample, data, sample.bytes, NULL) < 0) {
		free(data);
		return NULL;
	}
	*ret_bytes = sample.bytes;
	return data;
}

/* Facts for stat that are not in the snapshot. */
struct dataset_facts {
	unsigned char *first; /* bytes of the first sample, if it has fields; or NULL */
	uint32_t first_bytes;
	uint64_t stored_bytes; /* size of the chunk files in use */
	uint64_t plain_bytes;  /* size of these chunks in memory: the same, unless some are compressed */
	bool knows_stored;
	bool has_meta;
	struct meta_info meta;
	struct error meta_error; /* reason for missing metadata */
	struct shape shape;
	bool is_frozen, knows_kept;
	uint64_t *kept; /* versions whose snapshots are kept */
	size_t n_kept;
};

static void facts_freep(const struct dataset_facts *f)
{
	free(f->first);
	free(f->kept);
}

/* Adds up the stored bytes of the chunks, since a snapshot lacks the stored size of compressed ones. Both
 * lists ascend. */
static bool add_stored(const struct snapshot *s, struct store *store, uint64_t *ret)
{
	_cleanup_(freep) struct store_object *objects = NULL;
	struct snapshot_chunk chunk;
	uint64_t bytes = 0;
	size_t n, at = 0;

	if (store_list(store, NULL, &objects, &n, NULL) < 0)
		return false;
	for (uint64_t i = 0; snapshot_chunk_get(s, i, &chunk) == 0; i++) {
		while (at < n && chunk_id_compare(&objects[at].id, &chunk.id) < 0)
			at++;
		if (at == n || chunk_id_compare(&objects[at].id, &chunk.id) != 0)
			return false;
		bytes += objects[at].bytes;
	}
	*ret = bytes;
	return true;
}

static void collect(const char *path, const struct dataset *d, bool is_old, struct dataset_facts *ret)
{
	const struct snapshot *s = dataset_snapshot(d);
	struct meta *meta = NULL;
	struct snapshot_chunk chunk;
	struct dataset_facts f = {.knows_stored = true};

	for (uint64_t i = 0; snapshot_chunk_get(s, i, &chunk) == 0; i++)
		f.plain_bytes += chunk.file_bytes;
	if (snapshot_info(s)->layout != CHUNK_LAYOUT_PLAIN)
		f.first = read_first(d, &f.first_bytes);
	f.stored_bytes = f.plain_bytes;
	if (snapshot_info(s)->is_compressed)
		f.knows_stored = add_stored(s, dataset_store(d), &f.stored_bytes);
	/* In a remote dataset, snapshot and metadata always have the same version. The metadata does not
	 * describe old versions. */
	if (is_old || backend_is_elsewhere(path)) {
		f.has_meta = true;
		f.meta = (struct meta_info){.version = snapshot_info(s)->version};
	} else if (meta_open(path, META_READ, &meta, &f.meta_error) == 0) {
		f.has_meta = meta_info(meta, &f.meta, &f.meta_error) == 0;
	}
	/* Metadata of a version other than the snapshot's does not describe these chunks. */
	shape_collect(s, f.has_meta && f.meta.version == snapshot_info(s)->version ? meta : NULL, &f.shape);
	meta_free(meta);
	if (!backend_is_elsewhere(path)) {
		_cleanup_(closep) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

		f.is_frozen = fd >= 0 && frozen_is(fd, ".");
		f.knows_kept = fd >= 0 && snapshot_retained_list(fd, &f.kept, &f.n_kept) == 0;
	}
	*ret = f;
}

static void print_kept(const struct dataset_facts *f)
{
	for (size_t i = 0; i < f->n_kept; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)f->kept[i]);
}

static void print_dataset_json(const char *path, const struct snapshot *s, const struct dataset_facts *f)
{
	const struct snapshot_info *info = snapshot_info(s);
	char stored[24] = "null";

	if (f->knows_stored)
		snprintf(stored, sizeof(stored), "%llu", (unsigned long long)f->stored_bytes);
	fputs("{\"schema\": \"diesel.stat/1\", \"dataset\": ", stdout);
	ctl_json_string(path, strlen(path));
	printf(", \"version\": %llu, \"samples\": %llu, \"bytes\": %llu, \"chunks\": %llu, \"stored_bytes\": "
	       "%s, "
	       "\"plain_bytes\": %llu, \"max_bytes\": %u, \"equal_bytes\": %u, \"max_chunk_bytes\": %llu, "
	       "\"created_ns\": %llu, \"digest\": %s, \"compressed\": %s, ",
	       (unsigned long long)info->version, (unsigned long long)info->n_samples,
	       (unsigned long long)info->total_bytes, (unsigned long long)info->n_chunks, stored,
	       (unsigned long long)f->plain_bytes, info->max_bytes, info->equal_bytes,
	       (unsigned long long)info->max_chunk_file_bytes, (unsigned long long)info->created_ns,
	       info->has_digests ? "\"" DIGEST_NAME "\"" : "null", info->is_compressed ? "true" : "false");
	printf("\"layout\": \"%s\", \"fields\": ", chunk_layout_name(info->layout));
	if (!f->first || !print_fields(info, f->first, f->first_bytes, true))
		fputs("null", stdout);
	printf(", \"frozen\": %s, ", f->is_frozen ? "true" : "false");
	if (f->has_meta)
		printf("\"meta_version\": %llu, \"pending\": %s, ", (unsigned long long)f->meta.version,
		       f->meta.has_pending ? "true" : "false");
	shape_print_json(&f->shape);
	if (f->knows_kept) {
		fputs("\"snapshots\": [", stdout);
		print_kept(f);
		fputs("], ", stdout);
	}
	fputs("\"classes\": [", stdout);
	for (uint32_t i = 0; i < info->n_classes; i++) {
		const char *name;
		size_t length;

		if (i)
			fputs(", ", stdout);
		if (snapshot_class_name(s, i, &name, &length) == 0)
			ctl_json_string(name, length);
	}
	puts("]}");
}

static void print_classes(const struct snapshot *s)
{
	uint32_t n = snapshot_info(s)->n_classes;

	printf("classes   %u", n);
	for (uint32_t i = 0; i < n && i < 10; i++) {
		const char *name;
		size_t length;
		char text[64];

		if (snapshot_class_name(s, i, &name, &length) == 0)
			printf("%s %s", i ? "," : ":", text_printable(text, sizeof(text), name, length));
	}
	puts(n > 10 ? ", ..." : "");
}

static void print_layout(const struct snapshot_info *info, const struct dataset_facts *f)
{
	if (info->layout == CHUNK_LAYOUT_PLAIN)
		return;
	printf("layout    %s\nfields    ", chunk_layout_name(info->layout));
	if (!f->first || !print_fields(info, f->first, f->first_bytes, false))
		fputs("the first sample cannot be read", stdout);
	else
		fputs(", of the first sample", stdout);
	putchar('\n');
}

static void print_metadata(const struct option_verb *verb, const char *path, const struct snapshot_info *info,
			   const struct dataset_facts *f)
{
	struct error text = ERROR_INIT;

	if (f->is_frozen)
		error_set(&text, 0,
			  "none, because the dataset is frozen; `dieselctl rebuild %s` makes metadata again",
			  path);
	else if (!f->has_meta)
		text = f->meta_error;
	else if (f->meta.version < info->version)
		error_set(&text, 0,
			  "version %llu, older than the snapshot: `dieselctl rebuild %s` makes both again",
			  (unsigned long long)f->meta.version, path);
	else if (f->meta.version != info->version)
		error_set(&text, 0,
			  "version %llu: run `dieselctl snapshot %s` to bring the snapshot up to date",
			  (unsigned long long)f->meta.version, path);
	if (text.text[0] == '\0')
		return;
	fputs("metadata  ", stdout);
	ctl_print_advice(stdout, verb, text.text);
	putchar('\n');
}

static void print_dataset(const struct option_verb *verb, const char *path, const struct snapshot *s,
			  const struct dataset_facts *f)
{
	const struct snapshot_info *info = snapshot_info(s);
	char bytes[24], stored[24], longest[24];

	fputs("dataset   ", stdout);
	ctl_print(stdout, path);
	printf("\nversion   %llu\n", (unsigned long long)info->version);
	printf("samples   %llu, %s", (unsigned long long)info->n_samples,
	       units_format_bytes(bytes, sizeof(bytes), info->total_bytes));
	if (info->equal_bytes)
		printf(", each of %u byte%s\n", info->equal_bytes, units_plural(info->equal_bytes));
	else
		printf(", the longest %s\n", units_format_bytes(longest, sizeof(longest), info->max_bytes));
	printf("chunks    %llu, %s on disk", (unsigned long long)info->n_chunks,
	       f->knows_stored ? units_format_bytes(stored, sizeof(stored), f->stored_bytes) : "? B");
	if (info->is_compressed) {
		printf(", compressed; %s in memory",
		       units_format_bytes(bytes, sizeof(bytes), f->plain_bytes));
		if (f->knows_stored)
			printf(" (%.2f times as much)", (double)f->plain_bytes / (double)f->stored_bytes);
	}
	putchar('\n');
	printf("digest    %s\n", info->has_digests ? DIGEST_NAME : "none");
	print_classes(s);
	print_layout(info, f);
	print_metadata(verb, path, info, f);
	if (f->has_meta && f->meta.has_pending)
		puts("pending   a pack is running or was interrupted; to continue it, run the same command "
		     "again");
	if (f->n_kept) {
		fputs("snapshots ", stdout);
		print_kept(f);
		puts(": jobs can open these versions");
	}
	shape_print(verb, &f->shape, info->version);
}

/* s NULL: the sample is from the metadata, which has no classes. */
static void print_sample(const struct snapshot *s, const struct chunk_id *chunk,
			 const struct snapshot_sample *sample, bool json)
{
	char id[CHUNK_ID_TEXT], text[400];
	const char *class_name = "";
	size_t class_length = 0;

	chunk_id_format(chunk, id);
	if (s && sample->class_index >= 0)
		snapshot_class_name(s, (uint32_t)sample->class_index, &class_name, &class_length);
	if (json) {
		fputs("{\"schema\": \"diesel.stat/1\", \"path\": ", stdout);
		ctl_json_string(sample->path, sample->path_length);
		printf(", \"bytes\": %u", sample->bytes);
		if (s)
			printf(", \"class\": %d", sample->class_index);
		printf(", \"mode\": %u, \"mtime_ns\": %llu, \"chunk\": \"%s\", \"record\": %u, \"offset\": "
		       "%llu, "
		       "\"xxh3\": \"%016llx\"",
		       sample->mode, (unsigned long long)sample->mtime_ns, id, sample->record,
		       (unsigned long long)sample->offset, (unsigned long long)sample->xxh3);
		return;
	}
	printf("path      %s\n", text_printable(text, sizeof(text), sample->path, sample->path_length));
	printf("bytes     %u\n", sample->bytes);
	if (sample->class_index >= 0)
		printf("class     %d (%s)\n", sample->class_index,
		       text_printable(text, sizeof(text), class_name, class_length));
	printf("mode      %04o\n", sample->mode & 07777);
	printf("chunk     %s, record %u, at byte %llu\n", id, sample->record,
	       (unsigned long long)sample->offset);
	printf("xxh3      %016llx\n", (unsigned long long)sample->xxh3);
}

static void print_sample_fields(const struct ctl_dataset *d, const char *path, bool json)
{
	_cleanup_(freep) unsigned char *data = NULL;
	uint32_t bytes = 0;
	bool read = ctl_dataset_read(d, path, &data, &bytes, NULL) == 0;

	fputs(json ? ", \"fields\": " : "fields    ", stdout);
	if (!read || !print_fields(snapshot_info(dataset_snapshot(d->dataset)), data, bytes, json))
		fputs(json ? "null" : "cannot be read", stdout);
	if (!json)
		putchar('\n');
}

static int stat_path(const struct option_verb *verb, const struct ctl_dataset *d, const char *path, bool json)
{
	struct ctl_sample one;
	struct error err = ERROR_INIT;

	if (ctl_dataset_find(d, path, &one, &err) < 0)
		return ctl_failed(verb, &err);
	print_sample(d->dataset ? dataset_snapshot(d->dataset) : NULL, &one.chunk, &one.sample, json);
	if (d->dataset && snapshot_info(dataset_snapshot(d->dataset))->layout != CHUNK_LAYOUT_PLAIN)
		print_sample_fields(d, path, json);
	if (json)
		puts("}");
	return ctl_finish(verb);
}

struct stat_options {
	bool json, from_meta;
	uint64_t version;
};

static int run(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(ctl_dataset_closep) struct ctl_dataset d = {0};
	struct error err = ERROR_INIT;
	_cleanup_(facts_freep) struct dataset_facts facts = {0};
	struct stat_options o = {0};
	int status, r;

	if (!ctl_options(verb, argc, argv, &o, &status))
		return status;
	if (argc - optind != 1 && argc - optind != 2)
		return ctl_usage(verb, "expected a dataset, and at most one path in it");
	if (o.from_meta && argc - optind != 2)
		return ctl_usage(verb, "--meta needs a path in the dataset");
	r = argc - optind == 2 ? ctl_dataset_open(argv[optind], o.version, o.from_meta, &d, &err)
			       : dataset_open_version(argv[optind], o.version, &d.dataset, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (argc - optind == 2)
		return stat_path(verb, &d, argv[optind + 1], o.json);
	collect(argv[optind], d.dataset, o.version != 0, &facts);
	if (o.json)
		print_dataset_json(argv[optind], dataset_snapshot(d.dataset), &facts);
	else
		print_dataset(verb, argv[optind], dataset_snapshot(d.dataset), &facts);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct stat_options, member)

static const struct option_row stat_rows[] = {
    {"json", option_set_flag, AT(json), .help = "as a JSON object"},
    CTL_ROW_VERSION(AT(version), .help = "version to describe (default: the newest)"),
    {"meta", option_set_flag, AT(from_meta), .help = "look up the path in the metadata, not in the snapshot"},
};

#undef AT

const struct option_verb ctl_stat = {
    .name = "stat",
    .arguments = "DATASET [PATH]",
    .summary = "Describe a dataset or one sample of it",
    .about =
	"Prints version, counts, sizes, digest and classes of a dataset, and the bytes of compressed chunks "
	"in storage and in memory. If samples have fields, it prints the layout, and name, kind and bytes of "
	"the "
	"first sample's fields. It also prints a histogram of the lengths of samples, and the versions "
	"whose snapshots are kept, which jobs can open. If the metadata is in the same folder, `stat` adds "
	"holes, chunks without any sample, and the versions that can be read. Holes are the bytes of deleted "
	"and replaced samples, which `dieselctl purge` would free. With a path, `stat` prints where that "
	"sample lies, and its fields.",
    OPTION_ROWS(stat_rows),
    .takes = OPTION_FILE,
    .run = run,
};
