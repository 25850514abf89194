/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "history/history.h"
#include "options_table.h"
#include "daemon/node/pool.h"
#include "daemon/node/quota.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/units.h"

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

static bool is_setting(const char *name)
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

static int set_from_file(struct daemon_options *o, const char *name, const char *value, int line,
			 struct error *err)
{
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

#define BLANKS  " \t\r\n\f\v"
#define SECTION "dieseld" /* of an INI file */

struct config_reading {
	struct daemon_options *options;
	const char *path;
	struct error *err;
	char *line;                  /* the original line */
	char section[64], other[64]; /* this section, and the first one that is not dieseld's */
	int number, other_number;
	bool ours, any_ours; /* this section is dieseld's; a section was */
};

/* Cuts blanks off both ends. */
static char *strip(char *text)
{
	size_t n;

	text += strspn(text, BLANKS);
	for (n = strlen(text); n > 0 && strchr(BLANKS, text[n - 1]); n--)
		;
	text[n] = '\0';
	return text;
}

/* Sets the error for a mistake at this place of the line. */
__attribute__((format(printf, 3, 4))) static int mistake(const struct config_reading *r, const char *at,
							 const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return error_set(r->err, -EINVAL, "%s:%d:%d: %s", r->path, r->number, (int)(at - r->line) + 1, text);
}

static int begin_section(struct config_reading *r, char *text)
{
	char *end = strchr(text, ']');
	const char *behind = end ? end + 1 + strspn(end + 1, BLANKS) : text;

	if (*behind && !strchr(";#", *behind))
		return mistake(r, text, "a section must be [NAME] on its own line: write [%s]", SECTION);
	*end = '\0';
	snprintf(r->section, sizeof(r->section), "%s", strip(text + 1));
	r->ours = strcmp(r->section, SECTION) == 0;
	r->any_ours |= r->ours;
	if (!r->ours && !r->other_number) {
		r->other_number = r->number;
		snprintf(r->other, sizeof(r->other), "%s", r->section);
	}
	return 0;
}

/* Removes the comment after a value, which begins with a blank and a semicolon. */
static void cut_comment(char *value)
{
	for (char *at = value; (at = strchr(at, ';')); at++) {
		if (at == value || strchr(BLANKS, at[-1])) {
			*at = '\0';
			return;
		}
	}
}

static int read_setting(struct config_reading *r, char *name, char *value)
{
	struct error err = ERROR_INIT;
	int result;

	if (!r->ours) {
		if (!is_setting(name) && r->section[0])
			return 0; /* of another program */
		if (!is_setting(name)) {
			(void)unknown(name, &err);
			return mistake(r, name,
				       "%s is outside a section, and is no setting: write [%s] on a line "
				       "above it, and %s",
				       name, SECTION, err.text);
		}
		return mistake(r, name, "%s has no effect %s%s%s: write [%s] on a line above it", name,
			       r->section[0] ? "in [" : "outside a section", r->section,
			       r->section[0] ? "]" : "", SECTION);
	}
	result = set_from_file(r->options, name, value, r->number, &err);
	if (result == -ENOENT)
		return mistake(r, name, "[%s] has no setting \"%s\"%s%s", r->section, name,
			       err.text[0] ? ": " : "", err.text);
	return result < 0 ? mistake(r, *value ? value : name, "%s", err.text) : 0;
}

static int read_line(struct config_reading *r, char *copy)
{
	char *text = strip(copy), *equals = strpbrk(text, "=:"), *name, *value;

	if (!*text || *text == ';' || *text == '#')
		return 0;
	if (*text == '[')
		return begin_section(r, text);
	if (!equals || equals == text)
		return mistake(r, text,
			       "expected [section] or name = value, such as cache = 4G, or ; and a comment");
	*equals = '\0';
	name = strip(text);
	cut_comment(equals + 1);
	value = strip(equals + 1);
	for (char *at = value; (at = strchr(at, '#')); at++)
		if (at > value && strchr(BLANKS, at[-1]) && r->ours)
			return mistake(r, at,
				       "a comment after a value must begin with ;, or stand on its own line");
	return read_setting(r, name, value);
}

/* Sets every setting of section [dieseld] of an INI file. Other sections belong to other programs, so a
 * setting of dieseld there is a mistake. Stops at the first mistake, and err begins with "FILE:LINE:COLUMN".
 * -ENOENT, -EACCES and the like: the file cannot be read. */
static int read_file(struct daemon_options *o, const char *path, struct error *err)
{
	struct config_reading r = {.options = o, .path = path, .err = err};
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;
	ssize_t n = -1;

	errno = file ? 0 : errno;
	while (file && (n = getline(&line, &size, file)) >= 0) {
		int result;

		r.line = line;
		if (r.number++ == 0 && strncmp(line, "\xef\xbb\xbf", 3) == 0) /* UTF-8 byte order mark */
			memset(line, ' ', 3);
		if (strlen(line) < (size_t)n)
			return mistake(&r, line, "the line contains a NUL byte: must be text");
		result = read_line(&r, line);
		if (result < 0)
			return result;
		errno = 0;
	}
	if (errno == EISDIR)
		return error_set(err, -EISDIR, "%s is a folder: name the file, such as %s/dieseld.conf", path,
				 path);
	if (errno)
		return error_errno(err, -errno, "cannot read the configuration %s", path);
	if (r.other_number && !r.any_ours)
		return error_set(err, -EINVAL,
				 "%s:%d:1: found [%s], but no [%s]: write [%s] above the settings", path,
				 r.other_number, r.other, SECTION, SECTION);
	return 0;
}

static int options_read_file(struct daemon_options *o, const char *path, struct error *err)
{
	int r;

	o->file = path;
	r = read_file(o, path, err);
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

/* Checks that involve more than one setting. */
static int option_check_cache(const struct daemon_options *o, struct error *err)
{
	const struct settings_space *space = &o->settings.space;
	uint64_t memory = space->machine_bytes ? space->machine_bytes : space->memory_bytes;
	char given[24], most[24];

	/* Accepts a cache larger than the cgroup's limit, with a warning (main.c): outside of the
	 * service, the limit of its cgroup is unknown. */
	if (!space->cache_source.file || !memory || space->cache_bytes <= memory)
		return 0;
	return error_set(
	    err, -EINVAL, "cache: %s is more than this machine's memory of %s: write cache = %lluM, or less",
	    units_format_bytes(given, sizeof(given), space->cache_bytes),
	    units_format_bytes(most, sizeof(most), memory), (unsigned long long)(memory >> 20) / 4);
}

static int option_check_cluster(struct daemon_options *o, struct error *err)
{
	char **c = o->cluster;

	if (!c[OPTIONS_CLUSTER_REDIS] || strcmp(c[OPTIONS_CLUSTER_REDIS], "off") == 0)
		return 0;
	if (!c[OPTIONS_CLUSTER_LISTEN])
		return error_set(
		    err, -EINVAL,
		    "cluster: requires cluster-listen ADDRESS:PORT, the address that other nodes connect to");
	/* A peer is known by its key or, on loopback addresses, as a process of root or our own user. */
	if (o->admin.who != ADMIN_ROOT && !c[OPTIONS_CLUSTER_KEY])
		return error_set(err, -EINVAL,
				 "cluster: with admin-user, requires cluster-key FILE, because without a key "
				 "any process of root can act as a peer");
	o->share = (struct cluster_options){.redis = c[OPTIONS_CLUSTER_REDIS],
					    .node = c[OPTIONS_CLUSTER_NAME],
					    .listen = c[OPTIONS_CLUSTER_LISTEN],
					    .advertise = c[OPTIONS_CLUSTER_ADVERTISE],
					    .key_file = c[OPTIONS_CLUSTER_KEY],
					    .peer_bytes_per_s = o->cluster_limit};
	return 0;
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

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_codecs(const struct daemon_options *a, const struct daemon_options *b)
{
	if (a->n_codecs != b->n_codecs)
		return false;
	for (uint32_t i = 0; i < a->n_codecs; i++) {
		if (strcmp(a->codecs[i], b->codecs[i]) != 0)
			return false;
	}
	return true;
}

static bool same_value(const struct option_row *row, const struct daemon_options *a,
		       const struct daemon_options *b)
{
	const void *x = (const char *)a + row->at, *y = (const char *)b + row->at;

	if (row->set == option_codec)
		return same_codecs(a, b);
	if (row->set == option_admin)
		return a->admin.who == b->admin.who && strcmp(a->admin.name, b->admin.name) == 0;
	return row->bytes ? memcmp(x, y, row->bytes) == 0 : same_text(*(char *const *)x, *(char *const *)y);
}

void options_reload(struct daemon_options *o, const struct daemon_options *again)
{
	for (const struct option_row *row = option_rows; row < option_rows + n_option_rows; row++) {
		if (row->command)
			continue;
		assert(row->applies == OPTION_START || row->bytes || row->key); /* a text would need a copy */
		if (row->applies != OPTION_START)
			memcpy((char *)o + row->at, (const char *)again + row->at, row->bytes);
		else if (!same_value(row, o, again))
			log_warning("%s takes effect when dieseld is restarted", row->name);
	}
	o->settings = again->settings;
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
