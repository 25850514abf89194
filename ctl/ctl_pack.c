/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ctl_rewrite.h"
#include "ctl/waiting/ctl_wait.h"
#include "dataset/chunk.h"
#include "dataset/compress.h"
#include "dataset/dataset.h"
#include "dataset/digest.h"
#include "dataset/meta.h"
#include "dataset/pack.h"
#include "dataset/place.h"
#include "image/jpeg_restarts.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/text.h"
#include "lib/units.h"
#include "ctl/packing/pack_tar.h"

#define DEFAULT_THREADS 8
#define MAX_THREADS     64
/* In a bucket. Each one that fails is one that another writer has published. */
#define MIN_TRIES 16

struct pack_context {
	const struct ctl_verb *verb;
	struct progress bar;
	bool json;
	bool is_tar, orders; /* the source is an archive; --order is there */
	struct ctl_wait wait;
	struct survey survey;
	/* --jpeg-restarts */
	uint64_t n_files[JPEG_RESTARTS_KEPT + 1]; /* by enum jpeg_restarts */
	uint64_t bytes_before, bytes_after;       /* of those that got markers */
};

/* Set by the handler: the signal that asks to stop. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
	stop_signal = number;
}

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

static void count_restarts(const struct pack_rewritten *file, void *context)
{
	struct pack_context *c = context;
	struct error text = ERROR_INIT;

	c->n_files[file->result]++;
	if (file->result == JPEG_RESTARTS_ADDED) {
		c->bytes_before += file->source_bytes;
		c->bytes_after += file->bytes;
	} else if (file->result == JPEG_RESTARTS_KEPT) {
		error_set(&text, 0, "%s is packed as it is, without restart markers: %s", file->path,
			  file->note->text);
		show_skipped(text.text, c);
	}
}

/* In a bucket, it shows at the end that another writer was first: what came through a pipe is gone by then.
 */
static bool can_try_again(const struct pack_options *o)
{
	return strcmp(o->source, "-") != 0 || !place_is_elsewhere(o->dataset);
}

/* What was counted counts for nothing when another writer was first. */
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

static bool is_cancelled(void *context)
{
	(void)context;
	return stop_signal != 0;
}

static const char short_options[] = ":ho:c:s:j:";

static const struct option long_options[] = {
    {"chunk-size", required_argument, NULL, 'c'},
    {"order", required_argument, NULL, 'o'},
    {"seed", required_argument, NULL, 's'},
    {"jobs", required_argument, NULL, 'j'},
    {"append", no_argument, NULL, 'a'},
    {"skip-unreadable", no_argument, NULL, 'u'},
    {"images", no_argument, NULL, 'i'},
    {"drop-empty", no_argument, NULL, 'e'},
    {"as-files", no_argument, NULL, 'f'},
    {"classes-of", required_argument, NULL, 'C'},
    {"digest", required_argument, NULL, 'd'},
    {"zstd", required_argument, NULL, 'z'},
    {"jpeg-restarts", no_argument, NULL, 'r'},
    {"meta", required_argument, NULL, 'm'},
    {"json", no_argument, NULL, 'J'},
    CTL_OPTION_KEEP_SNAPSHOTS,
    CTL_OPTION_WAIT,
    CTL_OPTION_HELP,
    {0},
};

/* One option; CTL_OK or CTL_USAGE. */
static int parse_option(const struct ctl_verb *verb, int option, struct pack_options *o)
{
	struct error err = ERROR_INIT;
	int64_t value;

	switch (option) {
	case 'c':
		if (!ctl_chunk_bytes(&o->chunk_bytes))
			return ctl_usage(verb, "--chunk-size %s: a size from 4M to 64M is needed", optarg);
		return CTL_OK;
	case 'o':
		if (strcmp(optarg, "random") != 0 && strcmp(optarg, "source") != 0)
			return ctl_usage(verb, "--order %s: it must be random or source", optarg);
		o->order = strcmp(optarg, "source") == 0 ? PACK_ORDER_SOURCE : PACK_ORDER_RANDOM;
		return CTL_OK;
	case 's':
		if (units_parse_integer(optarg, 0, INT64_MAX, &value) < 0)
			return ctl_usage(verb, "--seed %s: a whole number from 0 is needed", optarg);
		o->seed = (uint64_t)value;
		return CTL_OK;
	case 'j':
		if (units_parse_integer(optarg, 1, MAX_THREADS, &value) < 0)
			return ctl_usage(verb, "-j %s: a number from 1 to %d is needed", optarg, MAX_THREADS);
		o->n_threads = (unsigned)value;
		return CTL_OK;
	case 'm': /* the URL itself is not shown: it may have a password */
		if (meta_redis_check_url(optarg, &err) < 0)
			return ctl_usage(verb, "--meta URL: %s", err.text);
		o->meta_url = optarg;
		return CTL_OK;
	case 'z':
		if (!ctl_zstd_level(&o->level))
			return ctl_usage(verb, "--zstd %s: a level from %d to %d is needed", optarg,
					 COMPRESS_LEVEL_MIN, COMPRESS_LEVEL_MAX);
		return CTL_OK;
	case 'K': return ctl_keep_snapshots(verb, &o->keep_snapshots);
	case 'a': o->append = true; return CTL_OK;
	case 'u': o->skip_unreadable = true; return CTL_OK;
	case 'i': o->survey->images_only = true; return CTL_OK;
	case 'e': o->survey->drop_empty = true; return CTL_OK;
	case 'f': o->survey->as_files = true; return CTL_OK;
	case 'C': o->survey->classes_of = optarg; return CTL_OK;
	case 'r':
		o->rewrite = ctl_add_restarts;
		o->rewritten = count_restarts;
		return CTL_OK;
	case 'd':
		if (strcmp(optarg, DIGEST_NAME) != 0)
			return ctl_usage(verb, "--digest %s: it must be " DIGEST_NAME, optarg);
		o->keep_digests = true;
		return CTL_OK;
	}
	return CTL_USAGE;
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
		printf("; %llu left out that are no regular files", (unsigned long long)result->n_other);
	if (s->hidden.n)
		printf("; %zu hidden left out", s->hidden.n);
	if (s->n_left)
		printf("; %llu left out that %s", (unsigned long long)s->n_left,
		       s->n_left == 1 ? "is no image of a class" : "are no images of a class");
	if (s->n_datasets)
		printf("; left out %s: a dataset", s->dataset);
	if (s->n_datasets > 1)
		printf(", and %llu others", (unsigned long long)s->n_datasets - 1);
	printf("; dataset version %llu\n", (unsigned long long)result->version);
}

/* Among images: what ImageFolder would not take, of which jobs would be told by an error at best. */
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
			 s->n_others == 1 ? "is no image" : "are no images",
			 s->n_others == 1 ? "its name" : "their names", s->other);
	if (s->n_outside && s->classes.n)
		snprintf(outside, sizeof(outside), "%llu image%s in no class folder (label -1), such as %s",
			 (unsigned long long)s->n_outside, units_plural(s->n_outside), s->outside);
	error_set(&text, 0, "samples of the dataset are also %s%s%s; --images packs what ImageFolder takes",
		  others, *others && *outside ? ", and " : "", outside);
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

	printf("restart markers: %llu JPEG file%s got them", (unsigned long long)n, units_plural(n));
	if (n)
		printf(", %s before and %s now (%+.2f %%)",
		       units_format_bytes(before, sizeof(before), c->bytes_before),
		       units_format_bytes(after, sizeof(after), c->bytes_after),
		       100 * ((double)c->bytes_after / (double)c->bytes_before - 1));
	printf("; %llu had them; %llu packed as they are; %llu other files\n",
	       (unsigned long long)c->n_files[JPEG_RESTARTS_THERE],
	       (unsigned long long)c->n_files[JPEG_RESTARTS_KEPT],
	       (unsigned long long)c->n_files[JPEG_RESTARTS_OTHER]);
}

static void context_end(struct pack_context *c)
{
	path_set_free(&c->survey.known);
	survey_free(&c->survey);
}

static void dataset_closep(struct dataset **d)
{
	dataset_close(*d);
}

/* Adds what classes_of has; example: of what is new, one. */
static int add_classes(const struct survey *s, struct path_set *to, char *example, size_t size,
		       struct error *err)
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
		if (r > 0 && example && !*example)
			text_printable(example, size, name, length);
	}
	return r < 0 ? r : 0;
}

/* Labels are those of the dataset itself, whose classes are the folders that have samples. */
static void tell_missing(struct pack_context *c)
{
	struct survey *s = &c->survey;
	char missing[100];
	struct error text = ERROR_INIT;

	snprintf(missing, sizeof(missing), "%s", s->empty);
	if (!s->classes_of || add_classes(s, &s->classes, missing, sizeof(missing), NULL) < 0 || !*missing)
		return;
	error_set(&text, 0,
		  "there are no samples of %s, which is a class of %s: for its numbers, give jobs "
		  "Dataset(...).with_classes(Dataset(\"%s\").classes)",
		  missing, s->classes_of, s->classes_of);
	ctl_warn(c->verb, text.text);
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_(context_end) struct pack_context context = {.verb = verb,
							      .wait = {.verb = verb, .n_least = MIN_TRIES}};
	struct pack_options o = {
	    .chunk_bytes = CHUNK_DEFAULT_BYTES,
	    .n_threads = DEFAULT_THREADS,
	    .progress = show_progress,
	    .skipped = show_skipped,
	    .cancelled = is_cancelled,
	    .context = &context,
	    .survey = &context.survey,
	};
	struct sigaction action = {.sa_handler = on_signal,
				   .sa_flags = SA_RESETHAND}; /* a second one kills */
	struct pack_result result;
	struct error err = ERROR_INIT;
	int option;

	while ((option = getopt_long(argc, argv, short_options, long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		context.orders |= option == 'o';
		if (option == 'J')
			context.json = true;
		else if (option == 'w' ? ctl_wait_option(verb, &context.wait.ns)
				       : parse_option(verb, option, &o))
			return CTL_USAGE;
	}
	if (argc - optind != 2)
		return ctl_usage(verb, "a source and a dataset are needed");
	if (context.survey.images_only && context.survey.as_files)
		return ctl_usage(verb, "--images and --as-files contradict each other");
	o.command = ctl_command();
	o.source = argv[optind];
	o.dataset = context.wait.dataset = argv[optind + 1];
	context.is_tar = pack_is_tar(o.source);
	if (context.is_tar && o.skip_unreadable)
		return ctl_usage(
		    verb,
		    "--skip-unreadable is for files of a folder: an archive is packed whole or not at all");
	if (context.is_tar && context.orders && o.order == PACK_ORDER_RANDOM)
		return ctl_usage(
		    verb, "--order random is for files of a folder: an archive is packed in its own order");
	if (context.survey.classes_of &&
	    add_classes(&context.survey, &context.survey.known, NULL, 0, &err) < 0)
		return ctl_failed(verb, &err);
	ctl_wait_begin(&context.wait);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);

	uint64_t start_ns = clock_monotonic_ns();
	int r = pack_until_published(&o, &context, &result, &err);

	if (r < 0)
		return ctl_failed(verb, &err);
	tell_taken(&context);
	tell_missing(&context);
	if (context.json) {
		print_json(&result, clock_monotonic_ns() - start_ns, o.rewrite, &context);
	} else {
		print_summary(&result, &context.survey, clock_monotonic_ns() - start_ns,
			      context.wait.n_tries > 0);
		if (o.rewrite)
			print_restarts(&context);
	}
	return ctl_finish(verb);
}

const struct ctl_verb ctl_pack = {
    .name = "pack",
    .arguments = "[OPTION ...] SOURCE DATASET",
    .summary = "Pack a folder of files, or a tar archive, into a dataset",
    .help =
	"  -c, --chunk-size SIZE   4M to 64M (default 8M)\n"
	"  -o, --order ORDER       random (default): each chunk a fair sample; source: folder by folder\n"
	"  -s, --seed N            of the random order (default 0)\n"
	"  -j, --jobs N            files read at once (default 8)\n"
	"      --append            add to a dataset; changed files replace, unchanged ones are left out\n"
	"      --skip-unreadable   leave out files that cannot be read, with a line for each\n"
	"      --images            pack what torchvision's ImageFolder takes: images in class folders\n"
	"      --drop-empty        number the classes that have samples alone, where a folder has none\n"
	"      --classes-of DATASET  refuse classes that it has not; empty ones of its are let be\n"
	"      --as-files          pack every file as it is: hidden ones, archives, files of databases\n"
	"      --zstd LEVEL        compress, 1 (fast) to 19 (small), what gets shorter by a sixteenth\n"
	"      --digest sha256     keep a SHA-256 of each chunk, for datasets that users share\n"
	"      --meta URL          keep the metadata on a Redis server or cluster: "
	"redis://HOST[:PORT]/PREFIX\n" CTL_KEEP_SNAPSHOTS_HELP
	"      --wait SECONDS      how long to wait for another writer of the dataset (5m too; default 0)\n"
	"      --json              say as a JSON object what was done\n"
	"      --jpeg-restarts     rewrite JPEG files, without loss, so that what is above and beside a "
	"crop needs no decoding\n"
	"\n"
	"SOURCE is a folder, a tar archive (as it is, .gz, .zst), or - for one on standard input:\n"
	"tar cf - -C DIR . | dieselctl pack - DATASET. Links in a folder are followed. The dataset changes "
	"at\n"
	"the end or not at all; when a run was interrupted, the same command goes on where it stopped.\n",
    .run = run,
};
