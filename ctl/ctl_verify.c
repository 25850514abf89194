/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "ctl_json.h"
#include "ctl_rewrite.h"
#include "dataset/frozen.h"
#include "dataset/place.h"
#include "dataset/repair.h"
#include "lib/cleanup.h"
#include "lib/progress.h"
#include "lib/units.h"

struct verify_context {
	const struct ctl_verb *verb;
	struct progress bar;
	bool repairs; /* the first part, which verifies, has ended */
	bool json;
	bool first; /* of a JSON array */
};

static void print_damage_json(const struct verify_damage *d, struct verify_context *c)
{
	char id[CHUNK_ID_TEXT];

	fputs(c->first ? "\n{" : ",\n{", stdout);
	c->first = false;
	if (d->chunk)
		printf("\"chunk\": \"%s\", ", chunk_id_format(d->chunk, id));
	if (d->path) {
		fputs("\"path\": ", stdout);
		ctl_json_string(d->path, d->path_length);
		fputs(", ", stdout);
		if (d->chunk)
			printf("\"offset\": %llu, ", (unsigned long long)d->offset);
	}
	fputs("\"text\": ", stdout);
	ctl_json_string(d->text, strlen(d->text));
	putchar('}');
}

/* Names of files are in it. */
static void put_line(const struct ctl_verb *verb, const char *text)
{
	ctl_print_advice(stdout, verb, text);
	putchar('\n');
}

static void show_damage(const struct verify_damage *d, void *context)
{
	struct verify_context *c = context;

	progress_hide(&c->bar);
	if (c->json)
		print_damage_json(d, c);
	else
		put_line(c->verb, d->text);
}

static void show_note(const char *text, void *context)
{
	struct verify_context *c = context;

	progress_hide(&c->bar);
	ctl_warn(c->verb, text);
}

static void show_progress(const char *what, uint64_t done, uint64_t total, uint64_t bytes, void *context)
{
	struct verify_context *c = context;

	progress_show(what, done, total, bytes, &c->bar);
}

static void print_counts(const struct verify_result *r)
{
	char bytes[24];

	if (r->n_damages)
		printf("%llu damaged of %llu chunk%s, %llu sample%s, %s\n", (unsigned long long)r->n_damages,
		       (unsigned long long)r->n_chunks, units_plural(r->n_chunks),
		       (unsigned long long)r->n_records, units_plural(r->n_records),
		       units_format_bytes(bytes, sizeof(bytes), r->bytes));
	else
		printf("sound: %llu chunk%s, %llu sample%s, %s\n", (unsigned long long)r->n_chunks,
		       units_plural(r->n_chunks), (unsigned long long)r->n_records,
		       units_plural(r->n_records), units_format_bytes(bytes, sizeof(bytes), r->bytes));
}

static void print_counts_json(const struct verify_result *r)
{
	printf("],\n\"chunks\": %llu, \"samples\": %llu, \"bytes\": %llu, \"damaged\": %llu",
	       (unsigned long long)r->n_chunks, (unsigned long long)r->n_records,
	       (unsigned long long)r->bytes, (unsigned long long)r->n_damages);
}

static int verify_only(const struct ctl_verb *verb, const char *path, uint64_t version, bool by_version,
		       struct verify_context *c, const struct verify_callbacks *callbacks)
{
	struct verify_result result = {0};
	struct error err = ERROR_INIT;
	int r = by_version ? verify_version(path, version, callbacks, &result, &err)
			   : verify_dataset(path, callbacks, &result, &err);

	progress_end(&c->bar);
	if (c->json) { /* an object that was begun is ended */
		print_counts_json(&result);
		puts("}");
	} else if (r == 0) {
		print_counts(&result);
	}
	if (r < 0)
		return ctl_failed(verb, &err);
	r = ctl_finish(verb);
	return r == CTL_OK && result.n_damages ? CTL_FAILED : r;
}

static void show_verified(const struct verify_result *result, void *context)
{
	struct verify_context *c = context;

	progress_end(&c->bar);
	if (c->json) {
		print_counts_json(result);
		fputs(",\n\"repairs\": [", stdout);
	} else {
		print_counts(result);
	}
	c->first = true;
	c->repairs = true;
}

static void show_repair(const struct repair_chunk *chunk, void *context)
{
	struct verify_context *c = context;
	char id[CHUNK_ID_TEXT];

	progress_hide(&c->bar);
	if (!c->json) {
		put_line(c->verb, chunk->text);
		return;
	}
	fputs(c->first ? "\n{" : ",\n{", stdout);
	c->first = false;
	if (chunk->id)
		printf("\"chunk\": \"%s\", \"samples\": %u, \"replaced\": %u, ",
		       chunk_id_format(chunk->id, id), chunk->n_records, chunk->n_samples);
	printf("\"repaired\": %s, \"text\": ", chunk->repaired ? "true" : "false");
	ctl_json_string(chunk->text, strlen(chunk->text));
	putchar('}');
}

/* A sample that is nowhere. */
static void show_lost(const struct verify_damage *sample, void *context)
{
	struct verify_context *c = context;
	char id[CHUNK_ID_TEXT];

	progress_end(&c->bar);
	if (c->json) {
		fputs(c->first ? "\n{" : ",\n{", stdout);
		c->first = false;
		printf("\"chunk\": \"%s\", \"path\": ", chunk_id_format(sample->chunk, id));
		ctl_json_string(sample->path, sample->path_length);
		fputs(", \"repaired\": false, \"text\": ", stdout);
		ctl_json_string(sample->text, strlen(sample->text));
		putchar('}');
	} else {
		printf("chunk %s: ", chunk_id_format(sample->chunk, id));
		put_line(c->verb, sample->text);
	}
}

static int repair(const struct ctl_verb *verb, const char *path, struct verify_context *c,
		  struct repair_options *options)
{
	struct repair_result result = {0};
	struct error err = ERROR_INIT;

	options->verified = show_verified;
	options->chunk = show_repair;
	options->lost = show_lost;
	options->progress = show_progress;
	options->context = c;
	options->command = ctl_command();
	options->rewrite = ctl_add_restarts;
	int r = repair_dataset(path, options, &result, &err);

	progress_end(&c->bar);
	if (c->json) {
		/* Which of the two arrays was begun shows whether the first part came to its end. */
		if (!c->repairs)
			print_counts_json(&result.verified);
		printf("%s, \"repaired\": %llu, \"unrepaired\": %llu}\n", c->repairs ? "]" : "",
		       (unsigned long long)result.n_repaired, (unsigned long long)result.n_unrepaired);
	} else if (r == 0 && result.verified.n_damages) {
		printf("%s %llu, not repaired %llu\n", options->dry_run ? "would repair" : "repaired",
		       (unsigned long long)result.n_repaired, (unsigned long long)result.n_unrepaired);
	}
	if (r < 0)
		return ctl_failed(verb, &err);
	r = ctl_finish(verb);
	if (r == CTL_OK && (result.n_unrepaired || (options->dry_run && result.verified.n_damages)))
		return CTL_FAILED;
	return r;
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {{"json", no_argument, NULL, 'J'},
						     {"repair", no_argument, NULL, 'r'},
						     {"from", required_argument, NULL, 'f'},
						     {"dry-run", no_argument, NULL, 'n'},
						     CTL_OPTION_VERSION,
						     CTL_OPTION_HELP,
						     {0}};
	struct verify_context context = {.verb = verb, .first = true};
	const struct verify_callbacks callbacks = {
	    .damage = show_damage, .note = show_note, .progress = show_progress, .context = &context};
	struct repair_options options = {.verify = callbacks};
	_cleanup_(freep) const char **from = calloc((size_t)argc, sizeof(*from));
	struct error err = ERROR_INIT;
	uint64_t version = 0;
	bool repairs = false;
	int option;

	if (!from)
		return ctl_warn(verb, "no memory");
	options.from = from;
	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		if (option == 'V' && ctl_version(verb, &version) != CTL_OK)
			return CTL_USAGE;
		context.json |= option == 'J';
		repairs |= option == 'r';
		options.dry_run |= option == 'n';
		if (option == 'f')
			from[options.n_from++] = optarg;
	}
	if (argc - optind != 1)
		return ctl_usage(verb, "one dataset is needed");
	if (!repairs && (options.n_from || options.dry_run))
		return ctl_usage(verb, "--from and --dry-run say how to --repair");
	bool frozen = !place_is_elsewhere(argv[optind]) && frozen_is(AT_FDCWD, argv[optind]);

	if (repairs && frozen) {
		frozen_error(argv[optind], &err);
		return ctl_failed(verb, &err);
	}
	if (repairs && version)
		return ctl_usage(verb, "--repair is for all of a dataset: leave out --version");
	if (context.json)
		fputs("{\"schema\": \"diesel.verify/1\", \"damages\": [", stdout);
	return repairs ? repair(verb, argv[optind], &context, &options)
		       : verify_only(verb, argv[optind], version, version || frozen, &context, &callbacks);
}

const struct ctl_verb ctl_verify = {
    .name = "verify",
    .arguments = "[--json] [--version N | --repair [--from PLACE ...] [--dry-run]] DATASET",
    .summary = "Check every chunk, sample, the snapshot and the metadata; repair them",
    .help =
	"      --json         as a JSON object\n"
	"      --version N    what that version needs, and nothing else\n"
	"      --repair       make what is damaged or missing again, as it was packed\n"
	"      --from PLACE   of another copy of the dataset, or of the files that were packed; may be\n"
	"                     given several times\n"
	"      --dry-run      say what could be repaired, and change nothing\n"
	"\n"
	"One line for each damage; exit status 1 when there is any, or with --repair, when any is left.\n",
    .run = run,
};
