/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

#include "ctl_wait.h"
#include "dataset/chunk.h"
#include "dataset/dataset.h"
#include "dataset/pack.h"
#include "dataset/backend.h"
#include "image/jpeg_restarts.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/text.h"
#include "lib/units.h"
#include "ctl/formats/ctl_python.h"
#include "ctl/packing/labels.h"
#include "ctl/packing/pack_tar.h"

#define DEFAULT_THREADS 8
#define MAX_THREADS     64
/* Minimum number of tries in a bucket. A try fails if another writer has published meanwhile. */
#define MIN_TRIES 16
/* Minimum number of files from which labels that nearly all differ are taken for texts. */
#define MIN_TEXTS 32

struct pack_context {
	const struct option_verb *verb;
	struct progress bar;
	bool json;
	bool is_tar, orders; /* is_tar: the source is an archive; orders: --order was given */
	bool adds_restarts;  /* --jpeg-restarts */
	struct pack_options options;
	struct ctl_wait wait;
	struct survey survey;
	struct labels_options label_options; /* --labels */
	struct labels *labels;
	/* --jpeg-restarts */
	uint64_t n_files[JPEG_RESTARTS_KEPT + 1]; /* indexed by enum jpeg_restarts */
	uint64_t bytes_before, bytes_after;       /* bytes of the files that got markers */
};

static void show_progress(const char *what, uint64_t done, uint64_t total, uint64_t bytes, void *context)
{
	struct pack_context *c = context;

	progress_show(what, done, total, bytes, &c->bar);
}

static void show_skipped(const char *text, void *context)
{
	struct pack_context *c = context;

	progress_hide(&c->bar);
	ctl_warn(c->verb, text);
}

/* A file that would exceed the maximum sample size stays unchanged. */
int ctl_add_restarts(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_note)
{
	_cleanup_(freep) void *made = NULL;
	size_t made_bytes = 0;
	int r = jpeg_restarts_add(data, bytes, &made, &made_bytes, ret_note);

	if (made_bytes > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(ret_note, JPEG_RESTARTS_KEPT, "the file would have more than 1 GiB");
	if (made) {
		*ret = steal_pointer(made);
		*ret_bytes = made_bytes;
	}
	return r;
}

static void count_restarts(const struct pack_rewritten *file, void *context)
{
	struct pack_context *c = context;
	struct error text = ERROR_INIT;

	c->n_files[file->result]++;
	if (file->result == JPEG_RESTARTS_ADDED) {
		c->bytes_before += file->source_bytes;
		c->bytes_after += file->bytes;
	} else if (file->result == JPEG_RESTARTS_KEPT) {
		error_set(&text, 0, "%s is packed unchanged, without restart markers: %s", file->path,
			  file->note->text);
		show_skipped(text.text, c);
	}
}

/* Returns false for a pipe to a bucket: there a commit fails only at the end if another writer was first, and
 * data from a pipe is then gone. */
static bool can_try_again(const struct pack_options *o)
{
	return strcmp(o->source, "-") != 0 || !backend_is_elsewhere(o->dataset);
}

/* Packs until the result is published. Each try starts with new counts, because the counts of a try that lost
 * to another writer are void. */
static int pack_until_published(const struct pack_options *o, struct pack_context *c, struct pack_result *ret,
				struct error *err)
{
	int r;

	do {
		memset(c->n_files, 0, sizeof(c->n_files));
		c->bytes_before = c->bytes_after = 0;
		r = c->is_tar ? pack_tar(o, ret, err) : pack_run(o, ret, err);
		progress_end(&c->bar);
	} while (can_try_again(o) && ctl_wait_again(&c->wait, r));
	return r;
}

static int set_order(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct pack_context *c = options;

	_Static_assert(PACK_ORDER_RANDOM == 0 && PACK_ORDER_SOURCE == 1, "in the order of the words");
	c->orders = true;
	return option_set_choice(options, row, value, err);
}

static void print_summary(const struct pack_result *result, const struct survey *s, uint64_t elapsed_ns,
			  bool met_others)
{
	double elapsed_s = (double)elapsed_ns / NS_PER_S;
	char bytes[24];

	printf("packed %llu file%s, %s, into %llu chunk%s in %.1f s: %.1f MB/s, %.0f files/s",
	       (unsigned long long)result->n_files, units_plural(result->n_files),
	       units_format_bytes(bytes, sizeof(bytes), result->bytes), (unsigned long long)result->n_chunks,
	       units_plural(result->n_chunks), elapsed_s, (double)result->bytes / 1e6 / elapsed_s,
	       (double)result->n_files / elapsed_s);
	if (result->n_resumed)
		printf("; %llu were packed before %s", (unsigned long long)result->n_resumed,
		       met_others ? "another writer published" : "an interruption");
	if (result->n_unchanged)
		printf("; %llu unchanged", (unsigned long long)result->n_unchanged);
	if (result->n_skipped)
		printf("; %llu unreadable left out", (unsigned long long)result->n_skipped);
	if (result->n_other)
		printf("; %llu skipped (not regular files)", (unsigned long long)result->n_other);
	if (s->hidden.n)
		printf("; %zu hidden left out", s->hidden.n);
	if (s->n_left)
		printf("; %llu file%s left out (not images in a class folder)", (unsigned long long)s->n_left,
		       units_plural(s->n_left));
	if (s->n_datasets)
		printf("; left out %s: a dataset", s->dataset);
	if (s->n_datasets > 1)
		printf(", and %llu others", (unsigned long long)s->n_datasets - 1);
	printf("; dataset version %llu\n", (unsigned long long)result->version);
}

/* Warns about an archive whose files are surely the fields of samples. Returns false if it is none. */
static bool tell_shard(const struct pack_context *c, const struct pack_result *result)
{
	uint64_t n_files = c->survey.n_images + c->survey.n_others;
	const char *ending = strrchr(c->options.source, '.');
	struct error text = ERROR_INIT;

	if (result->n_alike == 0 || c->survey.as_files || 3 * result->n_alike < n_files)
		return false;
	error_set(
	    &text, 0,
	    "each file is a sample of its own, but %llu of %llu have the name of the file before up to "
	    "the first dot, as in a shard of WebDataset. For samples with fields, use dieselctl index %s "
	    "--output DATASET",
	    (unsigned long long)result->n_alike, (unsigned long long)n_files,
	    ending && strcmp(ending, ".tar") == 0 ? c->options.source : "FILE.tar");
	ctl_warn(c->verb, text.text);
	return true;
}

/* Warns about labels that are surely texts, such as captions, or values. */
static void tell_texts(const struct pack_context *c)
{
	const struct survey *s = &c->survey;
	uint64_t n_files = s->n_images + s->n_others;
	const char *table = c->label_options.table, *ending = c->labels ? strrchr(table, '.') : NULL;
	struct error text = ERROR_INIT;

	if (!ending || n_files < MIN_TEXTS || 10 * s->classes.n < 9 * n_files)
		return;
	error_set(
	    &text, 0,
	    "%zu classes for %llu files: labels of %s that nearly all differ are surely no classes. To "
	    "make the columns fields of each sample, use dieselctl pack %s%s DATASET",
	    s->classes.n, (unsigned long long)n_files, table,
	    strstr(ending, "json") ? "jsonl:" : "csv:", strcmp(ending, ".tsv") == 0 ? "FILE.csv" : table);
	ctl_warn(c->verb, text.text);
}

/* Warns about packed samples that ImageFolder would not accept, if the dataset has images. Without the
 * warning, jobs would report an error at best. */
static void tell_taken(const struct pack_context *c)
{
	const struct survey *s = &c->survey;
	struct error text = ERROR_INIT;
	char others[160] = "", outside[160] = "";

	if (s->n_images == 0 || (s->n_others == 0 && (s->n_outside == 0 || s->classes.n == 0)))
		return;
	if (s->n_others)
		snprintf(others, sizeof(others), "%llu file%s that %s by %s, such as %s",
			 (unsigned long long)s->n_others, units_plural(s->n_others),
			 s->n_others == 1 ? "is not an image" : "are not images",
			 s->n_others == 1 ? "its name" : "their names", s->other);
	if (s->n_outside && s->classes.n)
		snprintf(outside, sizeof(outside), "%llu image%s in no class folder (label -1), such as %s",
			 (unsigned long long)s->n_outside, units_plural(s->n_outside), s->outside);
	error_set(&text, 0,
		  "the dataset also has %s%s%s; to pack only what ImageFolder accepts, use --images", others,
		  *others && *outside ? ", and " : "", outside);
	ctl_warn(c->verb, text.text);
}

static void print_json(const struct pack_result *result, uint64_t elapsed_ns, bool rewrote,
		       const struct pack_context *c)
{
	printf("{\"schema\": \"diesel.pack/1\", \"version\": %llu, \"files\": %llu, \"bytes\": %llu, "
	       "\"chunks\": "
	       "%llu, \"seconds\": %.3f, \"resumed\": %llu, \"unchanged\": %llu, \"unreadable\": %llu, "
	       "\"not_regular\": %llu, \"hidden\": %zu, \"not_images\": %llu, \"datasets\": %llu",
	       (unsigned long long)result->version, (unsigned long long)result->n_files,
	       (unsigned long long)result->bytes, (unsigned long long)result->n_chunks,
	       (double)elapsed_ns / NS_PER_S, (unsigned long long)result->n_resumed,
	       (unsigned long long)result->n_unchanged, (unsigned long long)result->n_skipped,
	       (unsigned long long)result->n_other, c->survey.hidden.n, (unsigned long long)c->survey.n_left,
	       (unsigned long long)c->survey.n_datasets);
	if (c->labels)
		printf(", \"unlabelled\": %llu, \"rows_without_file\": %llu",
		       (unsigned long long)c->survey.n_unlabelled,
		       (unsigned long long)labels_n_missing(c->labels));
	if (rewrote)
		printf(", \"jpeg_restarts\": {\"added\": %llu, \"there\": %llu, \"kept\": %llu, \"other\": "
		       "%llu, "
		       "\"bytes_before\": %llu, \"bytes_after\": %llu}",
		       (unsigned long long)c->n_files[JPEG_RESTARTS_ADDED],
		       (unsigned long long)c->n_files[JPEG_RESTARTS_THERE],
		       (unsigned long long)c->n_files[JPEG_RESTARTS_KEPT],
		       (unsigned long long)c->n_files[JPEG_RESTARTS_OTHER],
		       (unsigned long long)c->bytes_before, (unsigned long long)c->bytes_after);
	puts("}");
}

static void print_restarts(const struct pack_context *c)
{
	uint64_t n = c->n_files[JPEG_RESTARTS_ADDED];
	char before[24], after[24];

	printf("restart markers: added to %llu JPEG file%s", (unsigned long long)n, units_plural(n));
	if (n)
		printf(", %s before and %s now (%+.2f %%)",
		       units_format_bytes(before, sizeof(before), c->bytes_before),
		       units_format_bytes(after, sizeof(after), c->bytes_after),
		       100 * ((double)c->bytes_after / (double)c->bytes_before - 1));
	printf("; %llu had them, %llu packed unchanged, %llu other files\n",
	       (unsigned long long)c->n_files[JPEG_RESTARTS_THERE],
	       (unsigned long long)c->n_files[JPEG_RESTARTS_KEPT],
	       (unsigned long long)c->n_files[JPEG_RESTARTS_OTHER]);
}

static void context_end(struct pack_context *c)
{
	labels_free(c->labels);
	path_set_free(&c->survey.known);
	survey_free(&c->survey);
}

static void dataset_closep(struct dataset **d)
{
	dataset_close(*d);
}

/* Adds the classes of classes_of; example: one of the new classes; longest: raised to the length of the
 * longest. */
static int add_classes(const struct survey *s, struct path_set *to, char *example, size_t size,
		       size_t *longest, struct error *err)
{
	_cleanup_(dataset_closep) struct dataset *d = NULL;
	int r = dataset_open_version(s->classes_of, 0, &d, err);

	for (uint32_t i = 0; r >= 0 && i < snapshot_info(dataset_snapshot(d))->n_classes; i++) {
		const char *name;
		size_t length;

		if (snapshot_class_name(dataset_snapshot(d), i, &name, &length) < 0)
			continue;
		r = path_set_add(to, name, length);
		if (r < 0)
			return error_errno(err, r, "%s", s->classes_of);
		if (longest && length > *longest)
			*longest = length;
		if (r > 0 && example && !*example)
			text_printable(example, size, name, length);
	}
	return r < 0 ? r : 0;
}

/* Labels come from the dataset itself, whose classes are the folders with samples. */
static void tell_missing(struct pack_context *c)
{
	struct survey *s = &c->survey;
	char missing[100];
	struct error text = ERROR_INIT;

	snprintf(missing, sizeof(missing), "%s", s->empty);
	if (!s->classes_of || add_classes(s, &s->classes, missing, sizeof(missing), NULL, NULL) < 0 ||
	    !*missing)
		return;
	error_set(&text, 0,
		  "class %s of %s has no samples here: to keep the labels of that dataset, jobs need "
		  "Dataset(...).with_classes(Dataset(\"%s\").classes)",
		  missing, s->classes_of, s->classes_of);
	ctl_warn(c->verb, text.text);
}

/* Numbers must be written as those of the samples that are there. A dataset that cannot be opened is reported
 * by the writer. */
static void take_digits(struct labels_options *l, const char *path)
{
	_cleanup_(dataset_closep) struct dataset *d = NULL;
	const char *name;
	size_t length, n;

	if (dataset_open_version(path, 0, &d, NULL) < 0)
		return;
	for (uint32_t i = 0; i < snapshot_info(dataset_snapshot(d))->n_classes; i++) {
		if (snapshot_class_name(dataset_snapshot(d), i, &name, &length) < 0)
			continue;
		for (n = 0; n < length && name[n] >= '0' && name[n] <= '9'; n++)
			continue;
		/* Folders may have numbers of several lengths. */
		if (n < length || (l->digits_of && n >= l->digits))
			continue;
		l->digits_of = path;
		l->digits = n;
	}
}

static int read_labels(struct pack_context *c, struct error *err)
{
	if (c->options.append)
		take_digits(&c->label_options, c->options.dataset);
	c->label_options.source = c->options.source;
	c->label_options.skips_missing = c->options.skip_unreadable;
	c->label_options.can_skip = !c->is_tar;
	int r = labels_read(&c->label_options, &c->labels, err);

	if (r == 0)
		c->survey.labels = labels_for_survey(c->labels);
	return r;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int check_numbers(const char *path, const uint64_t *numbers, size_t n, struct error *err)
{
	for (size_t i = 1; i < n; i++)
		if (numbers[i] == numbers[i - 1])
			return error_set(
			    err, -EEXIST,
			    "the label %llu is two classes of %s, which differ in zeros in front: folders, "
			    "or a "
			    "table packed at the same time, had numbers of another length. Pack all files "
			    "into a new dataset, with one table",
			    (unsigned long long)numbers[i], path);
	return 0;
}

/* Returns 0 if the classes of the dataset, which may have had some before, are 0, 1, 2 and so on; else 1.
 * -EEXIST: two of them are one number. */
static int compare_classes(const char *path, struct error *err)
{
	_cleanup_(dataset_closep) struct dataset *d = NULL;
	_cleanup_(freep) uint64_t *numbers = NULL;
	const char *name;
	size_t length, n = 0;
	bool differ = false;
	int r = dataset_open_version(path, 0, &d, err);

	if (r < 0)
		return r;
	uint32_t n_classes = snapshot_info(dataset_snapshot(d))->n_classes;

	numbers = calloc(n_classes ? n_classes : 1, sizeof(*numbers));
	if (!numbers)
		return error_errno(err, -ENOMEM, "%s", path);
	for (uint32_t i = 0; i < n_classes; i++) {
		char text[24] = "";

		if (snapshot_class_name(dataset_snapshot(d), i, &name, &length) == 0 && length < sizeof(text))
			memcpy(text, name, length);
		if (*text && !text[strspn(text, "0123456789")])
			numbers[n++] = strtoull(text, NULL, 10);
		differ |= n != i + 1 || numbers[i] != i;
	}
	qsort(numbers, n, sizeof(*numbers), compare_numbers);
	r = check_numbers(path, numbers, n, err);
	return r < 0 ? r : differ;
}

static void tell_labels(const struct pack_context *c)
{
	const struct survey *s = &c->survey;
	struct error text = ERROR_INIT;
	int r;

	if (s->n_unlabelled) {
		error_set(&text, 0, "%llu file%s left out, because %s has no row for %s, such as %s",
			  (unsigned long long)s->n_unlabelled, units_plural(s->n_unlabelled),
			  c->label_options.table, s->n_unlabelled == 1 ? "it" : "them", s->unlabelled);
		ctl_warn(c->verb, text.text);
	}
	if (c->labels && labels_n_missing(c->labels)) {
		error_set(&text, 0, "%llu row%s of %s without a file left out",
			  (unsigned long long)labels_n_missing(c->labels),
			  units_plural(labels_n_missing(c->labels)), c->label_options.table);
		ctl_warn(c->verb, text.text);
	}
	if (!c->labels || !labels_are_numbers(c->labels))
		return;
	r = compare_classes(c->options.dataset, &text);
	if (r < 0) {
		error_prefix(
		    &text, "the dataset is complete, but its classes could not be compared with the labels");
		ctl_warn(c->verb, text.text);
	} else if (r > 0 && !s->classes_of) {
		error_set(&text, 0,
			  "the classes of %s are not 0, 1, 2 and so on, so class numbers differ from the "
			  "labels: the class of number k is Dataset(...).classes[k]",
			  c->options.dataset);
		ctl_warn(c->verb, text.text);
	}
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(context_end) struct pack_context context = {.verb = verb,
							      .wait = {.verb = verb, .n_least = MIN_TRIES},
							      .options = {.chunk_bytes = CHUNK_DEFAULT_BYTES,
									  .n_threads = DEFAULT_THREADS,
									  .progress = show_progress,
									  .skipped = show_skipped,
									  .cancelled = ctl_is_stopped,
									  .command = ctl_command()}};
	struct pack_options *o = &context.options;
	struct pack_result result;
	struct error err = ERROR_INIT;
	int status;

	if (ctl_is_foreign(argc, argv))
		return ctl_python(verb, "importing.main", argv);
	if (!ctl_options(verb, argc, argv, &context, &status))
		return status;
	if (argc - optind != 2)
		return ctl_usage(verb, "expected a source and a dataset");
	if (context.survey.images_only && context.survey.as_files)
		return ctl_usage(verb, "--images and --as-files cannot be combined: give only one of them");
	o->append |= o->shared;
	o->source = argv[optind];
	o->dataset = context.wait.dataset = argv[optind + 1];
	o->context = &context;
	o->survey = &context.survey;
	if (context.adds_restarts) {
		o->rewrite = ctl_add_restarts;
		o->rewritten = count_restarts;
	}
	context.is_tar = pack_is_tar(o->source);
	if (context.is_tar && o->skip_unreadable)
		return ctl_usage(verb, "--skip-unreadable applies only to files of a folder: an archive is "
				       "packed completely or not at all");
	if (context.is_tar && context.orders && o->order == PACK_ORDER_RANDOM)
		return ctl_usage(verb, "--order random applies only to files of a folder: an archive is "
				       "packed in its own order");
	if (context.survey.classes_of && add_classes(&context.survey, &context.survey.known, NULL, 0,
						     &context.label_options.digits, &err) < 0)
		return ctl_failed(verb, &err);
	if (context.label_options.table
		? read_labels(&context, &err) < 0
		: context.label_options.label_column || context.label_options.path_column)
		return err.code ? ctl_failed(verb, &err)
				: ctl_usage(verb, "--label and --path need --labels");
	ctl_wait_begin(&context.wait);
	ctl_stop_on_signals();

	uint64_t start_ns = clock_monotonic_ns();
	int r = pack_until_published(o, &context, &result, &err);

	if (r < 0)
		return ctl_failed(verb, &err);
	if (!tell_shard(&context, &result))
		tell_taken(&context);
	tell_texts(&context);
	tell_labels(&context);
	tell_missing(&context);
	if (context.json) {
		print_json(&result, clock_monotonic_ns() - start_ns, o->rewrite, &context);
	} else {
		print_summary(&result, &context.survey, clock_monotonic_ns() - start_ns,
			      context.wait.n_tries > 0);
		if (o->rewrite)
			print_restarts(&context);
	}
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct pack_context, member)

static const struct option_row pack_rows[] = {
    {"chunk-size", option_set_bytes, .letter = 'c', AT(options.chunk_bytes), .least = CHUNK_MIN_BYTES,
     .most = CHUNK_MAX_BYTES, .value = "SIZE", .usual = "8M", .says = "must be a size from 4M to 64M",
     .help = "4M to 64M",
     .about = "size of a chunk, 4M to 64M (default 8M). A larger file gets a chunk of its own; a file can "
	      "have at most 1 GiB."},
    {"order", set_order, .letter = 'o', AT(options.order), .says = "must be random or source",
     .words = "random|source", .value = "ORDER", .usual = "random",
     .help = "order of the files: random makes each chunk a fair sample, source keeps folders together",
     .about = "`random` (default) puts the files into chunks in an order drawn from the seed, so that each "
	      "chunk is a fair sample of the dataset, and shuffling by chunks loses nothing when folders are "
	      "classes. `source` keeps folders together."},
    {"seed", option_set_u64, .letter = 's', AT(options.seed), .says = "must be a whole number from 0",
     .value = "N", .usual = "0", .help = "seed of the random order"},
    {"jobs", option_set_u32, .letter = 'j', AT(options.n_threads), .least = 1, .most = MAX_THREADS,
     .says = "must be a number from 1 to 64", .value = "N", .usual = "8",
     .help = "number of files to read at the same time"},
    {"append", option_set_flag, AT(options.append),
     .help = "add to a dataset: replace changed files, and leave out unchanged ones",
     .about =
	 "Adds to a dataset that has samples already. `pack` leaves out a file whose path is there with the "
	 "same size and modification time. A changed file replaces the older one. Nothing is deleted."},
    {"shared", option_set_flag, AT(options.shared),
     .help = "add to a dataset while others do the same; packs all files of SOURCE",
     .about =
	 "Adds to a dataset in a folder, as `--append`, while other processes do the same, on this or other "
	 "nodes. Only commits wait for each other, and each makes a version. All files of SOURCE are packed, "
	 "also those that the dataset has: give each process its own part. If several pack one path, the "
	 "last commit counts. A killed run cannot be continued. A bucket needs no such option."},
    {"skip-unreadable", option_set_flag, AT(options.skip_unreadable),
     .help = "leave out files that cannot be read, and print a line for each"},
    {"images", option_set_flag, AT(survey.images_only),
     .help = "pack only files that torchvision's ImageFolder accepts: images in class folders",
     .about =
	 "Packs only files that torchvision's ImageFolder accepts: those in class folders whose names end "
	 "in .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp."},
    {"drop-empty", option_set_flag, AT(survey.drop_empty),
     .help = "leave out class folders without samples, and number only the others"},
    {"classes-of", option_set_string, AT(survey.classes_of), .value = "DATASET", .takes = OPTION_FILE,
     .help = "refuse classes that are not in DATASET; accept empty folders for its classes",
     .about =
	 "For one split of a dataset whose other split, DATASET, has all classes. `pack` refuses a class "
	 "folder that is not a class of "
	 "DATASET. It accepts one of DATASET's classes without samples, and prints which class has none. "
	 "Labels follow from the folders that have samples, so jobs number them by `with_classes()`."},
    {"labels", option_set_string, AT(label_options.table), .value = "FILE", .takes = OPTION_FILE,
     .help = "take classes from a table, .csv, .tsv or .jsonl, instead of folders",
     .about =
	 "Takes the classes from a table, which is CSV or TSV with a first line of column names, or JSON "
	 "lines (.jsonl). A row names a file below SOURCE, with or without its ending, and its label, which "
	 "is a name or a whole number. A sample's path is CLASS/FILE. Whole numbers get zeros in front, so "
	 "that classes are numbered in their order; with --append, as many as the classes there. Files "
	 "without a row are left out, with a line. A row "
	 "without a file is an error, unless --skip-unreadable is given."},
    {"label", option_set_string, AT(label_options.label_column), .value = "COLUMN",
     .help = "column of the labels (default: label, or the only other one)"},
    {"path", option_set_string, AT(label_options.path_column), .value = "COLUMN",
     .help = "column of the files (default: file_name, or the first one)"},
    {"as-files", option_set_flag, AT(survey.as_files),
     .help = "pack every file unchanged: hidden ones, archives, files of databases",
     .about = "Packs every file unchanged: hidden ones, archives, files of databases and of datasets. `pack` "
	      "still leaves out the dataset that it writes."},
    CTL_ROW_ZSTD(AT(options.level),
		 .about =
		     "Compresses chunks, in blocks, with level 1 (fast) to 19 (small), where that saves a "
		     "sixteenth of a block or more. Text, tokens and raw arrays get smaller. Pictures do "
		     "not, and stay uncompressed.\n"
		     "Jobs, mounts and all other verbs get the samples as they were packed, from fewer bytes "
		     "of storage. In memory and on a staging disk samples are uncompressed. The option holds "
		     "for one `pack`: `--append` without it adds uncompressed chunks, and a dataset may have "
		     "both. `purge` compresses the chunks that it writes again as they were. Programs that "
		     "are older than this option refuse such a dataset, and ask for an update."),
    CTL_ROW_DIGEST(
	AT(options.keep_digests), .help = "keep a SHA-256 of each chunk, for datasets that users share",
	.about = "Keeps a SHA-256 of each chunk, for a dataset that users share. The checksums that every "
		 "dataset has protect against accidents, not against people who may write chunks. "
		 "`dieseld`(8) checks each chunk that it reads, at about 1.8 GB/s per core. All later "
		 "changes of the dataset keep digests. Older programs without support for digests refuse the "
		 "dataset. `rebuild` adds digests to chunks that exist already."),
    CTL_ROW_META(
	AT(options.meta_url),
	.help = "keep the metadata on a Redis server or cluster: redis://HOST[:PORT]/PREFIX",
	.about = "Keeps the metadata on a Redis server instead of in meta.db, for a dataset that is changed "
		 "from many machines. The server may be a node of a Redis Cluster, which then has the "
		 "metadata. All keys begin with the prefix, which belongs to one dataset. The dataset's "
		 "folder has a file meta.redis with the address, so no other command needs the option.\n"
		 "No password is in that file. If the server needs one, set `DIESEL_REDIS` to "
		 "redis://USER:PASSWORD@HOST:PORT, or `DIESEL_REDIS_FILE` to a file that holds this line. "
		 "`dieselctl` sends the password only to that host and port, in the way that this URL names, "
		 "and to the nodes of its cluster. `rediss` speaks TLS. It accepts certificates for the host "
		 "of the URL or, for a cluster's node, for the node's name or address.\n"
		 "Jobs read a dataset, and `dieseld` serves it, from its snapshot, without the server. Slots "
		 "of a cluster may move, and masters may fail over to their replicas, while a command runs: "
		 "the command goes on. Where a server has replicas, a write counts once one of them has it. "
		 "`pack` refuses a server that evicts keys when its memory is full: set `maxmemory-policy "
		 "noeviction`. The server should log each write (`appendonly yes`). Commands notice lost "
		 "keys, and `rebuild` makes them again."),
    CTL_ROW_KEEP_SNAPSHOTS(
	AT(options.keep_snapshots),
	.about = "Number of newest versions whose snapshots are kept; default 4. Jobs can open these "
		 "(`version=` of `diesel_loader`(3)), and go on with them after a restart. A snapshot takes "
		 "about 40 bytes per sample, and the length of its path. Each command that makes a version "
		 "(`rm`, `purge` and `rebuild` too) keeps as many as its own option states: give all of them "
		 "the same number. `purge` keeps no snapshot of a version that cannot be read afterwards."),
    CTL_ROW_WAIT(
	AT(wait.ns),
	.about =
	    "Time to wait, such as 60 or `5m`, while another writer holds the dataset, in a folder "
	    "or with its metadata on a Redis server. One line names the writer, and its process where "
	    "that is known. Default 0: the command fails.\n"
	    "A writer may give no sign of life for 60 seconds (`DIESEL_WRITER_LEASE`), because its "
	    "process is suspended or its node hangs. The command then goes on without it, unless that "
	    "writer was about to publish. The other writer can publish nothing any more, and reports so "
	    "when it wakes up.\n"
	    "In a bucket nobody holds a dataset. If another writer publishes before `pack` does, `pack` "
	    "prints a line and continues from that version. It uses the chunks that it has packed where "
	    "they are newer than the other's last chunk, and packs the rest again. If both wrote the same "
	    "path, the bytes of this `pack` count. All other changes of that writer stay. `pack` does so "
	    "up to 16 times, and longer with `--wait`. `rm`, `purge` and `rebuild` take `--wait` too. In a "
	    "bucket they start again, up to that time, if another writer was first."),
    {"json", option_set_flag, AT(json), .help = "print the result as a JSON object"},
    {"jpeg-restarts", option_set_flag, AT(adds_restarts),
     .help = "add restart markers to JPEG files, losslessly, so that a crop needs less decoding",
     .about = "Writes JPEG files again with restart markers, one every few blocks, mostly every 32 columns. "
	      "A job that takes a crop of an image, as `diesel_loader`(3) does for torchvision's transforms, "
	      "then skips the blocks outside the crop instead of decoding them.\n"
	      "Nothing is lost. Coefficients, quantisation tables and sampling stay, which `pack` checks for "
	      "each file. EXIF data, colour profiles, comments and bytes behind the image stay too. Every "
	      "decoder gives the same pixels.\n"
	      "With markers, libjpeg-turbo decodes each block a little more slowly. So a job that takes all "
	      "of each image loses a few percent, unless the files were progressive. Progressive files "
	      "become sequential ones, because only these can have such markers; they take less time to "
	      "decode. The last line prints by how much the files grew or, since `pack` makes Huffman codes "
	      "for each image, shrank.\n"
	      "Files that already have markers at least as often stay unchanged, and so do files that are "
	      "not JPEG. JPEG "
	      "files that are damaged, or of a kind that cannot be kept complete, stay unchanged with a line "
	      "for each: several images in one file, or more than 64 million pixels.\n"
	      "The bytes of a sample then differ from those of the file. With `--append` a file counts as "
	      "unchanged by its own size and time. Samples that the dataset has already stay as they were "
	      "packed, with or without markers."},
};

#undef AT

const struct option_verb ctl_pack = {
    .name = "pack",
    .group = "Datasets",
    .arguments = "SOURCE DATASET",
    .summary = "Pack a folder of files, or a tar archive, into a dataset",
    .help = "SOURCE is a folder, a tar archive (also .gz or .zst), or - for an archive on standard input:\n"
	    "tar cf - -C DIR . | dieselctl pack - DATASET. pack follows links in a folder. The dataset "
	    "changes at\n"
	    "the end or not at all. After an interruption, the same command continues.\n",
    .about = "Packs all regular files below SOURCE, or those of a tar archive. Its top-level folders become "
	     "classes, numbered in the order of their names, as torchvision's ImageFolder does. `pack` "
	     "follows symbolic links; a dangling one, and one that leads to a folder above it, is an error. "
	     "`pack` leaves out FIFOs, sockets and devices, and counts them.\n"
	     "`pack` also leaves out hidden files and folders (.DS_Store, .ipynb_checkpoints), others that "
	     "file managers leave (Thumbs.db, __MACOSX), and datasets within the source. The last line "
	     "counts them. It refuses a source whose files are not samples: LMDB, archives, Parquet, "
	     "Arrow, TFRecord and HDF5 files, shards of other loaders. It also refuses a class folder "
	     "without samples, because the classes behind it would have other numbers without it. Among "
	     "images, it takes files that are not images, and images in no class folder, and prints a line.\n"
	     "The dataset changes at the end or not at all. When a run is interrupted (a signal, a full "
	     "disk, a power cut), the same command continues where it stopped. It uses the chunks whose "
	     "files have not changed since.\n"
	     "A SOURCE that is not a folder is a tar archive, uncompressed or compressed by gzip or zstd; "
	     "`-` is an archive on standard input:\n"
	     "`tar cf - -C photos . | dieselctl pack - photos.diesel`\n"
	     "`pack` takes its files in the archive's order, one in memory at a time. The archive may have "
	     "only files and folders. A link, device or FIFO is an error that names the path. So is a path "
	     "that is absolute, leads outside, or is there twice, and an archive that is damaged or cut off. "
	     "Then `pack` publishes nothing, and removes the chunks that it wrote. After an interruption, "
	     "`pack` of the same archive continues. It does not write samples again that are in chunks "
	     "already, byte by byte. `tar --dereference --hard-dereference` makes archives without links.\n"
	     "Jobs shuffle within windows of some chunks. If neighbours in an archive are alike, folder by "
	     "folder, extract it and pack the folder, as `--order random` does.\n"
	     "Python reads datasets of other libraries: `hf:FOLDER`, `parquet:PATH`, `mds:FOLDER`, "
	     "`litdata:FOLDER`, `tfrecord:FILES` and `arrayrecord:FILES`. It also reads tables that name "
	     "files: `csv:FILE` and `jsonl:FILE`. The Python is that of `DIESEL_PYTHON`, else the `python3` "
	     "next to `dieselctl`, else the one in PATH. It needs the package `diesel_loader` and the "
	     "library's own. `dieselctl pack --help hf:` lists the options.",
    OPTION_ROWS(pack_rows),
    .takes = OPTION_FILE,
    .run = run,
};
