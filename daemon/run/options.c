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
#include "pool.h"
#include "quota.h"

#define MAX_IDLE_S          INT64_C(31622400) /* 366 days */
#define MIN_CACHE_BYTES     (16ull << 20)     /* a few of the smallest chunks */
#define MIN_STAGE_BYTES     (16ull << 20)
#define DEFAULT_STAGE_BYTES (UINT64_C(16) << 30)
#define MOST_BYTES          (UINT64_C(1) << 50)

const char options_help[] =
    "usage: dieseld [OPTION ...]\n"
    "\n"
    "Serves datasets (dieselctl pack) to the training jobs of this node, from shared memory.\n"
    "Runs in the foreground; SIGTERM or SIGINT ends it, SIGHUP reads the file again.\n"
    "\n"
    "  --socket PATH    where to listen (" DIESEL_DEFAULT_SOCKET ")\n"
    "  --cache BYTES    memory for chunks, batches and snapshots, e.g. 8G (a quarter of the memory)\n"
    "  --prefetch N     read exactly N chunks ahead of the current window (tuned)\n"
    "  --workers N      verify and gather with exactly N CPU threads (tuned)\n"
    "  --client-workers N  exactly N Python workers, if the program leaves the number open (tuned)\n"
    "  --forms BYTES    keep so much of decoded images for each job that dieseld decodes for (tuned)\n"
    "  --tune MODE      on (default), off, or dry-run: decide and record, but change nothing\n"
    "  --cache-max BYTES, --cache-min BYTES  limits of all caches together (--cache; 0)\n"
    "  --workers-max N, --client-workers-max N, --prefetch-max N  (one per core; one per core; 64)\n"
    "  --forms-max BYTES  limit of --forms (--cache)\n"
    "  --read-limit BYTES  what is read of all storages together in a second, such as 500M (no limit)\n"
    "  --read-ops-limit N  the same in requests of up to 1 MiB (no limit)\n"
    "  --history FILE   database of decisions, or off ($STATE_DIRECTORY/history.db, else off)\n"
    "  --history-max BYTES  its size (64M)\n"
    "  --window N       chunks that are shuffled together when the client does not say (8)\n"
    "  --batches N      batches that are kept ready per session, 3 to 64 (8)\n"
    "  --user-share N   percent of connections, cache and chunks in memory that one user may take (75)\n"
    "  --cache-quota LIST  parts of the cache for users and groups, such as alice=20%,@physics=40%, or off\n"
    "                   (default); all others share the rest\n"
    "  --admin-user USER  who may set, sees all users' jobs and has no share: root (default; with dieseld's "
    "own\n"
    "                   user), a user's name or number, or none\n"
    "  --admin-socket PATH  who can connect to this socket of mode 0600 administers, too, or off (default)\n"
    "  --require-digest WHEN  refuse datasets without SHA-256: never (default), shared (opened by\n"
    "                   another user than the owner) or always\n"
    "  --codec FILE     load a codec from this shared object, which only root and dieseld's own user\n"
    "                   can change; may be given again\n"
    "  --stage DIR      keep chunks that do not fit in memory in this folder of a local disk, or off\n"
    "                   (default); it must be dieseld's user's alone, and is made if need be\n"
    "  --stage-when WHEN  slower (default): where storage is slower than that disk; or always\n"
    "  --stage-size BYTES  the most that it may take (16G)\n"
    "  --cluster URL    share datasets with the other nodes of a job, which are found in this Redis\n"
    "                   (redis://HOST), or off (default)\n"
    "  --cluster-listen ADDRESS:PORT  where those connect to\n"
    "  --cluster-advertise ADDRESS:PORT  that address as others see it (as --cluster-listen)\n"
    "  --cluster-name NAME  what this node is called there (the host's name)\n"
    "  --cluster-key FILE  a key that all nodes have; without it, loopback addresses alone\n"
    "  --cluster-limit BYTES  what is sent to each other node in a second, such as 100M (no limit)\n"
    "  --assist         read files ahead for the machine's other PyTorch jobs, where that helps (root)\n"
    "  --observe        serve nobody: measure what this daemon itself takes, and, with --assist, what the\n"
    "                   machine's PyTorch jobs wait for, before it changes anything\n"
    "  --exit-when-idle SECONDS  end when no client was there for so long; 0: never (default)\n"
    "  --no-io-uring    read by threads instead\n"
    "  --metrics ADDR   where Prometheus may ask, ADDRESS:PORT, or off (" OPTIONS_METRICS ")\n"
    "  --metrics-names WHEN  shown (default), or hidden: without users, programs, accounts and pods\n"
    "  --config FILE    INI file with a section [dieseld] and the names above without dashes\n"
    "  --check-config   say whether options and file are right, and end\n"
    "  --ready-fd N     write \"ready\\n\" to this descriptor when listening\n"
    "  -v, --verbose    say more\n"
    "  --help, --version\n";

#define AT(member)    .at = offsetof(struct options, member)
#define CLUSTER(what) .at = offsetof(struct options, cluster) + (what) * sizeof(char *)
/* A knob or a limit: its range is that of `dieselctl set`. */
#define TUNED(name_, key_, example_)                                                                         \
	{                                                                                                    \
		.name = (name_), .set = option_tuned, .key = (key_), .example = (example_)                   \
	}

static const struct option_row table[] = {
    {"socket", option_path, "/run/diesel/dieseld.sock", AT(socket_path)},
    {"cache", option_cache, "8G", AT(serve.knobs.cache_bytes), MIN_CACHE_BYTES, MOST_BYTES,
     "is not an amount of memory from 16M up"},
    {"prefetch", option_number, "8", AT(serve.knobs.prefetch_chunks), 0, 65536, .key = WIRE_SET_PREFETCH},
    {"workers", option_number, "4", AT(serve.knobs.workers), 1, POOL_MAX_WORKERS, .key = WIRE_SET_WORKERS},
    {"window", option_number, "8", AT(serve.window_chunks), 1, WIRE_WINDOW_MAX},
    {"batches", option_number, "8", AT(serve.n_slots), RING_MIN_SLOTS, RING_MAX_SLOTS},
    {"user-share", option_number, "75", AT(serve.user_share), 1, 100},
    {"cache-quota", option_quotas, "alice=20%, @physics=40%", AT(serve.quotas)},
    {"admin-user", option_admin, "root", AT(admin)},
    {"admin-socket", option_path, "/run/diesel-admin/admin.sock", AT(admin_socket), .words = "off"},
    {"require-digest", option_word, "never", AT(serve.require_digest), .words = "never|shared|always",
     .says = "is none of never, shared, always"},
    {"codec", option_codec, "/usr/lib/diesel/codecs/wav.so", AT(codecs)},
    {"exit-when-idle", option_number, "0", AT(exit_when_idle_s), 0, MAX_IDLE_S},
    {"no-io-uring", option_flag, "no", AT(serve.use_io_uring), .least = 1, .flag = true},
    {"metrics", option_metrics, OPTIONS_METRICS, AT(metrics)},
    {"metrics-names", option_flag_of_words, "hidden", AT(hide_names), .words = "shown|hidden",
     .says = "is neither shown nor hidden"},
    TUNED("client-workers", WIRE_SET_CLIENT_WORKERS, "2"),
    {"tune", option_tune, "on", .words = "off|on|dry-run", .says = "is none of on, off, dry-run",
     .key = WIRE_SET_TUNE},
    TUNED("cache-max", WIRE_SET_CACHE_MAX, "8G"),
    TUNED("cache-min", WIRE_SET_CACHE_MIN, "0"),
    TUNED("workers-max", WIRE_SET_WORKERS_MAX, "4"),
    TUNED("client-workers-max", WIRE_SET_CLIENT_WORKERS_MAX, "4"),
    TUNED("prefetch-max", WIRE_SET_PREFETCH_MAX, "64"),
    TUNED("forms", WIRE_SET_FORMS, "1G"),
    TUNED("forms-max", WIRE_SET_FORMS_MAX, "2G"),
    TUNED("read-limit", WIRE_SET_READ_LIMIT, "500M"),
    TUNED("read-ops-limit", WIRE_SET_READ_OPS_LIMIT, "1000"),
    {"history", option_path, "off", AT(history), .words = "off"},
    {"history-max", option_size, "64M", AT(history_max_bytes), HISTORY_MIN_BYTES, UINT64_C(1) << 40,
     "is not a size from 1M to 1T"},
    {"assist", option_flag, "no", AT(assist), .flag = true},
    {"observe", option_flag, "no", AT(serve.observe), .flag = true},
    {"stage", option_stage, "off", AT(stage)},
    {"stage-size", option_size, "100G", AT(serve.stage.bytes), MIN_STAGE_BYTES, MOST_BYTES,
     "is not a size from 16M up"},
    {"stage-when", option_flag_of_words, "slower", AT(serve.stage.always), .words = "slower|always",
     .says = "is neither slower nor always"},
    {"cluster", option_cluster, "redis://HOST:6379", CLUSTER(OPTIONS_CLUSTER_REDIS)},
    {"cluster-listen", option_text, "10.0.0.1:7700", CLUSTER(OPTIONS_CLUSTER_LISTEN)},
    {"cluster-advertise", option_text, "10.0.0.1:7700", CLUSTER(OPTIONS_CLUSTER_ADVERTISE)},
    {"cluster-name", option_text, "node-1", CLUSTER(OPTIONS_CLUSTER_NAME)},
    {"cluster-key", option_path, "/etc/diesel/cluster.key", CLUSTER(OPTIONS_CLUSTER_KEY)},
    {"cluster-limit", option_cluster_limit, "100M", CLUSTER(OPTIONS_CLUSTER_LIMIT), CLUSTER_LIMIT_MIN,
     CLUSTER_LIMIT_MAX, "is neither 0 nor a size from 1M to 1T, such as 100M"},
    {"config", .command = true},
    {"check-config", option_flag, AT(check_only), .flag = true, .command = true},
    {"ready-fd", option_ready_fd, AT(ready_fd), .command = true},
    {"verbose", option_flag, AT(verbose), .flag = true, .command = true},
    {"help", option_flag, AT(show_help), .flag = true, .command = true},
    {"version", option_flag, AT(show_version), .flag = true, .command = true},
};
#define N_ROWS (sizeof(table) / sizeof(table[0]))
_Static_assert(N_ROWS <= OPTIONS_MOST, "each has a source");

/* getopt_long() returns this for the first row; the rest follow. */
#define FIRST_KEY 256

static char *default_history(void)
{
	const char *directory = getenv("STATE_DIRECTORY");
	char *path = NULL;

	/* Several folders are separated by colons: then there is no telling which one. */
	if (!directory || directory[0] != '/' || strchr(directory, ':'))
		return strdup("off");
	return asprintf(&path, "%s/history.db", directory) < 0 ? NULL : path;
}

int options_init(struct options *o, uint64_t memory_bytes, uint32_t n_cpus)
{
	*o = (struct options){
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
	    .settings = {.room = {.memory_bytes = memory_bytes, .n_cpus = n_cpus}},
	    .history = default_history(),
	    .history_max_bytes = UINT64_C(64) << 20,
	    .ready_fd = -1,
	};
	if (o->serve.knobs.cache_bytes < MIN_CACHE_BYTES)
		o->serve.knobs.cache_bytes = MIN_CACHE_BYTES;
	o->settings.room.cache_bytes = o->serve.knobs.cache_bytes;
	return o->socket_path && o->metrics && o->history && o->stage && o->admin_socket ? 0 : -ENOMEM;
}

static const struct option_row *find_row(const char *name)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (strcmp(table[i].name, name) == 0)
			return &table[i];
	return NULL;
}

static int set_row(struct options *o, const struct option_row *row, const char *value,
		   const struct settings_source *source, struct error *err)
{
	uint32_t n_codecs = o->n_codecs;
	int r = row->set(o, row, value, err);

	if (r < 0)
		return r == -ENOMEM ? error_errno(err, r, "%s", row->name) : r;
	o->source[row - table] = *source;
	if (row->key)
		o->settings.source[row->key] = *source;
	if (row->set == option_cache)
		o->settings.room.cache_source = *source;
	if (o->n_codecs > n_codecs)
		o->codec_source[o->n_codecs - 1] = *source;
	return 0;
}

/* How many letters have to be put in, taken out or replaced; names are short. */
static size_t distance(const char *a, const char *b)
{
	size_t n = strlen(b), row[32];

	if (strlen(a) >= 32 || n >= 32)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t replaced = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			row[j] = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
			row[j] = replaced < row[j] ? replaced : row[j];
		}
	}
	return row[n];
}

static int unknown(const char *name, struct error *err)
{
	const struct option_row *row = find_row(name), *best = NULL;
	size_t least = 4;

	if (row)
		return error_set(err, -ENOENT, "write --%s on the command line", name);
	for (size_t i = 0; i < N_ROWS; i++) {
		size_t d = table[i].command ? SIZE_MAX : distance(name, table[i].name);

		if (d < least && d < strlen(name)) {
			least = d;
			best = &table[i];
		}
	}
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
	struct options *o = user;
	const struct settings_source source = {.given = true, .file = o->file, .line = line};
	const struct option_row *row = find_row(name);
	const struct settings_source *before = row ? &o->source[row - table] : NULL;
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

static int options_read_file(struct options *o, const char *path, struct error *err)
{
	const struct config_reader reader = {
	    .section = "dieseld", .set = set_from_file, .knows = is_setting, .user = o};
	int r;

	o->file = path;
	r = config_file_read(path, &reader, err);
	o->file = NULL;
	return r;
}

const struct settings_source *options_source(const struct options *o, const char *name)
{
	return &o->source[find_row(name) - table];
}

/* Puts the line of the file in front that the setting is on. */
static int misplaced(const struct options *o, const char *name, int r, struct error *err)
{
	settings_place_error(options_source(o, name), err);
	return r;
}

static void fill_long_options(struct option long_options[N_ROWS + 1])
{
	for (size_t i = 0; i < N_ROWS; i++)
		long_options[i] = (struct option){.name = table[i].name,
						  .has_arg = table[i].flag ? no_argument : required_argument,
						  .val = FIRST_KEY + (int)i};
	long_options[N_ROWS] = (struct option){0};
}

/* One pass over the command line: for files, or for all else. */
static int parse_pass(struct options *o, int argc, char **argv, bool files, struct error *err)
{
	const struct settings_source source = {.given = true};
	struct option long_options[N_ROWS + 1];
	int key, r = 0;

	fill_long_options(long_options);
	optind = 0;
	while (r == 0 && (key = getopt_long(argc, argv, ":v", long_options, NULL)) != -1) {
		const struct option_row *row;

		if (key == '?' || key == ':')
			return error_set(err, -EINVAL, "%s: %s; see dieseld --help", argv[optind - 1],
					 key == ':' ? "needs a value" : "no such option");
		row = key == 'v' ? find_row("verbose") : &table[key - FIRST_KEY];
		if (!row->set && files)
			r = options_read_file(o, optarg, err);
		else if (row->set && !files)
			r = set_row(o, row, row->flag ? "yes" : optarg, &source, err);
	}
	return r;
}

/* Checks that take more than one setting. */
static int check_all(struct options *o, struct error *err)
{
	int r = option_check_cache(o, err);

	if (r < 0)
		return misplaced(o, "cache", r, err);
	if (!strcmp(o->admin_socket, o->socket_path)) {
		error_set(err, -EINVAL, "admin-socket: %s is the socket of clients: write another path",
			  o->socket_path);
		return misplaced(o, "admin-socket", -EINVAL, err);
	}
	r = option_check_cluster(o, err);
	return r < 0 ? misplaced(o, "cluster", r, err) : settings_check(&o->settings, err);
}

int options_parse(struct options *o, int argc, char **argv, struct error *err)
{
	int r;

	opterr = 0;
	/* The file is read first, wherever --config stands: the command line wins. */
	r = parse_pass(o, argc, argv, true, err);
	if (r == 0)
		r = parse_pass(o, argc, argv, false, err);
	if (r < 0)
		return r;
	if (optind < argc)
		return error_set(err, -EINVAL,
				 "%s: dieseld takes no arguments, only options; see dieseld --help",
				 argv[optind]);
	o->serve.stage.folder = strcmp(o->stage, "off") ? o->stage : NULL;
	return check_all(o, err);
}

void options_free(struct options *o)
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
