/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "config_file.h"
#include "history/history.h"
#include "options_set.h"
#include "daemon/node/pool.h"
#include "daemon/node/quota.h"

#define DEFAULT_STAGE_BYTES (UINT64_C(16) << 30)

static char *default_history(void)
{
	const char *directory = getenv("STATE_DIRECTORY");
	char *path = NULL;

	/* Colons separate several folders, none of which is the obvious choice. */
	if (!directory || directory[0] != '/' || strchr(directory, ':'))
		return strdup("off");
	return asprintf(&path, "%s/history.db", directory) < 0 ? NULL : path;
}

int options_init(struct daemon_options *o, uint64_t memory_bytes, uint32_t n_cpus)
{
	*o = (struct daemon_options){
	    .serve = {.knobs = {.cache_bytes = memory_bytes / 4,
				.prefetch_chunks = 8,
				.workers = n_cpus < 4 ? (n_cpus ? n_cpus : 1) : 4},
		      .window_chunks = 8,
		      .n_slots = 8,
		      .use_io_uring = true,
		      .user_share = QUOTA_DEFAULT_PERCENT,
		      .stage = {.bytes = DEFAULT_STAGE_BYTES}},
	    .socket_path = strdup(DIESEL_DEFAULT_SOCKET),
	    .metrics = strdup(OPTIONS_METRICS),
	    .stage = strdup("off"),
	    .admin_socket = strdup("off"),
	    .settings = {.space = {.memory_bytes = memory_bytes, .n_cpus = n_cpus}},
	    .history = default_history(),
	    .history_max_bytes = UINT64_C(64) << 20,
	    .ready_fd = -1,
	};
	if (o->serve.knobs.cache_bytes < OPTIONS_MIN_CACHE_BYTES)
		o->serve.knobs.cache_bytes = OPTIONS_MIN_CACHE_BYTES;
	o->settings.space.cache_bytes = o->serve.knobs.cache_bytes;
	return o->socket_path && o->metrics && o->history && o->stage && o->admin_socket ? 0 : -ENOMEM;
}

static const struct option_row *find_row(const char *name)
{
	return option_find(option_rows, n_option_rows, name);
}

static int set_row(struct daemon_options *o, const struct option_row *row, const char *value,
		   const struct settings_source *source, struct error *err)
{
	uint32_t n_codecs = o->n_codecs;
	int r = row->set(o, row, value, err);

	if (r < 0)
		return r == -ENOMEM ? error_errno(err, r, "%s", row->name) : r;
	o->source[row - option_rows] = *source;
	if (row->key)
		o->settings.source[row->key] = *source;
	if (row->set == option_cache)
		o->settings.space.cache_source = *source;
	if (o->n_codecs > n_codecs)
		o->codec_source[o->n_codecs - 1] = *source;
	return 0;
}

static int unknown(const char *name, struct error *err)
{
	const struct option_row *row = find_row(name), *best = NULL;
	size_t least = OPTION_FAR;

	if (row)
		return error_set(err, -ENOENT, "pass --%s on the command line", name);
	for (size_t i = 0; i < n_option_rows; i++)
		if (!option_rows[i].command && option_is_closer(name, option_rows[i].name, &least))
			best = &option_rows[i];
	return best ? error_set(err, -ENOENT, "write %s", best->name)
		    : error_set(err, -ENOENT, "remove it, or see `man dieseld.conf`");
}

static bool is_setting(void *user, const char *name)
{
	const struct option_row *row = find_row(name);

	return row && !row->command;
}

static void append_example(struct error *err, const struct option_row *row)
{
	size_t used = strlen(err->text);

	snprintf(err->text + used, sizeof(err->text) - used, ": write %s = %s, for example", row->name,
		 row->example);
}

static int set_from_file(void *user, const char *name, const char *value, int line, struct error *err)
{
	struct daemon_options *o = user;
	const struct settings_source source = {.given = true, .file = o->file, .line = line};
	const struct option_row *row = find_row(name);
	const struct settings_source *before = row ? &o->source[row - option_rows] : NULL;
	int r;

	if (!row || row->command)
		return unknown(name, err);
	if (row->set != option_codec && before->given && before->file == o->file)
		return error_set(err, -EINVAL, "%s is on line %d already: remove one of the two", name,
				 before->line);
	if (!*value)
		return error_set(err, -EINVAL, "%s has no value: write %s = %s, or remove the line", name,
				 name, row->example);
	r = set_row(o, row, value, &source, err);
	if (r == -EINVAL && !strstr(err->text, "write "))
		append_example(err, row);
	return r;
}

static int options_read_file(struct daemon_options *o, const char *path, struct error *err)
{
	const struct config_reader reader = {
	    .section = "dieseld", .set = set_from_file, .knows = is_setting, .user = o};
	int r;

	o->file = path;
	r = config_file_read(path, &reader, err);
	o->file = NULL;
	return r;
}

const struct settings_source *options_source(const struct daemon_options *o, const char *name)
{
	return &o->source[find_row(name) - option_rows];
}

/* Prefixes the error with the file and line of the setting. */
static int misplaced(const struct daemon_options *o, const char *name, int r, struct error *err)
{
	settings_place_error(options_source(o, name), err);
	return r;
}

/* One pass over the command line: for files, or for all else. */
static int parse_pass(struct daemon_options *o, int argc, char **argv, bool files, struct error *err)
{
	const struct settings_source source = {.given = true};
	const struct option_row *row;
	struct error wrong = ERROR_INIT;
	int found, r = 0;

	optind = 0;
	while (r == 0 && (found = option_next(dieseld_program.self, argc, argv, &row, &wrong)) != 0) {
		if (found < 0)
			return error_set(err, found, "%s. Try 'dieseld --help' for more information.",
					 wrong.text);
		if (found == OPTION_HELP)
			o->show_help = true;
		else if (!row->set && files)
			r = options_read_file(o, optarg, err);
		else if (row->set && !files)
			r = set_row(o, row, row->value ? optarg : "yes", &source, err);
	}
	return r;
}

/* Runs the checks that involve several settings. */
static int check_all(struct daemon_options *o, struct error *err)
{
	int r = option_check_cache(o, err);

	if (r < 0)
		return misplaced(o, "cache", r, err);
	if (!strcmp(o->admin_socket, o->socket_path)) {
		error_set(err, -EINVAL,
			  "admin-socket: %s is already the socket of clients (socket): write another path",
			  o->socket_path);
		return misplaced(o, "admin-socket", -EINVAL, err);
	}
	r = option_check_cluster(o, err);
	return r < 0 ? misplaced(o, "cluster", r, err) : settings_check(&o->settings, err);
}

int options_parse(struct daemon_options *o, int argc, char **argv, struct error *err)
{
	int r;

	/* Reads the file first, wherever --config stands: the command line takes precedence. */
	r = parse_pass(o, argc, argv, true, err);
	if (r == 0)
		r = parse_pass(o, argc, argv, false, err);
	if (r < 0)
		return r;
	if (optind < argc)
		return error_set(err, -EINVAL,
				 "%s: dieseld takes no arguments, only options. Try 'dieseld --help' for "
				 "more information.",
				 argv[optind]);
	o->serve.stage.folder = strcmp(o->stage, "off") ? o->stage : NULL;
	return check_all(o, err);
}

void options_free(struct daemon_options *o)
{
	free(o->socket_path);
	free(o->admin_socket);
	free(o->metrics);
	free(o->history);
	free(o->stage);
	for (int i = 0; i < OPTIONS_N_CLUSTER; i++)
		free(o->cluster[i]);
	for (uint32_t i = 0; i < o->n_codecs; i++)
		free(o->codecs[i]);
	free(o->codecs);
}
