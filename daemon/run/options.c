/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "config_file.h"
#include "history/history.h"
#include "lib/units.h"
#include "metrics.h"
#include "plugin.h"
#include "pool.h"
#include "quota.h"

#define MAX_IDLE_S          INT64_C(31622400) /* 366 days */
#define MIN_CACHE_BYTES     (16ull << 20)     /* a few of the smallest chunks */
#define MIN_STAGE_BYTES     (16ull << 20)
#define DEFAULT_STAGE_BYTES (UINT64_C(16) << 30)

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
    "  --admin-user USER  who may set, sees all users' jobs and has no share: root (default; with dieseld's "
    "own\n"
    "                   user), a user's name or number, or none\n"
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
    "  --cluster-forms WHEN  whether nodes give each other decoded samples: off (default), auto: where that\n"
    "                   is cheaper than decoding them, or always\n"
    "  --cluster-limit BYTES  what is sent to each other node in a second, such as 100M (no limit)\n"
    "  --assist         read files ahead for the machine's other PyTorch jobs, where that helps (root)\n"
    "  --exit-when-idle SECONDS  end when no client was there for so long; 0: never (default)\n"
    "  --no-io-uring    read by threads instead\n"
    "  --metrics ADDR   where Prometheus may ask, ADDRESS:PORT, or off (" OPTIONS_METRICS ")\n"
    "  --config FILE    INI file with a section [dieseld] and the names above without dashes\n"
    "  --check-config   say whether options and file are right, and end\n"
    "  --ready-fd N     write \"ready\\n\" to this descriptor when listening\n"
    "  -v, --verbose    say more\n"
    "  --help, --version\n";

enum option_key {
	KEY_SOCKET = 256,
	KEY_CACHE,
	KEY_PREFETCH,
	KEY_WORKERS,
	KEY_WINDOW,
	KEY_BATCHES,
	KEY_USER_SHARE,
	KEY_ADMIN_USER,
	KEY_REQUIRE_DIGEST,
	KEY_CODEC,
	KEY_EXIT_WHEN_IDLE,
	KEY_NO_IO_URING,
	KEY_METRICS,
	KEY_CLIENT_WORKERS,
	KEY_TUNE,
	KEY_CACHE_MAX,
	KEY_CACHE_MIN,
	KEY_WORKERS_MAX,
	KEY_CLIENT_WORKERS_MAX,
	KEY_PREFETCH_MAX,
	KEY_FORMS,
	KEY_FORMS_MAX,
	KEY_READ_LIMIT,
	KEY_READ_OPS_LIMIT,
	KEY_HISTORY,
	KEY_HISTORY_MAX,
	KEY_ASSIST,
	KEY_STAGE,
	KEY_STAGE_SIZE,
	KEY_STAGE_WHEN,
	KEY_CLUSTER,
	KEY_CLUSTER_LISTEN,
	KEY_CLUSTER_ADVERTISE,
	KEY_CLUSTER_NAME,
	KEY_CLUSTER_KEY,
	KEY_CLUSTER_FORMS,
	KEY_CLUSTER_LIMIT,
	KEY_CONFIG, /* those from here on are not settings of a file */
	KEY_CHECK,
	KEY_READY_FD,
	KEY_HELP,
	KEY_VERSION,
};

static const struct option table[] = {
    {"socket", required_argument, NULL, KEY_SOCKET},
    {"cache", required_argument, NULL, KEY_CACHE},
    {"prefetch", required_argument, NULL, KEY_PREFETCH},
    {"workers", required_argument, NULL, KEY_WORKERS},
    {"window", required_argument, NULL, KEY_WINDOW},
    {"batches", required_argument, NULL, KEY_BATCHES},
    {"user-share", required_argument, NULL, KEY_USER_SHARE},
    {"admin-user", required_argument, NULL, KEY_ADMIN_USER},
    {"require-digest", required_argument, NULL, KEY_REQUIRE_DIGEST},
    {"codec", required_argument, NULL, KEY_CODEC},
    {"exit-when-idle", required_argument, NULL, KEY_EXIT_WHEN_IDLE},
    {"no-io-uring", no_argument, NULL, KEY_NO_IO_URING},
    {"metrics", required_argument, NULL, KEY_METRICS},
    {"client-workers", required_argument, NULL, KEY_CLIENT_WORKERS},
    {"tune", required_argument, NULL, KEY_TUNE},
    {"cache-max", required_argument, NULL, KEY_CACHE_MAX},
    {"cache-min", required_argument, NULL, KEY_CACHE_MIN},
    {"workers-max", required_argument, NULL, KEY_WORKERS_MAX},
    {"client-workers-max", required_argument, NULL, KEY_CLIENT_WORKERS_MAX},
    {"prefetch-max", required_argument, NULL, KEY_PREFETCH_MAX},
    {"forms", required_argument, NULL, KEY_FORMS},
    {"forms-max", required_argument, NULL, KEY_FORMS_MAX},
    {"read-limit", required_argument, NULL, KEY_READ_LIMIT},
    {"read-ops-limit", required_argument, NULL, KEY_READ_OPS_LIMIT},
    {"history", required_argument, NULL, KEY_HISTORY},
    {"history-max", required_argument, NULL, KEY_HISTORY_MAX},
    {"assist", no_argument, NULL, KEY_ASSIST},
    {"stage", required_argument, NULL, KEY_STAGE},
    {"stage-size", required_argument, NULL, KEY_STAGE_SIZE},
    {"stage-when", required_argument, NULL, KEY_STAGE_WHEN},
    {"cluster", required_argument, NULL, KEY_CLUSTER},
    {"cluster-listen", required_argument, NULL, KEY_CLUSTER_LISTEN},
    {"cluster-advertise", required_argument, NULL, KEY_CLUSTER_ADVERTISE},
    {"cluster-name", required_argument, NULL, KEY_CLUSTER_NAME},
    {"cluster-key", required_argument, NULL, KEY_CLUSTER_KEY},
    {"cluster-forms", required_argument, NULL, KEY_CLUSTER_FORMS},
    {"cluster-limit", required_argument, NULL, KEY_CLUSTER_LIMIT},
    {"config", required_argument, NULL, KEY_CONFIG},
    {"check-config", no_argument, NULL, KEY_CHECK},
    {"ready-fd", required_argument, NULL, KEY_READY_FD},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, KEY_HELP},
    {"version", no_argument, NULL, KEY_VERSION},
    {0},
};

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
	    .settings = {.room = {.memory_bytes = memory_bytes, .n_cpus = n_cpus}},
	    .history = default_history(),
	    .history_max_bytes = UINT64_C(64) << 20,
	    .ready_fd = -1,
	};
	if (o->serve.knobs.cache_bytes < MIN_CACHE_BYTES)
		o->serve.knobs.cache_bytes = MIN_CACHE_BYTES;
	o->settings.room.cache_bytes = o->serve.knobs.cache_bytes;
	return o->socket_path && o->metrics && o->history && o->stage ? 0 : -ENOMEM;
}

static int set_number(const char *name, const char *value, int64_t min, int64_t max, uint32_t *ret,
		      struct error *err)
{
	int64_t number;

	if (units_parse_integer(value, min, max, &number) < 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is not a number from %lld to %lld", name, value,
				 (long long)min, (long long)max);
	*ret = (uint32_t)number;
	return 0;
}

static int set_cache(struct options *o, const char *name, const char *value, struct error *err)
{
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < MIN_CACHE_BYTES || bytes > UINT64_C(1) << 50)
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is not an amount of memory from 16M up, such as 4G", name,
				 value);
	o->serve.knobs.cache_bytes = bytes;
	o->cache_given = true;
	o->settings.room.cache_bytes = bytes;
	return 0;
}

/* Sets a number of the tuner's. Its range is that of `dieselctl set`, but is checked when all settings are
 * known. */
static int set_tuner(struct options *o, enum wire_setting_key key, const char *name, const char *value,
		     struct error *err)
{
	uint64_t bytes;
	uint32_t number = 0;
	int r;

	if (settings_is_bytes(key)) {
		if (units_parse_bytes(value, &bytes) < 0)
			return error_set(err, -EINVAL, "%s: \"%s\" is not a number of bytes, such as 4G",
					 name, value);
	} else {
		r = set_number(name, value, 0, 65536, &number, err);
		if (r < 0)
			return r;
		bytes = number;
	}
	o->settings.configured[key] = bytes;
	o->settings.is_configured[key] = true;
	return 0;
}

static int set_tune(struct options *o, const char *name, const char *value, struct error *err)
{
	for (enum wire_tune tune = WIRE_TUNE_OFF; tune < WIRE_N_TUNES; tune++) {
		if (strcmp(value, settings_tune_name(tune)) != 0)
			continue;
		o->settings.configured[WIRE_SET_TUNE] = tune;
		o->settings.is_configured[WIRE_SET_TUNE] = true;
		return 0;
	}
	return error_set(err, -EINVAL, "%s: \"%s\" is none of on, off, dry-run", name, value);
}

static int set_require_digest(struct options *o, const char *name, const char *value, struct error *err)
{
	static const char *const names[] = {
	    [SERVING_DIGEST_NEVER] = "never",
	    [SERVING_DIGEST_SHARED] = "shared",
	    [SERVING_DIGEST_ALWAYS] = "always",
	};

	for (enum serving_digest when = SERVING_DIGEST_NEVER; when <= SERVING_DIGEST_ALWAYS; when++) {
		if (strcmp(value, names[when]) != 0)
			continue;
		o->serve.require_digest = when;
		return 0;
	}
	return error_set(err, -EINVAL, "%s: \"%s\" is none of never, shared, always", name, value);
}

static int set_history_max(struct options *o, const char *name, const char *value, struct error *err)
{
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < HISTORY_MIN_BYTES || bytes > UINT64_C(1) << 40)
		return error_set(err, -EINVAL, "%s: \"%s\" is not a size from 1M to 1T", name, value);
	o->history_max_bytes = bytes;
	return 0;
}

static int set_stage_when(struct options *o, const char *name, const char *value, struct error *err)
{
	if (strcmp(value, "slower") != 0 && strcmp(value, "always") != 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is neither slower nor always", name, value);
	o->serve.stage.always = value[0] == 'a';
	return 0;
}

static int set_stage_size(struct options *o, const char *name, const char *value, struct error *err)
{
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < MIN_STAGE_BYTES || bytes > UINT64_C(1) << 50)
		return error_set(err, -EINVAL, "%s: \"%s\" is not a size from 16M up, such as 100G", name,
				 value);
	o->serve.stage.bytes = bytes;
	return 0;
}

static int set_text(char **text, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*text);
	*text = copy;
	return 0;
}

/* Whether it may be used is looked at when it is to be: the disk may not answer. */
static int set_stage(struct options *o, const char *name, const char *value, struct error *err)
{
	if (strcmp(value, "off") != 0 && (value[0] != '/' || strlen(value) >= PATH_MAX))
		return error_set(err, -EINVAL, "%s: \"%s\" is neither an absolute path nor off", name, value);
	return set_text(&o->stage, value);
}

static int set_cluster(struct options *o, const char *name, const char *value, struct error *err)
{
	if (strcmp(value, "off") != 0 && strncmp(value, "redis://", strlen("redis://")) != 0 &&
	    strncmp(value, "rediss://", strlen("rediss://")) != 0)
		return error_set(err, -EINVAL,
				 "%s: it is neither off nor a URL as redis://HOST[:PORT] or rediss://HOST",
				 name); /* without the value: it may hold a password */
	return set_text(&o->cluster[OPTIONS_CLUSTER_REDIS], value);
}

static int check_cluster_forms(struct options *o, struct error *err)
{
	const char *value = o->cluster[OPTIONS_CLUSTER_FORMS];
	static const char *const names[] = {
	    [FORM_TRAVEL_OFF] = "off", [FORM_TRAVEL_AUTO] = "auto", [FORM_TRAVEL_ALWAYS] = "always"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!value || strcmp(value, names[i]) == 0) {
			o->serve.form_travel = (enum form_travel)i;
			return 0;
		}
	return error_set(err, -EINVAL, "cluster-forms: \"%s\" is neither off nor auto nor always", value);
}

static int check_cluster_limit(const char *value, uint64_t *ret, struct error *err)
{
	uint64_t bytes = 0;

	if (value && strcmp(value, "0") != 0 &&
	    (units_parse_bytes(value, &bytes) < 0 || bytes < CLUSTER_LIMIT_MIN || bytes > CLUSTER_LIMIT_MAX))
		return error_set(err, -EINVAL,
				 "cluster-limit: \"%s\" is neither 0 nor a size from 1M to 1T, such as 100M",
				 value);
	*ret = bytes;
	return 0;
}

/* What it takes beside each other. */
static int check_cluster(struct options *o, struct error *err)
{
	char **c = o->cluster;
	uint64_t limit = 0;
	int r = check_cluster_forms(o, err);

	if (r == 0)
		r = check_cluster_limit(c[OPTIONS_CLUSTER_LIMIT], &limit, err);
	if (r < 0)
		return r;
	if (!c[OPTIONS_CLUSTER_REDIS] || strcmp(c[OPTIONS_CLUSTER_REDIS], "off") == 0)
		return 0;
	if (!c[OPTIONS_CLUSTER_LISTEN])
		return error_set(
		    err, -EINVAL,
		    "cluster: it takes cluster-listen ADDRESS:PORT, where other nodes connect to");
	/* A peer is known by its key or, on loopback addresses, as a process of root or our own user. */
	if (o->admin.who != ADMIN_ROOT && !c[OPTIONS_CLUSTER_KEY])
		return error_set(
		    err, -EINVAL,
		    "cluster: with admin-user it takes cluster-key FILE: without a key, any process "
		    "of root is taken for a peer");
	o->share = (struct cluster_options){.redis = c[OPTIONS_CLUSTER_REDIS],
					    .node = c[OPTIONS_CLUSTER_NAME],
					    .listen = c[OPTIONS_CLUSTER_LISTEN],
					    .advertise = c[OPTIONS_CLUSTER_ADVERTISE],
					    .key_file = c[OPTIONS_CLUSTER_KEY],
					    .peer_bytes_per_s = limit};
	return 0;
}

/* Whether it may be loaded is looked at when that is to be done. */
static int add_codec(struct options *o, const char *name, const char *value, struct error *err)
{
	char **codecs, *copy;

	if (value[0] != '/')
		return error_set(err, -EINVAL, "%s: \"%s\" is not an absolute path", name, value);
	for (uint32_t i = 0; i < o->n_codecs; i++) {
		if (strcmp(o->codecs[i], value) == 0)
			return error_set(err, -EINVAL, "%s: %s is named twice", name, value);
	}
	if (o->n_codecs == PLUGINS_MAX)
		return error_set(err, -EINVAL, "%s: there can be %d codecs", name, PLUGINS_MAX);
	codecs = reallocarray(o->codecs, o->n_codecs + 1, sizeof(*codecs));
	if (!codecs)
		return -ENOMEM;
	o->codecs = codecs;
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	o->codecs[o->n_codecs++] = copy;
	return 0;
}

static int set_option(struct options *o, int key, const char *name, const char *value, struct error *err)
{
	struct serving_options *s = &o->serve;
	uint32_t fd = 0;
	int r;

	switch (key) {
	case KEY_SOCKET: return set_text(&o->socket_path, value);
	case KEY_METRICS:
		r = strcmp(value, "off") ? metrics_check_address(value, err) : 0;
		return r < 0 ? r : set_text(&o->metrics, value);
	case KEY_CHECK: o->check_only = true; return 0;
	case KEY_CACHE: return set_cache(o, name, value, err);
	case KEY_PREFETCH:
		r = set_number(name, value, 0, 65536, &s->knobs.prefetch_chunks, err);
		return r < 0 ? r : set_tuner(o, WIRE_SET_PREFETCH, name, value, err);
	case KEY_WORKERS:
		r = set_number(name, value, 1, POOL_MAX_WORKERS, &s->knobs.workers, err);
		return r < 0 ? r : set_tuner(o, WIRE_SET_WORKERS, name, value, err);
	case KEY_CLIENT_WORKERS: return set_tuner(o, WIRE_SET_CLIENT_WORKERS, name, value, err);
	case KEY_TUNE: return set_tune(o, name, value, err);
	case KEY_CACHE_MAX: return set_tuner(o, WIRE_SET_CACHE_MAX, name, value, err);
	case KEY_CACHE_MIN: return set_tuner(o, WIRE_SET_CACHE_MIN, name, value, err);
	case KEY_WORKERS_MAX: return set_tuner(o, WIRE_SET_WORKERS_MAX, name, value, err);
	case KEY_CLIENT_WORKERS_MAX: return set_tuner(o, WIRE_SET_CLIENT_WORKERS_MAX, name, value, err);
	case KEY_PREFETCH_MAX: return set_tuner(o, WIRE_SET_PREFETCH_MAX, name, value, err);
	case KEY_FORMS: return set_tuner(o, WIRE_SET_FORMS, name, value, err);
	case KEY_FORMS_MAX: return set_tuner(o, WIRE_SET_FORMS_MAX, name, value, err);
	case KEY_READ_LIMIT: return set_tuner(o, WIRE_SET_READ_LIMIT, name, value, err);
	case KEY_READ_OPS_LIMIT: return set_tuner(o, WIRE_SET_READ_OPS_LIMIT, name, value, err);
	case KEY_HISTORY: return set_text(&o->history, value);
	case KEY_HISTORY_MAX: return set_history_max(o, name, value, err);
	case KEY_WINDOW: return set_number(name, value, 1, WIRE_WINDOW_MAX, &s->window_chunks, err);
	case KEY_BATCHES: return set_number(name, value, RING_MIN_SLOTS, RING_MAX_SLOTS, &s->n_slots, err);
	case KEY_USER_SHARE: return set_number(name, value, 1, 100, &s->user_share, err);
	case KEY_ADMIN_USER: return admin_parse(name, value, &o->admin, err);
	case KEY_REQUIRE_DIGEST: return set_require_digest(o, name, value, err);
	case KEY_CODEC: return add_codec(o, name, value, err);
	case KEY_EXIT_WHEN_IDLE: return set_number(name, value, 0, MAX_IDLE_S, &o->exit_when_idle_s, err);
	case KEY_ASSIST: o->assist = true; return 0;
	case KEY_STAGE: return set_stage(o, name, value, err);
	case KEY_STAGE_WHEN: return set_stage_when(o, name, value, err);
	case KEY_STAGE_SIZE: return set_stage_size(o, name, value, err);
	case KEY_CLUSTER: return set_cluster(o, name, value, err);
	case KEY_CLUSTER_LISTEN:
	case KEY_CLUSTER_ADVERTISE:
	case KEY_CLUSTER_NAME:
	case KEY_CLUSTER_KEY:
	case KEY_CLUSTER_FORMS:
	case KEY_CLUSTER_LIMIT:
		return set_text(&o->cluster[OPTIONS_CLUSTER_REDIS + (key - KEY_CLUSTER)], value);
	case KEY_NO_IO_URING: s->use_io_uring = false; return 0;
	case KEY_READY_FD:
		r = set_number(name, value, 0, 65535, &fd, err);
		if (r == 0)
			o->ready_fd = (int)fd;
		return r;
	case 'v': o->verbose = true; return 0;
	case KEY_HELP: o->show_help = true; return 0;
	case KEY_VERSION: o->show_version = true; return 0;
	}
	return -EINVAL;
}

/* The settings of a file are the options that say how to serve, not those that say what to do now. */
static bool is_setting(const struct option *option)
{
	return option->val < KEY_CONFIG && option->val != 'v';
}

static int set_from_file(void *user, const char *name, const char *value, struct error *err)
{
	for (const struct option *t = table; t->name; t++) {
		if (!is_setting(t) || strcmp(t->name, name) != 0)
			continue;
		if (t->has_arg)
			return set_option(user, t->val, name, value, err);
		if (!strcmp(value, "true") || !strcmp(value, "yes"))
			return set_option(user, t->val, name, value, err);
		if (!strcmp(value, "false") || !strcmp(value, "no"))
			return 0;
		return error_set(err, -EINVAL, "%s: \"%s\" is neither yes nor no", name, value);
	}
	return -ENOENT;
}

int options_read_file(struct options *o, const char *path, struct error *err)
{
	return config_file_read(path, "dieseld", set_from_file, o, err);
}

int options_parse(struct options *o, int argc, char **argv, struct error *err)
{
	int key, r, index = 0;

	opterr = 0;
	/* The file is read first, wherever --config stands: the command line wins. */
	for (int pass = 0; pass < 2; pass++) {
		optind = 0;
		while ((key = getopt_long(argc, argv, ":v", table, &index)) != -1) {
			if (key == '?' || key == ':')
				return error_set(err, -EINVAL, "%s: %s; see dieseld --help", argv[optind - 1],
						 key == ':' ? "needs a value" : "no such option");
			if ((key == KEY_CONFIG) != (pass == 0))
				continue;
			if (pass == 0)
				r = options_read_file(o, optarg, err);
			else
				r = set_option(o, key, key == 'v' ? "-v" : table[index].name, optarg, err);
			if (r < 0)
				return r;
		}
	}
	if (optind < argc)
		return error_set(err, -EINVAL,
				 "%s: dieseld takes no arguments, only options; see dieseld --help",
				 argv[optind]);
	o->serve.stage.folder = strcmp(o->stage, "off") ? o->stage : NULL;
	r = check_cluster(o, err);
	return r < 0 ? r : settings_check(&o->settings, err);
}

void options_free(struct options *o)
{
	free(o->socket_path);
	free(o->metrics);
	free(o->history);
	free(o->stage);
	for (int i = 0; i < OPTIONS_N_CLUSTER; i++)
		free(o->cluster[i]);
	for (uint32_t i = 0; i < o->n_codecs; i++)
		free(o->codecs[i]);
	free(o->codecs);
}
