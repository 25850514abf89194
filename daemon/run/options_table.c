/* SPDX-License-Identifier: Apache-2.0 */
#include "options_table.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "client/diesel.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "history/history.h"
#include "daemon/node/pool.h"
#include "daemon/sandboxed/plugin.h"
#include "lib/units.h"
#include "metrics.h"

static void *field(struct daemon_options *o, const struct option_row *row)
{
	return (char *)o + row->at;
}

static void configure(struct daemon_options *o, const struct option_row *row, uint64_t value)
{
	if (!row->key)
		return;
	o->settings.configured[row->key] = value;
	o->settings.is_configured[row->key] = true;
}

static int wrong(const struct option_row *row, const char *value, struct error *err)
{
	return error_set(err, -EINVAL, "%s: invalid value \"%s\": %s", row->name, value, row->says);
}

static int parse_number(const struct option_row *row, const char *value, uint64_t least, uint64_t most,
			uint64_t *ret, struct error *err)
{
	int64_t number;

	if (units_parse_integer(value, (int64_t)least, (int64_t)most, &number) < 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is not a number from %llu to %llu", row->name,
				 value, (unsigned long long)least, (unsigned long long)most);
	*ret = (uint64_t)number;
	return 0;
}

static int option_number(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t number = 0;
	int r = parse_number(row, value, row->least, row->most, &number, err);

	if (r < 0)
		return r;
	*(uint32_t *)field(o, row) = (uint32_t)number;
	configure(o, row, number);
	return 0;
}

static int option_ready_fd(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t number = 0;
	int r = parse_number(row, value, 0, 65535, &number, err);

	if (r == 0)
		o->ready_fd = (int)number;
	return r;
}

static int option_size(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < row->least || bytes > row->most)
		return wrong(row, value, err);
	*(uint64_t *)field(o, row) = bytes;
	return 0;
}

int option_cache(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	int r = option_size(o, row, value, err);

	if (r == 0)
		o->settings.space.cache_bytes = o->serve.knobs.cache_bytes;
	return r;
}

/* Sets an option of the tuner. The range is checked when all settings are known. */
static int option_tuned(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t number = 0;
	int r = 0;

	if (!settings_is_bytes(row->key))
		r = parse_number(row, value, 0, 65536, &number, err);
	else if (units_parse_bytes(value, &number) < 0)
		r = error_set(err, -EINVAL, "%s: \"%s\" is not a number of bytes, such as 4G", row->name,
			      value);
	if (r == 0)
		configure(o, row, number);
	return r;
}

static int option_flag(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	bool yes = !strcmp(value, "true") || !strcmp(value, "yes");

	if (!yes && strcmp(value, "false") != 0 && strcmp(value, "no") != 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is neither yes nor no", row->name, value);
	*(bool *)field(o, row) = yes != (row->least == 1);
	return 0;
}

static int option_word(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);

	_Static_assert(sizeof(((struct daemon_options *)NULL)->serve.require_digest) == sizeof(uint32_t),
		       "a choice must be a 32-bit number");
	if (place < 0)
		return wrong(row, value, err);
	*(uint32_t *)field(options, row) = (uint32_t)place;
	return 0;
}

static int option_flag_of_words(void *options, const struct option_row *row, const char *value,
				struct error *err)
{
	int place = option_word_place(row, value);

	if (place < 0)
		return wrong(row, value, err);
	*(bool *)field(options, row) = place == 1;
	return 0;
}

static int option_tune(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);

	_Static_assert(WIRE_TUNE_OFF == 0 && WIRE_TUNE_ON == 1 && WIRE_TUNE_DRY_RUN == 2,
		       "the values must be in the order of the words");
	if (place < 0)
		return wrong(row, value, err);
	configure(options, row, (uint64_t)place);
	return 0;
}

static int option_text(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	char *copy = strdup(value), **text = field(o, row);

	if (!copy)
		return -ENOMEM;
	free(*text);
	*text = copy;
	return 0;
}

/* Requires an absolute path in a file: it must not depend on the folder in which dieseld is started. */
static int option_path(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	bool off = row->words && strcmp(value, row->words) == 0;

	if (o->file && !off && value[0] != '/')
		return error_set(err, -EINVAL, "%s: \"%s\" is not an absolute path%s", row->name, value,
				 row->words ? " or off" : "");
	if ((field(o, row) == &o->socket_path || field(o, row) == &o->admin_socket) &&
	    strlen(value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return error_set(
		    err, -EINVAL, "%s: the path of a socket must have at most %zu bytes, this one has %zu",
		    row->name, sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1, strlen(value));
	return option_text(o, row, value, err);
}

/* Checks only the syntax here. The path itself is checked when it is first used, because the disk may not
 * answer. */
static int option_stage(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	if (strcmp(value, "off") != 0 && (value[0] != '/' || strlen(value) >= PATH_MAX))
		return error_set(err, -EINVAL, "%s: \"%s\" is neither an absolute path nor off", row->name,
				 value);
	return option_text(o, row, value, err);
}

int option_admin(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	return admin_parse(row->name, value, &o->admin, err);
}

static int option_quotas(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	return cache_quotas_parse(row->name, value, &o->serve.quotas, err);
}

static int option_metrics(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	int r = strcmp(value, "off") ? metrics_check_address(value, err) : 0;

	return r < 0 ? r : option_text(o, row, value, err);
}

int option_codec(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	char **codecs, *copy;

	if (strcmp(value, "off") == 0)
		return 0;
	if (value[0] != '/')
		return error_set(err, -EINVAL, "%s: \"%s\" is not an absolute path", row->name, value);
	for (uint32_t i = 0; i < o->n_codecs; i++) {
		if (strcmp(o->codecs[i], value) == 0)
			return error_set(err, -EINVAL, "%s: %s is named twice: remove one of the two",
					 row->name, value);
	}
	if (o->n_codecs == PLUGINS_MAX)
		return error_set(err, -EINVAL, "%s: at most %d codecs can be loaded: remove one", row->name,
				 PLUGINS_MAX);
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

static int option_cluster(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	if (strcmp(value, "off") != 0 && strncmp(value, "redis://", strlen("redis://")) != 0 &&
	    strncmp(value, "rediss://", strlen("rediss://")) != 0)
		return error_set(err, -EINVAL,
				 "%s: must be off or a URL such as redis://HOST[:PORT] or rediss://HOST",
				 row->name); /* without the value: it may hold a password */
	return option_text(o, row, value, err);
}

static int option_cluster_limit(void *options, const struct option_row *row, const char *value,
				struct error *err)
{
	struct daemon_options *o = options;
	uint64_t bytes = 0;

	if (strcmp(value, "0") != 0 &&
	    (units_parse_bytes(value, &bytes) < 0 || bytes < row->least || bytes > row->most))
		return wrong(row, value, err);
	o->cluster_limit = bytes;
	return option_text(o, row, value, err);
}

#define MAX_IDLE_S      INT64_C(31622400) /* 366 days */
#define MIN_STAGE_BYTES (16ull << 20)
#define MOST_BYTES      (UINT64_C(1) << 50)

#define FIELD(member)   (((struct daemon_options *)NULL)->member)
#define IS_TEXT(member) _Generic(FIELD(member), char * : true, default : false)
#define AT(member)                                                                                           \
	.bytes = IS_TEXT(member) ? 0 : sizeof(FIELD(member)), .at = offsetof(struct daemon_options, member)
#define CLUSTER(what) .at = offsetof(struct daemon_options, cluster) + (what) * sizeof(char *)

/* All options of dieseld. These rows define getopt's arguments, --help, the configuration file,
 * --check-config, the manual, the shipped file and the completions (lib/options.h). */
const struct option_row option_rows[] = {
    {"cache", option_cache, "8G", AT(serve.knobs.cache_bytes), OPTIONS_MIN_CACHE_BYTES, MOST_BYTES,
     "must be an amount of memory of at least 16M", .group = "Memory and tuning", .value = "BYTES",
     .applies = OPTION_RELOAD,
     .help = "memory for chunks, batches, snapshots and decoded copies together (default: a quarter of the "
	     "memory)",
     .about = "Memory for chunks, batches, snapshots and decoded copies together, e.g. 8G. Default: a "
	      "quarter of the memory that the process may use (machine and cgroup). Resident memory stays "
	      "below this plus 64 MiB."},
    {"tune", option_tune, "on", .words = "off|on|dry-run", .says = "must be on, off or dry-run",
     .key = WIRE_SET_TUNE, .value = "MODE", .usual = "on", .applies = OPTION_RELOAD,
     .help = "give each job the cache, prefetch and workers that it needs; dry-run: only decide and record",
     .about = "`on` (default): once a second, give each job the cache, prefetch and workers that it needs "
	      "and no more; `off`: do not tune; `dry-run`: decide and record, but change nothing."},
    {"prefetch", option_number, "8", AT(serve.knobs.prefetch_chunks), 0, 65536, .key = WIRE_SET_PREFETCH,
     .value = "N", .applies = OPTION_RELOAD,
     .help = "prefetch exactly N chunks beyond the current window (default: tuned)",
     .about = "Prefetch exactly this many chunks beyond a session's current window. Without this option: 8 "
	      "at first, then the number that the tuner finds."},
    {"workers", option_number, "4", AT(serve.knobs.workers), 1, POOL_MAX_WORKERS, .key = WIRE_SET_WORKERS,
     .value = "N", .applies = OPTION_RELOAD,
     .help = "verify chunks and gather batches with exactly N CPU threads (default: tuned)",
     .about = "Use exactly this many CPU threads to verify chunks and gather batches. Without this option: "
	      "at first one per core, but at most 4, then the number that the tuner finds."},
    {"client-workers", option_tuned, "2", .key = WIRE_SET_CLIENT_WORKERS, .value = "N",
     .applies = OPTION_RELOAD,
     .help = "run exactly N Python workers, if the program leaves the number open (default: tuned)",
     .about = "Have exactly this many Python workers run a job's transforms, where its program leaves the "
	      "number to the daemon (`num_workers=\"auto\"`). Without this option the tuner chooses; 0 is a "
	      "possible choice."},
    {"decoded-cache", option_tuned, "1G", .key = WIRE_SET_DECODED_CACHE, .value = "BYTES",
     .applies = OPTION_RELOAD,
     .help = "memory for the decoded images of each job whose images dieseld decodes (default: tuned)",
     .about = "Where dieseld decodes a job's images, keep up to this many bytes of decoded images, so that "
	      "later epochs need not decode them again. Random crops and flips are still drawn for each "
	      "epoch, and tensors are the same as without the option. The memory is part of `--cache`. It is "
	      "memory that sessions and their chunks do not need, and is evicted first when memory is short. "
	      "Without this option the tuner decides for each job whether decoded images pay; 0: never."},
    {"cache-max", option_tuned, "8G", .key = WIRE_SET_CACHE_MAX, .value = "BYTES", .applies = OPTION_RELOAD,
     .help = "maximum of all caches together (default: as --cache)",
     .about = "The most memory that the tuner gives to all caches together, and that they borrow. Default: "
	      "the value of `--cache`."},
    {"cache-min", option_tuned, "0", .key = WIRE_SET_CACHE_MIN, .value = "BYTES", .usual = "0",
     .applies = OPTION_RELOAD, .help = "minimum of all caches together",
     .about = "The least memory that the tuner gives to all caches together. Default: 0."},
    {"workers-max", option_tuned, "4", .key = WIRE_SET_WORKERS_MAX, .value = "N", .applies = OPTION_RELOAD,
     .help = "limit of --workers (default: one per core)",
     .about = "The most CPU threads that the tuner uses. Default: one per core. Unless this option, "
	      "`--workers` or a pin sets a number, no thread works for one user on cores that the control "
	      "group of another user's job has (cpuset.cpus.effective, cpu.max)."},
    {"client-workers-max", option_tuned, "4", .key = WIRE_SET_CLIENT_WORKERS_MAX, .value = "N",
     .applies = OPTION_RELOAD, .help = "limit of --client-workers (default: one per core)",
     .about = "The most Python workers that the tuner gives to all jobs together. Default: one per core."},
    {"prefetch-max", option_tuned, "64", .key = WIRE_SET_PREFETCH_MAX, .value = "N", .usual = "64",
     .applies = OPTION_RELOAD, .help = "limit of --prefetch",
     .about = "The most chunks that the tuner prefetches. Default: 64."},
    {"decoded-cache-max", option_tuned, "2G", .key = WIRE_SET_DECODED_CACHE_MAX, .value = "BYTES",
     .applies = OPTION_RELOAD, .help = "limit of --decoded-cache (default: as --cache)",
     .about = "The largest value that `--decoded-cache` can have. Default: the value of `--cache`; 0: no "
	      "decoded image is ever kept."},
    {"read-limit", option_tuned, "500M", .key = WIRE_SET_READ_LIMIT, .value = "BYTES", .usual = "0",
     .applies = OPTION_RELOAD, .help = "limit on bytes read per second from all storages together; 0: none",
     .about =
	 "The most bytes of chunks that are read per second, from all storages together, such as 500M. "
	 "Users and jobs take turns within the rate, whichever storages they read from. Reads may exceed "
	 "it by 0.1 s and one chunk. Default: 0, no limit."},
    {"read-ops-limit", option_tuned, "1000", .key = WIRE_SET_READ_OPS_LIMIT, .value = "N", .usual = "0",
     .applies = OPTION_RELOAD,
     .help = "limit on requests of up to 1 MiB per second to all storages together; 0: none",
     .about = "The most requests of up to 1 MiB that are sent per second to all storages together. Default: "
	      "0, no limit."},
    {"history", option_path, "off", AT(history), .words = "off", .value = "FILE", .takes = OPTION_FILE,
     .help = "database of decisions, or off (default: $STATE_DIRECTORY/history.db, else off)",
     .about = "Database of decisions, or `off`. Default: history.db in the state directory of the unit "
	      "(`$STATE_DIRECTORY`), and off without one. When its disk is full, decisions are kept in "
	      "memory. The file, its folder and all folders above must belong to root or to dieseld's user, "
	      "and others must not be able to write to them; a sticky folder is fine."},
    {"history-max", option_size, "64M", AT(history_max_bytes), HISTORY_MIN_BYTES, UINT64_C(1) << 40,
     "must be a size from 1M to 1T", .value = "BYTES", .usual = "64M", .help = "size limit of the history",
     .about = "Maximum size of the history. Default 64M. The oldest decisions are deleted first."},
    {"socket", option_path, "/run/diesel/dieseld.sock", AT(socket_path), .group = "Serving", .value = "PATH",
     .usual = "/run/diesel/dieseld.sock", .takes = OPTION_FILE, .help = "path of the socket to listen on",
     .about = "The socket to listen on. Default /run/diesel/dieseld.sock; clients read the environment "
	      "variable DIESEL_SOCKET. The file `PATH.lock` next to it names the process that serves it. A "
	      "socket left behind by a dead daemon is replaced."},
    {"window", option_number, "8", AT(serve.window_chunks), 1, WIRE_WINDOW_MAX, .value = "N", .usual = "8",
     .applies = OPTION_SESSIONS, .help = "chunks that are shuffled together if the client gives no number",
     .about = "Number of chunks that are shuffled together if the client gives no number and has one rank. "
	      "Default 8; fewer if twice the window does not fit in a quarter of the cache, which the client "
	      "reports. Sessions of several ranks that give no number get 8, and `diesel_loader`(3) always "
	      "gives one."},
    {"batches", option_number, "8", AT(serve.n_slots), RING_MIN_SLOTS, RING_MAX_SLOTS, .value = "N",
     .usual = "8", .applies = OPTION_SESSIONS, .help = "batches that are kept ready per session, 3 to 64",
     .about = "Number of batches that are kept ready for each session, 3 to 64. Default 8; fewer if they "
	      "would take more than a quarter of the cache."},
    {"user-share", option_number, "75", AT(serve.user_share), 1, 100, .value = "N", .usual = "75",
     .applies = OPTION_SESSIONS,
     .help = "percent of connections, cache and chunks in memory that one user may take",
     .about =
	 "The most that one user may take, in percent: of the connections (1,024, fewer where few files may "
	 "be open), of the cache that open sessions need, and of the chunks that they need in memory at one "
	 "time. Default 75. Administrators (`--admin-user`) are not limited to a share, and 1/32 of each is "
	 "reserved for them. A request for more fails with a message; running jobs are not affected."},
    {"cache-quota", option_quotas, "alice=20%, @physics=40%", AT(serve.quotas), .value = "LIST",
     .usual = "off", .applies = OPTION_RELOAD,
     .help = "parts of the cache for users and groups, such as alice=20%,@physics=40%, or off; all other "
	     "users share the rest",
     .about =
	 "Parts of the cache for users and groups, such as `alice=20%,@physics=40%`; a group has an @ "
	 "in front, and its members share its part. Or `off` (default). A part is guaranteed to the "
	 "jobs of its owner, and limits what they need at one time, in place of `--user-share`. All "
	 "users without a part share the rest. Unused memory of a part is borrowed by others until its "
	 "owner needs it. Users and groups are those of the kernel, by name or number. The parts may add up "
	 "to 100%; at most 31 parts are possible. A name that the machine does not know yet causes a "
	 "warning: others have its part until the name is known. dieseld looks the name up again after "
	 "5 seconds, and later every five minutes. `--check-config` refuses it."},
    {"admin-user", option_admin, "root", AT(admin), .value = "USER", .usual = "root", .takes = OPTION_USER,
     .help = "the user who may change settings, sees all users' jobs and has no share: root (with dieseld's "
	     "own user), a user's name or number, or none",
     .about =
	 "The administrator of dieseld over its socket, who may use `dieselctl set`, sees the jobs of all "
	 "users, and has no share. `root` (default) means root and the user that dieseld runs as. The name "
	 "or number of a user makes this user the only administrator; until the machine knows the name, "
	 "there is none. `none` means that only the configuration sets values. With a user or `none`, uid 0 "
	 "is a user like any other. Use one of them where a foreign uid 0 reaches the socket, as root of "
	 "containers without a user namespace does. Shared nodes then need `--cluster-key`."},
    {"admin-socket", option_path, "/run/diesel-admin/admin.sock", AT(admin_socket), .words = "off",
     .value = "PATH", .usual = "off", .takes = OPTION_FILE,
     .help = "a second socket, of mode 0600, whose clients are administrators; or off",
     .about = "A second socket, of mode 0600, or `off` (default). Every client that can connect to it is an "
	      "administrator, whatever its user: for nodes whose containers are root, with `--admin-user "
	      "none`. Put it in a folder that no container mounts, and never in that of `--socket`."},
    {"require-digest", option_word, "never", AT(serve.require_digest), .words = "never|shared|always",
     .says = "must be never, shared or always", .value = "WHEN", .usual = "never", .applies = OPTION_SESSIONS,
     .help = "refuse datasets without SHA-256; shared: only if a user other than the owner opens them",
     .about = "Refuse to open datasets without a SHA-256 of their chunks (`dieselctl pack --digest sha256`): "
	      "`never` (default), `shared` (for every user except the owner of the snapshot) or `always`. "
	      "The error message has the command to run. Digests are compared wherever a dataset has them."},
    {"codec", option_codec, "/usr/lib/diesel/codecs/wav.so", AT(codecs), .value = "FILE", .usual = "off",
     .repeats = true, .takes = OPTION_FILE,
     .help = "load a codec from this shared object, which only root and dieseld's own user can change; can "
	     "be repeated",
     .about = "Load a codec from this shared object (`<diesel/diesel_codec.h>`), for samples of a format "
	      "that dieseld does not know. Can be given several times; each adds to the codecs of the "
	      "configuration. FILE is an absolute path without links. The file and all folders above it must "
	      "belong to root or the daemon's own user, and others must not be able to write to them (but "
	      "may to a sticky folder, such as /tmp). The file is opened once, and loaded in the processes "
	      "that decode, which are sandboxed. A codec that is refused, or cannot be loaded, causes an "
	      "error in the log, and dieseld serves without it; `dieselctl status` lists both."},
    {"exit-when-idle", option_number, "0", AT(exit_when_idle_s), 0, MAX_IDLE_S, .value = "SECONDS",
     .usual = "0", .applies = OPTION_RELOAD,
     .help = "exit after this many seconds without a client; 0: never",
     .about = "Exit after this many seconds in which no client was connected or held a batch. Default 0: "
	      "never. A daemon that `diesel_loader`(3) starts for a user exits after five minutes. The "
	      "service needs 0: systemd does not start it again after that."},
    {"assist", option_flag, "no", AT(assist), .usual = "no",
     .help = "prefetch files for the machine's other PyTorch jobs, where that helps (needs root)",
     .about =
	 "Prefetch files into the page cache for the machine's PyTorch jobs that do not use dieseld, where "
	 "that is measured to help; `dieselctl why` lists the jobs and the reasons. Needs root and BPF."},
    {"observe", option_flag, "no", AT(serve.observe), .usual = "no", .applies = OPTION_RELOAD,
     .help = "serve nobody: measure the cost of this daemon itself and, with --assist, the waits of the "
	     "machine's PyTorch jobs",
     .about = "Serve nobody: opening a dataset fails with a message of one line, and jobs without "
	      "`DIESEL_SOCKET` use a dieseld of their own, as on a node without one. The daemon then only "
	      "measures its own cost and, with `--assist`, the waits of the machine's PyTorch jobs. If the "
	      "option is in the file, a reload can turn it off. Datasets that are open stay open."},
    {"no-io-uring", option_flag, "no", AT(serve.use_io_uring), .least = 1, .usual = "no",
     .help = "read with threads instead of io_uring",
     .about = "Read with threads instead of io_uring. Where io_uring is not permitted, this is the default."},
    {"metrics", option_metrics, OPTIONS_METRICS, AT(metrics), .value = "ADDR", .usual = "127.0.0.1:9467",
     .help = "address of /metrics for Prometheus, ADDRESS:PORT, or off",
     .about =
	 "Address of `/metrics` for Prometheus, or `off`. Default 127.0.0.1:9467. Probes use `/healthz` and "
	 "`/readyz`; the latter answers 503 and one line when clients cannot connect. If the port is taken, "
	 "only the metrics are missing. The service has no network: there `dieseld-metrics.socket` listens, "
	 "at the address of its own `ListenStream=`, and only the value `off` of this option has an effect. "
	 "Everybody "
	 "who reaches the address can read the metrics: leave it on loopback, or put a firewall before it."},
    {"metrics-names", option_flag_of_words, "hidden", AT(hide_names), .words = "shown|hidden",
     .says = "must be shown or hidden", .value = "WHEN", .usual = "shown", .applies = OPTION_RELOAD,
     .help = "hidden: omit names of users, programs, accounts and pods from the metrics",
     .about = "`shown` (default), or `hidden`: figures of jobs have only the job's number. The metrics of "
	      "users, quotas, programs, accounts, pods and namespaces are left out. Every user of the node "
	      "can read them on loopback."},
    {"stage", option_stage, "off", AT(stage), .group = "A local disk for chunks that do not fit in memory",
     .value = "DIR", .usual = "off", .takes = OPTION_FOLDER,
     .help = "keep chunks that do not fit in memory in this folder of a local disk, or off; it must belong "
	     "only to dieseld's user, and is made if needed",
     .about = "Keep chunks of datasets that do not fit in memory in this folder of a local disk, or `off` "
	      "(default). A chunk that was read from storage once comes from that disk in later epochs, "
	      "after a restart too, for every user who may read the chunk's own file. An absolute path; the "
	      "folder must belong to dieseld's user and be closed to all others (mode 0700), and is made if "
	      "its parent is there. All folders above must belong to root or to dieseld's user, and others "
	      "must not be able to write to them, unless they are sticky. Only one dieseld can use the "
	      "folder at a time. If "
	      "the disk is full, fails or hangs, chunks come from storage, and the log has one line. The "
	      "service also needs `ReadWritePaths=` for the folder, or `CacheDirectory=diesel` and "
	      "`CacheDirectoryMode=0700` with /var/cache/diesel."},
    {"stage-when", option_flag_of_words, "slower", AT(serve.stage.always), .words = "slower|always",
     .says = "must be slower or always", .value = "WHEN", .usual = "slower",
     .help = "slower: stage only datasets whose storage is slower than that disk; always: stage all datasets",
     .about = "`slower` (default): a dataset is not staged if its storage delivers chunks as fast as that "
	      "disk. Both rates are measured while the dataset is served, and a line of the log reports "
	      "them. `always`: stage every dataset, without measuring."},
    {"stage-size", option_size, "100G", AT(serve.stage.bytes), MIN_STAGE_BYTES, MOST_BYTES,
     "must be a size of at least 16M", .value = "BYTES", .usual = "16G",
     .help = "limit of the staging folder",
     .about = "The most bytes that the folder may take. Default 16G. One user's datasets take at most "
	      "`--user-share` percent of it."},
    {"cluster", option_cluster, "redis://HOST:6379", CLUSTER(OPTIONS_CLUSTER_REDIS), .group = "Other nodes",
     .value = "URL",
     .help = "share datasets with the other nodes of a job, which are found in this Redis (redis://HOST), "
	     "or off (default)",
     .about =
	 "Share datasets with the other nodes of a job: each chunk has one node that reads it, and the "
	 "others get it from this node. The nodes find each other in this Redis, redis://HOST[:PORT] or "
	 "rediss://HOST (TLS); a user and a password come from the environment, see `dieselctl`(1). "
	 "`off` (default): each node reads for itself. Jobs choose whether they share: see "
	 "`diesel_loader`(3), `cluster`. A node or Redis that fails stops no job. If the options below are "
	 "wrong, the log has one line, and this node reads for itself (`--check-config` finds this before). "
	 "If the address is in use, the node reads for itself, too, and tries again every 2 seconds."},
    {"cluster-listen", option_text, "10.0.0.1:7700", CLUSTER(OPTIONS_CLUSTER_LISTEN), .value = "ADDRESS:PORT",
     .help = "address that other nodes connect to",
     .about = "The numeric address that other nodes connect to. Required with `--cluster`."},
    {"cluster-advertise", option_text, "10.0.0.1:7700", CLUSTER(OPTIONS_CLUSTER_ADVERTISE),
     .value = "ADDRESS:PORT",
     .help = "address of this node as other nodes see it (default: as --cluster-listen)",
     .about = "The address of this node as other nodes see it. Default: the value of `--cluster-listen`."},
    {"cluster-name", option_text, "node-1", CLUSTER(OPTIONS_CLUSTER_NAME), .value = "NAME",
     .help = "name of this node in the cluster (default: the host's name)",
     .about = "Name of this node in the cluster; it must be unique. Default: the host's name."},
    {"cluster-key", option_path, "/etc/diesel/cluster.key", CLUSTER(OPTIONS_CLUSTER_KEY), .value = "FILE",
     .takes = OPTION_FILE,
     .help = "file with a key that all nodes share; without a key, only loopback addresses can be used",
     .about = "A key that all nodes share, of 16 to 4096 bytes, which secures connections between nodes "
	      "(TLS). The file must belong to root or dieseld's user and be closed to all others (mode "
	      "0600). Without a key, all addresses must be loopback addresses."},
    {"cluster-limit", option_cluster_limit, "100M", CLUSTER(OPTIONS_CLUSTER_LIMIT), CLUSTER_LIMIT_MIN,
     CLUSTER_LIMIT_MAX, "must be 0 or a size from 1M to 1T, such as 100M", .value = "BYTES", .usual = "0",
     .help = "limit on bytes sent per second to each other node; 0: none",
     .about = "The most bytes per second that are sent to each other node, from 1M to 1T; 0: no limit "
	      "(default). The kernel enforces it (`SO_MAX_PACING_RATE`)."},
    {"config", .command = true, .group = "Only on the command line", .value = "FILE", .takes = OPTION_FILE,
     .help = "INI file whose section [dieseld] has the options above, without dashes",
     .about = "An INI file, see `dieseld.conf`(5); its section `[dieseld]` has the options above by name "
	      "without dashes, e.g. `cache = 8G`. The command line wins over the file. An error message "
	      "names the line and column. On SIGHUP the file is read again. Memory, pins, tuning, "
	      "quotas and limits apply at once. Window and batches apply to new sessions, user-share to new "
	      "connections and sessions, and require-digest to datasets that are opened later. The other "
	      "settings take effect at the next start. A file with a mistake changes nothing."},
    {"check-config", option_flag, AT(check_only), .command = true, .help = "check options and file, and exit",
     .about = "Check the options and the file, and exit: 0 if they are valid, else 2 with a message that "
	      "names the file, the line, and the correction. The check also covers what dieseld would "
	      "otherwise find only later: the folders for the socket, the history and staging, the codecs' "
	      "files, and the options of `--cluster`."},
    {"ready-fd", option_ready_fd, AT(ready_fd), .command = true, .value = "N",
     .help = "write \"ready\\n\" to this descriptor when listening",
     .about = "Write \"ready\" and a newline to this descriptor once clients can connect."},
    {"verbose", option_flag, AT(verbose), .command = true, .letter = 'v', .help = "print more log lines"},
    {"help", option_flag, AT(show_help), .command = true, .help = "print this help, and exit",
     .about = "Print the options, and exit."},
    {"version", option_flag, AT(show_version), .command = true, .letter = 'V',
     .help = "print the version, and exit", .about = "Print the version, and exit."},
};
const size_t n_option_rows = sizeof(option_rows) / sizeof(option_rows[0]);

static const struct option_verb dieseld = {
    .name = "dieseld",
    .summary = "Serves datasets (dieselctl pack) to the training jobs of this node, from shared memory.\n"
	       "Runs in the foreground; SIGTERM or SIGINT ends it, SIGHUP reads the file again.",
    OPTION_ROWS(option_rows),
};

const struct option_program dieseld_program = {.self = &dieseld};
_Static_assert(sizeof(option_rows) / sizeof(option_rows[0]) <= OPTIONS_MOST, "each has a source");
