/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "config_file.h"
#include "lib/units.h"
#include "metrics.h"
#include "pool.h"

#define MIN_CACHE_BYTES (16ull << 20) /* a few of the smallest chunks */

const char options_help[] =
    "usage: dieseld [OPTION ...]\n"
    "\n"
    "Serves datasets (dieselctl pack) to the training jobs of this node, from shared memory.\n"
    "Runs in the foreground; SIGTERM or SIGINT ends it, SIGHUP reads the file again.\n"
    "\n"
    "  --socket PATH    where to listen (" DIESEL_DEFAULT_SOCKET ")\n"
    "  --cache BYTES    memory for chunks, batches and snapshots, e.g. 8G (a quarter of the memory)\n"
    "  --prefetch N     chunks to read ahead of the current window (8)\n"
    "  --workers N      CPU threads that verify and gather (one a core, at most 4)\n"
    "  --window N       chunks that are shuffled together when the client does not say (8)\n"
    "  --batches N      batches that are kept ready per session, 3 to 64 (8)\n"
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
	KEY_NO_IO_URING,
	KEY_METRICS,
	KEY_CONFIG, /* what follows is no setting of a file */
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
    {"no-io-uring", no_argument, NULL, KEY_NO_IO_URING},
    {"metrics", required_argument, NULL, KEY_METRICS},
    {"config", required_argument, NULL, KEY_CONFIG},
    {"check-config", no_argument, NULL, KEY_CHECK},
    {"ready-fd", required_argument, NULL, KEY_READY_FD},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, KEY_HELP},
    {"version", no_argument, NULL, KEY_VERSION},
    {0},
};

int options_init(struct options *o, uint64_t memory_bytes, uint32_t n_cpus)
{
	*o = (struct options){
	    .serve = {.knobs = {.cache_bytes = memory_bytes / 4,
				.prefetch_chunks = 8,
				.workers = n_cpus < 4 ? (n_cpus ? n_cpus : 1) : 4},
		      .window_chunks = 8,
		      .n_slots = 8,
		      .use_io_uring = true},
	    .socket_path = strdup(DIESEL_DEFAULT_SOCKET),
	    .metrics = strdup(OPTIONS_METRICS),
	    .ready_fd = -1,
	};
	if (o->serve.knobs.cache_bytes < MIN_CACHE_BYTES)
		o->serve.knobs.cache_bytes = MIN_CACHE_BYTES;
	return o->socket_path && o->metrics ? 0 : -ENOMEM;
}

static int set_number(const char *name, const char *value, int64_t min, int64_t max, uint32_t *ret,
		      struct error *err)
{
	int64_t number;

	if (units_parse_integer(value, min, max, &number) < 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is no number from %lld to %lld", name, value,
				 (long long)min, (long long)max);
	*ret = (uint32_t)number;
	return 0;
}

static int set_cache(struct options *o, const char *name, const char *value, struct error *err)
{
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < MIN_CACHE_BYTES || bytes > UINT64_C(1) << 50)
		return error_set(err, -EINVAL, "%s: \"%s\" is no amount of memory from 16M up, such as 4G",
				 name, value);
	o->serve.knobs.cache_bytes = bytes;
	o->cache_given = true;
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

static int set_option(struct options *o, int key, const char *name, const char *value, struct error *err)
{
	struct serve_options *s = &o->serve;
	uint32_t fd = 0;
	int r;

	switch (key) {
	case KEY_SOCKET: return set_text(&o->socket_path, value);
	case KEY_METRICS:
		r = strcmp(value, "off") ? metrics_check_address(value, err) : 0;
		return r < 0 ? r : set_text(&o->metrics, value);
	case KEY_CHECK: o->check_only = true; return 0;
	case KEY_CACHE: return set_cache(o, name, value, err);
	case KEY_PREFETCH: return set_number(name, value, 0, 65536, &s->knobs.prefetch_chunks, err);
	case KEY_WORKERS: return set_number(name, value, 1, POOL_MAX_WORKERS, &s->knobs.workers, err);
	case KEY_WINDOW: return set_number(name, value, 1, WIRE_WINDOW_MAX, &s->window_chunks, err);
	case KEY_BATCHES: return set_number(name, value, RING_MIN_SLOTS, RING_MAX_SLOTS, &s->n_slots, err);
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

/* Settings of a file are the options that say how to serve; not those that say what to do now. */
static bool is_setting(const struct option *option)
{
	return option->val < KEY_CONFIG && option->val != 'v';
}

static int set_from_file(void *user, const char *name, const char *value, struct error *err)
{
	for (const struct option *t = table; t->name; t++) {
		if (!is_setting(t) || strcmp(t->name, name) != 0)
			continue;
		if (t->val != KEY_NO_IO_URING)
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
	/* The file first, wherever it stands: the command line wins. */
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
	return 0;
}

void options_free(struct options *o)
{
	free(o->socket_path);
	free(o->metrics);
}
