/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

#include "ctl_json.h"
#include "dataset/verify.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/units.h"

struct verify_context {
	const struct ctl_verb *verb;
	struct progress bar;
	bool started;
	bool json;
	bool first;
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

static void show_damage(const struct verify_damage *d, void *context)
{
	struct verify_context *c = context;

	if (c->started)
		progress_end(&c->bar);
	if (c->json)
		print_damage_json(d, c);
	else
		puts(d->text);
}

static void show_note(const char *text, void *context)
{
	struct verify_context *c = context;

	if (c->started)
		progress_end(&c->bar);
	ctl_warn(c->verb, text);
}

static void show_progress(uint64_t done, uint64_t n_chunks, uint64_t bytes, void *context)
{
	struct verify_context *c = context;

	if (!c->started)
		progress_start(&c->bar, "verifying", n_chunks, clock_monotonic_ns());
	c->started = true;
	progress_update(&c->bar, done, bytes, clock_monotonic_ns());
}

static void print_result(const struct verify_result *r, bool json)
{
	char bytes[24];

	if (json)
		printf("],\n\"chunks\": %llu, \"samples\": %llu, \"bytes\": %llu, \"damaged\": %llu}\n",
		       (unsigned long long)r->n_chunks, (unsigned long long)r->n_records,
		       (unsigned long long)r->bytes, (unsigned long long)r->n_damages);
	else if (r->n_damages)
		printf("%llu damaged of %llu chunk%s, %llu sample%s, %s\n", (unsigned long long)r->n_damages,
		       (unsigned long long)r->n_chunks, units_plural(r->n_chunks),
		       (unsigned long long)r->n_records, units_plural(r->n_records),
		       units_format_bytes(bytes, sizeof(bytes), r->bytes));
	else
		printf("sound: %llu chunk%s, %llu sample%s, %s\n", (unsigned long long)r->n_chunks,
		       units_plural(r->n_chunks), (unsigned long long)r->n_records,
		       units_plural(r->n_records), units_format_bytes(bytes, sizeof(bytes), r->bytes));
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {{"json", no_argument, NULL, 'J'}, CTL_OPTION_HELP, {0}};
	struct verify_context context = {.verb = verb, .first = true};
	const struct verify_callbacks callbacks = {
	    .damage = show_damage, .note = show_note, .progress = show_progress, .context = &context};
	struct verify_result result = {0};
	struct error err = ERROR_INIT;
	int option;

	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		context.json = true;
	}
	if (argc - optind != 1)
		return ctl_usage(verb, "one dataset is needed");
	if (context.json)
		fputs("{\"schema\": \"diesel.verify/1\", \"damages\": [", stdout);
	int r = verify_dataset(argv[optind], &callbacks, &result, &err);

	if (context.started)
		progress_end(&context.bar);
	if (r == 0 || context.json) /* an object that was begun is ended */
		print_result(&result, context.json);
	if (r < 0)
		return ctl_failed(verb, &err);
	r = ctl_finish(verb);
	return r == CTL_OK && result.n_damages ? CTL_FAILED : r;
}

const struct ctl_verb ctl_verify = {
    .name = "verify",
    .arguments = "[--json] DATASET",
    .summary = "Check every chunk, sample, the snapshot and the metadata",
    .help = "      --json  as a JSON object\n\nOne line for each damage; exit status 1 when there is any.\n",
    .run = run,
};
