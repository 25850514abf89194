/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <signal.h>
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
#include "ctl/packing/pack_tar.h"

#define DEFAULT_THREADS 8
#define MAX_THREADS     64
/* Tries in a bucket. Each failed try means that another writer has published. */
#define MIN_TRIES 16

struct pack_context {
	const struct option_verb *verb;
	struct progress bar;
	bool json;
	bool is_tar, orders; /* the source is an archive; --order was given */
	bool adds_restarts;  /* --jpeg-restarts */
	struct pack_options options;
	struct ctl_wait wait;
	struct survey survey;
	/* --jpeg-restarts */
	uint64_t n_files[JPEG_RESTARTS_KEPT + 1]; /* indexed by enum jpeg_restarts */
	uint64_t bytes_before, bytes_after;       /* bytes of the files that got markers */
};

/* Set by the handler: the signal that requested a stop. */
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

/* A file of the maximum sample size stays unchanged. */
int ctl_add_restarts(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_note)
{
	_cleanup_(freep) void *made = NULL;
	size_t made_bytes = 0;
	int r = jpeg_restarts_add(data, bytes, &made, &made_bytes, ret_note);

	if (made_bytes > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(ret_note, JPEG_RESTARTS_KEPT, "it would have more than 1 GiB");
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
		error_set(&text, 0, "%s is packed as it is, without restart markers: %s", file->path,
			  file->note->text);
		show_skipped(text.text, c);
	}
}

/* With a dataset in a bucket, a commit fails only at the end if another writer was first. Data from a pipe
 * is lost by then. */
static bool can_try_again(const struct pack_options *o)
{
	return strcmp(o->source, "-") != 0 || !backend_is_elsewhere(o->dataset);
}

/* Packs until it is published. Each try starts with new counts, because the counts of a try that lost to
 * another writer are void. */
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

/* Adds the classes of classes_of; example: one of the new classes. */
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

/* Labels come from the dataset itself, whose classes are the folders with samples. */
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

static int run(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(context_end) struct pack_context context = {.verb = verb,
							      .wait = {.verb = verb, .n_least = MIN_TRIES},
							      .options = {.chunk_bytes = CHUNK_DEFAULT_BYTES,
									  .n_threads = DEFAULT_THREADS,
									  .progress = show_progress,
									  .skipped = show_skipped,
									  .cancelled = is_cancelled,
									  .command = ctl_command()}};
	struct pack_options *o = &context.options;
	struct sigaction action = {.sa_handler = on_signal,
				   .sa_flags = SA_RESETHAND}; /* a second signal kills the process */
	struct pack_result result;
	struct error err = ERROR_INIT;
	int status;

	if (!ctl_options(verb, argc, argv, &context, &status))
		return status;
	if (argc - optind != 2)
		return ctl_usage(verb, "a source and a dataset are needed");
	if (context.survey.images_only && context.survey.as_files)
		return ctl_usage(verb, "--images and --as-files contradict each other");
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
		return ctl_usage(
		    verb,
		    "--skip-unreadable is for files of a folder: an archive is packed whole or not at all");
	if (context.is_tar && context.orders && o->order == PACK_ORDER_RANDOM)
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
	int r = pack_until_published(o, &context, &result, &err);

	if (r < 0)
		return ctl_failed(verb, &err);
	tell_taken(&context);
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
     .most = CHUNK_MAX_BYTES, .value = "SIZE", .usual = "8M", .says = "a size from 4M to 64M is needed",
     .help = "4M to 64M",
     .about = "4M to 64M, default 8M. A file larger than that gets a chunk of its own; a "
	      "file can have at most 1 GiB."},
    {"order", set_order, .letter = 'o', AT(options.order), .says = "it must be random or source",
     .words = "random|source", .value = "ORDER", .usual = "random",
     .help = "random: each chunk a fair sample; source: folder by folder",
     .about = "`random` (default) puts the files into chunks in an order drawn from the seed, so that each "
	      "chunk is a fair sample of the dataset, and shuffling by chunks loses nothing when folders are "
	      "classes. `source` keeps folders together."},
    {"seed", option_set_u64, .letter = 's', AT(options.seed), .says = "a whole number from 0 is needed",
     .value = "N", .usual = "0", .help = "of the random order"},
    {"jobs", option_set_u32, .letter = 'j', AT(options.n_threads), .least = 1, .most = MAX_THREADS,
     .says = "a number from 1 to 64 is needed", .value = "N", .usual = "8", .help = "files read at once"},
    {"append", option_set_flag, AT(options.append),
     .help = "add to a dataset; changed files replace, unchanged ones are left out",
     .about = "Adds to a dataset that has samples already. A file whose path is there with the same size and "
	      "modification time is left out; one that changed replaces the older one. Nothing is deleted."},
    {"skip-unreadable", option_set_flag, AT(options.skip_unreadable),
     .help = "leave out files that cannot be read, with a line for each"},
    {"images", option_set_flag, AT(survey.images_only),
     .help = "pack what torchvision's ImageFolder takes: images in class folders",
     .about = "Packs what torchvision's ImageFolder takes: the files in class folders whose names end in "
	      ".jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp."},
    {"drop-empty", option_set_flag, AT(survey.drop_empty),
     .help = "number the classes that have samples alone, where a folder has none"},
    {"classes-of", option_set_string, AT(survey.classes_of), .value = "DATASET", .takes = OPTION_FILE,
     .help = "refuse classes that it has not; empty ones of its are let be",
     .about = "For a split of which another has all classes: refuses a class folder that is no class of "
	      "DATASET, lets be one that has no samples and is, and says which class has none. Labels follow "
	      "from the folders that have samples, so jobs number them by `with_classes()`."},
    {"as-files", option_set_flag, AT(survey.as_files),
     .help = "pack every file as it is: hidden ones, archives, files of databases",
     .about = "Packs every file as it is: hidden ones, archives, files of databases and of datasets; the "
	      "dataset that is written is left out all the same."},
    CTL_ROW_ZSTD(
	AT(options.level),
	.about =
	    "Compresses chunks, in blocks, with level 1 (fast) to 19 (small), where that saves a sixteenth "
	    "of a block or more; text, tokens and raw arrays get shorter by that, pictures do not, and stay "
	    "as they are. Jobs, mounts and all other verbs get samples as they were packed, from fewer bytes "
	    "of storage; in memory and on a staging disk samples lie uncompressed. Each `pack` says for "
	    "itself what its chunks are: `--append` without this option adds uncompressed ones, and both may "
	    "be in one dataset. `purge` compresses what it writes again as it was. Programs of before this "
	    "option refuse such a dataset, and say to update."),
    CTL_ROW_DIGEST(
	AT(options.keep_digests), .help = "keep a SHA-256 of each chunk, for datasets that users share",
	.about = "Keeps a SHA-256 of each chunk, for a dataset that users share: the checksums that every "
		 "dataset has protect against accidents, not against people who may write chunks. "
		 "`dieseld`(8) checks each chunk that it reads, at about 1.8 GB/s per core. All later "
		 "changes of the dataset keep digests; older programs that do not know them refuse the "
		 "dataset. Chunks that exist already get theirs by `rebuild`."),
    CTL_ROW_META(
	AT(options.meta_url),
	.help = "keep the metadata on a Redis server or cluster: redis://HOST[:PORT]/PREFIX",
	.about =
	    "Keeps the metadata on a Redis server, or on the Redis Cluster of which it is a node, for a "
	    "dataset that is changed from many machines, instead of in meta.db. All keys begin with the "
	    "prefix, which belongs to one dataset. The dataset's folder has a file meta.redis that says "
	    "where they are, so that no other command needs the option. No password is in it: where the "
	    "server wants one, set `DIESEL_REDIS` to redis://USER:PASSWORD@HOST:PORT, or `DIESEL_REDIS_FILE` "
	    "to a file that holds this line; it is sent to that host and port alone, in the way that this "
	    "URL says, and to the nodes of its cluster. `rediss` speaks TLS, and accepts certificates for "
	    "the host of the URL or, of a cluster's node, for its own name or address. A dataset is read and "
	    "served from its snapshot, without the server. Slots of a cluster may move, and masters may fail "
	    "over to their replicas, while a command runs: it goes on. Where a server has replicas, what it "
	    "has written counts once one of them has it. A server that takes out keys when its memory is "
	    "full is refused: set `maxmemory-policy noeviction`. It should log each write (`appendonly "
	    "yes`); keys that are lost are noticed, and `rebuild` makes them again."),
    CTL_ROW_KEEP_SNAPSHOTS(
	AT(options.keep_snapshots),
	.about = "Of how many versions, the newest, the snapshots are kept; default 4. Jobs can open these "
		 "(`version=` of `diesel_loader`(3)), and go on with them after a restart. A snapshot takes "
		 "the length of its paths and some 40 bytes a sample. Each command that makes a version "
		 "(`rm`, `purge` and `rebuild` too) keeps as many as it is told: give all of them the same "
		 "number. `purge` keeps none of a version that cannot be read afterwards."),
    CTL_ROW_WAIT(
	AT(wait.ns),
	.about =
	    "How long to wait (`5m` too) while another writer holds the dataset, in a folder or with its "
	    "metadata on a Redis server; one line says whom it waits for, the process where that is known. "
	    "Default 0: it fails. A writer that gives no sign of life for 60 seconds "
	    "(`DIESEL_WRITER_LEASE`), because its process is suspended or its node hangs, is done without, "
	    "unless it was about to publish; it can then publish nothing any more, and says so when it wakes "
	    "up.\nIn a bucket nobody holds a dataset. `pack` goes ahead, and if another writer has published "
	    "before it, it says so in a line and goes on from that version: what it has packed is used where "
	    "it is newer than the other's last chunk, the rest is packed again, of a path that both wrote "
	    "its own bytes count, and nothing else of the other's is lost. It does so up to 16 times, and "
	    "longer with `--wait`. `rm`, `purge` and `rebuild` take `--wait` too; in a bucket they are done "
	    "again until then if another writer was first."),
    {"json", option_set_flag, AT(json), .help = "say as a JSON object what was done"},
    {"jpeg-restarts", option_set_flag, AT(adds_restarts),
     .help = "rewrite JPEG files, without loss, so that what is above and beside a crop needs no decoding",
     .about =
	 "Writes JPEG files again, with restart markers, one every few blocks, mostly every 32 columns: of "
	 "an "
	 "image of which a job takes a crop, as `diesel_loader`(3) does for torchvision's transforms, what "
	 "lies above and beside the crop is then passed over, not decoded. Nothing is lost: coefficients, "
	 "quantisation tables and sampling stay, which is checked for each file, and so do EXIF data, colour "
	 "profiles, comments and what follows the image; every decoder gives the same pixels. With markers "
	 "libjpeg-turbo decodes each block a little more slowly, so that a job which takes the whole of each "
	 "image loses a few percent, unless the files were progressive. Progressive files become sequential "
	 "ones, in which alone that works and which take less time to decode. The last line says by how much "
	 "the files grew or, since Huffman codes are made for each image, shrank. Files that have markers so "
	 "often stay as they are, and so do files that are no JPEG, and, with a line for each, JPEG files "
	 "that are damaged or of a kind that could not be kept whole (several images in one file, more than "
	 "64 million pixels).\nThe bytes of a sample are then not those of the file. With `--append` a file "
	 "counts as unchanged by its own size and time; what the dataset has already stays as it was packed, "
	 "with or without markers."},
};

#undef AT

const struct option_verb ctl_pack = {
    .name = "pack",
    .group = "Datasets",
    .arguments = "SOURCE DATASET",
    .summary = "Pack a folder of files, or a tar archive, into a dataset",
    .help = "SOURCE is a folder, a tar archive (as it is, .gz, .zst), or - for one on standard input:\n"
	    "tar cf - -C DIR . | dieselctl pack - DATASET. Links in a folder are followed. The dataset "
	    "changes at\n"
	    "the end or not at all; when a run was interrupted, the same command goes on where it stopped.\n",
    .about =
	"Packs all regular files below SOURCE, or those of a tar archive. Its top-level folders become "
	"classes, numbered in the order of their names, as torchvision's ImageFolder does. Symbolic links "
	"are followed; a dangling one, and one that leads back to a folder it lies in, is an error. FIFOs, "
	"sockets and devices are left out and counted.\nHidden files and folders (.DS_Store, "
	".ipynb_checkpoints), and others that file managers leave (Thumbs.db, __MACOSX), are left out, and "
	"so are datasets within the source; the last line counts them. A source of which the files are no "
	"samples is refused: an LMDB, archives, Parquet, Arrow, TFRecord and HDF5 files, shards of other "
	"loaders. So is one with a class folder that has no samples, since without it the classes behind it "
	"would have other numbers. Among images, files that are no images, and images in no class folder, "
	"are taken, and a line says so.\nThe dataset changes at the end or not at all. When a run is "
	"interrupted (a signal, a full disk, a power cut), the same command goes on where it stopped: chunks "
	"whose files have not changed since are used.\nWhere SOURCE is no folder it is a tar archive, as it "
	"is or compressed by gzip or zstd; `-` is one on standard input:\n`tar cf - -C photos . | dieselctl "
	"pack - photos.diesel`\nIts files are packed in its order, one in memory at a time. Anything else "
	"but folders in it (links, devices, FIFOs), a path that is absolute or leads outside, one that is "
	"there twice, and an archive that is damaged or cut off, also between two files, are errors that "
	"name it: nothing is published, and what was written is removed. After an interruption, the same "
	"archive goes on: samples that are in chunks already, byte by byte, are not written again. `tar "
	"--dereference --hard-dereference` makes archives without links. Jobs shuffle within windows of some "
	"chunks: an archive whose neighbours are alike, folder by folder, is better extracted and packed as "
	"`--order random` does.",
    OPTION_ROWS(pack_rows),
    .takes = OPTION_FILE,
    .run = run,
};
