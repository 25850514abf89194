/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "dataset/frozen.h"
#include "dataset/backend.h"
#include "dataset/repair.h"
#include "lib/cleanup.h"
#include "lib/progress.h"
#include "lib/units.h"

struct verify_context {
	const struct option_verb *verb;
	struct progress bar;
	bool repairs; /* verification has ended, and repair has begun */
	bool json;
	bool first; /* no item of the JSON array has been printed yet */
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
	printf("\"unread\": %s, \"text\": ", d->is_unread ? "true" : "false");
	ctl_json_string(d->text, strlen(d->text));
	putchar('}');
}

/* The text contains file names. */
static void put_line(const struct option_verb *verb, const char *text)
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

static bool is_sound(const struct verify_result *r)
{
	return !r->n_damages && !r->n_unread;
}

static void print_counts(const struct verify_result *r)
{
	char bytes[24];

	if (r->n_damages)
		printf("%llu damaged", (unsigned long long)r->n_damages);
	if (r->n_unread)
		printf("%s%llu not read", r->n_damages ? ", " : "", (unsigned long long)r->n_unread);
	printf("%s%llu chunk%s, %llu sample%s, %s\n", is_sound(r) ? "sound: " : " of ",
	       (unsigned long long)r->n_chunks, units_plural(r->n_chunks), (unsigned long long)r->n_records,
	       units_plural(r->n_records), units_format_bytes(bytes, sizeof(bytes), r->bytes));
}

static void print_counts_json(const struct verify_result *r)
{
	printf("],\n\"chunks\": %llu, \"samples\": %llu, \"bytes\": %llu, \"damaged\": %llu, "
	       "\"unread\": %llu",
	       (unsigned long long)r->n_chunks, (unsigned long long)r->n_records,
	       (unsigned long long)r->bytes, (unsigned long long)r->n_damages,
	       (unsigned long long)r->n_unread);
}

static int verify_only(const struct option_verb *verb, const char *path, uint64_t version, bool by_version,
		       struct verify_context *c, const struct verify_callbacks *callbacks)
{
	struct verify_result result = {0};
	struct error err = ERROR_INIT;
	int r = by_version ? verify_version(path, version, callbacks, &result, &err)
			   : verify_dataset(path, callbacks, &result, &err);

	progress_end(&c->bar);
	if (c->json) { /* completes the JSON object */
		print_counts_json(&result);
		puts("}");
	} else if (r == 0) {
		print_counts(&result);
	}
	if (r < 0)
		return ctl_failed(verb, &err);
	r = ctl_finish(verb);
	return r == CTL_OK && !is_sound(&result) ? CTL_FAILED : r;
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

/* Prints a sample of which no copy exists. */
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

static int repair(const struct option_verb *verb, const char *path, struct verify_context *c,
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
		/* The JSON array in progress shows whether verification was completed. */
		if (!c->repairs)
			print_counts_json(&result.verified);
		printf("%s, \"repaired\": %llu, \"unrepaired\": %llu}\n", c->repairs ? "]" : "",
		       (unsigned long long)result.n_repaired, (unsigned long long)result.n_unrepaired);
	} else if (r == 0 && !is_sound(&result.verified)) {
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

struct verify_command {
	struct verify_context context;
	struct repair_options options;
	const char **from; /* values of --from; space for as many as there are arguments */
	uint64_t version;
	bool repairs;
};

static int set_from(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct verify_command *c = options;

	c->from[c->options.n_from++] = value;
	return 0;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct verify_command c = {.context = {.verb = verb, .first = true}};
	const struct verify_callbacks callbacks = {
	    .damage = show_damage, .note = show_note, .progress = show_progress, .context = &c.context};
	_cleanup_(freep) const char **from = calloc((size_t)argc, sizeof(*from));
	struct error err = ERROR_INIT;
	int status;

	if (!from)
		return ctl_warn(verb, "no memory");
	c.options.from = c.from = from;
	c.options.verify = callbacks;
	if (!ctl_options(verb, argc, argv, &c, &status))
		return status;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one dataset");
	if (!c.repairs && (c.options.n_from || c.options.dry_run))
		return ctl_usage(verb, "--from and --dry-run need --repair");
	bool frozen = !backend_is_elsewhere(argv[optind]) && frozen_is(AT_FDCWD, argv[optind]);

	if (c.repairs && frozen) {
		frozen_error(argv[optind], &err);
		return ctl_failed(verb, &err);
	}
	if (c.repairs && c.version)
		return ctl_usage(verb, "--repair applies to a whole dataset: leave out --version");
	if (c.context.json)
		fputs("{\"schema\": \"diesel.verify/1\", \"damages\": [", stdout);
	return c.repairs
		   ? repair(verb, argv[optind], &c.context, &c.options)
		   : verify_only(verb, argv[optind], c.version, c.version || frozen, &c.context, &callbacks);
}

#define AT(member) .at = offsetof(struct verify_command, member)

static const struct option_row verify_rows[] = {
    {"json", option_set_flag, AT(context.json), .help = "as a JSON object"},
    CTL_ROW_VERSION(AT(version), .help = "check only what version N needs"),
    {"repair", option_set_flag, AT(repairs), .help = "restore damaged and missing chunks, bit for bit",
     .about =
	 "Restores damaged and missing chunks, bit for bit, and then metadata and snapshot, if these are "
	 "damaged. For each sample of a damaged chunk, `verify` looks for bytes with the checksum in the "
	 "chunk's head: first in the file itself, then in each `--from`, in their order. It restores the "
	 "head in the same way. If the chunk is not compressed, and the metadata has all of its samples, the "
	 "head can also come from the metadata.\n"
	 "A restored file replaces the damaged one only when metadata and digest show that all of it is as "
	 "it was packed, and it is on the disk. Until then, if the disk is full for instance, the damaged "
	 "file stays. "
	 "`verify` prints a line for each chunk, and for each sample that it cannot find. The exit status is "
	 "1 if any damage is left. Jobs may read the dataset meanwhile, but nobody may change it."},
    {"from", set_from, .value = "PLACE", .takes = OPTION_FOLDER, .repeats = true,
     .help = "another copy of the dataset, or the files that were packed",
     .about =
	 "Another copy of the dataset (a folder, or `s3://`BUCKET`/`PREFIX), or the files that it was packed "
	 "from. `verify` does not use a file that has changed. The option can be repeated, and no copy needs "
	 "to be complete. Without digests, checksums protect a copy only against accidents."},
    {"dry-run", option_set_flag, AT(options.dry_run),
     .help = "print what can be repaired, and change nothing",
     .about = "Prints what can be repaired, and changes nothing; exit status 1 if there is damage."},
};

#undef AT

const struct option_verb ctl_verify = {
    .name = "verify",
    .arguments = "DATASET",
    .summary = "Check every chunk, sample, the snapshot and the metadata; repair them",
    .help = "Prints a line for each damaged part. Exit status 1 if anything is damaged, or with --repair, if "
	    "any damage is left.\n",
    .about =
	"Reads and checks everything: heads of chunks, checksums of samples, digests if there are any, "
	"and that chunks, metadata and snapshot agree. Prints a line for each damaged part (chunk, "
	"byte, path), and exits with status 1 if there is any. A chunk that it could not read, because it is "
	"refused or out of reach, has a line, too, and the same exit status, but is not counted as damaged "
	"and not repaired. Changes nothing without `--repair`.",
    OPTION_ROWS(verify_rows),
    .takes = OPTION_FILE,
    .run = run,
};
