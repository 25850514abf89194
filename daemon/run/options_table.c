/* SPDX-License-Identifier: Apache-2.0 */
/* All options of dieseld. These rows define getopt's arguments, --help, the configuration file,
 * --check-config, the manual, the shipped file and the completions (lib/options.h). */
#include "client/diesel.h"
#include "client/protocol.h"
#include "client/ring.h"
#include "history/history.h"
#include "options_set.h"
#include "daemon/node/pool.h"

#define MAX_IDLE_S      INT64_C(31622400) /* 366 days */
#define MIN_STAGE_BYTES (16ull << 20)
#define MOST_BYTES      (UINT64_C(1) << 50)

#define AT(member)    .at = offsetof(struct daemon_options, member)
#define CLUSTER(what) .at = offsetof(struct daemon_options, cluster) + (what) * sizeof(char *)

const struct option_row option_rows[] = {
    {"cache", option_cache, "8G", AT(serve.knobs.cache_bytes), OPTIONS_MIN_CACHE_BYTES, MOST_BYTES,
     "is not an amount of memory from 16M up", .group = "Memory and tuning", .value = "BYTES",
     .applies = OPTION_RELOAD,
     .help = "memory for chunks, batches, snapshots and decoded copies together (default: a quarter of the "
	     "memory)",
     .about = "Memory for chunks, batches, snapshots and decoded copies together, e.g. 8G. Default: a "
	      "quarter of the memory that the process may use (machine and cgroup). Resident memory stays "
	      "below this plus 64 MiB."},
    {"tune", option_tune, "on", .words = "off|on|dry-run", .says = "is none of on, off, dry-run",
     .key = WIRE_SET_TUNE, .value = "MODE", .usual = "on", .applies = OPTION_RELOAD,
     .help = "give each job the cache, read-ahead and workers that it needs; dry-run: decide and record, "
	     "but change nothing",
     .about = "`on` (default): once a second, give each job the cache, read-ahead and workers that it needs "
	      "and no more; `off`: do not tune; `dry-run`: decide and record, but change nothing."},
    {"prefetch", option_number, "8", AT(serve.knobs.prefetch_chunks), 0, 65536, .key = WIRE_SET_PREFETCH,
     .value = "N", .applies = OPTION_RELOAD,
     .help = "read exactly N chunks ahead of the current window (default: tuned)",
     .about = "Read exactly this many chunks ahead of a session's current window. Without it: 8 at first, "
	      "then what the tuner finds."},
    {"workers", option_number, "4", AT(serve.knobs.workers), 1, POOL_MAX_WORKERS, .key = WIRE_SET_WORKERS,
     .value = "N", .applies = OPTION_RELOAD,
     .help = "verify and gather with exactly N CPU threads (default: tuned)",
     .about = "Use exactly this many CPU threads to verify chunks and gather batches. Without it: at first "
	      "one a core, but at most 4, then what the tuner finds."},
    {"client-workers", option_tuned, "2", .key = WIRE_SET_CLIENT_WORKERS, .value = "N",
     .applies = OPTION_RELOAD,
     .help = "exactly N Python workers, if the program leaves the number open (default: tuned)",
     .about = "Have exactly this many Python workers run a job's transforms, where its program leaves the "
	      "number to the daemon (`num_workers=\"auto\"`). Without it the tuner chooses; 0 is a choice "
	      "it can make."},
    {"decoded-cache", option_tuned, "1G", .key = WIRE_SET_DECODED_CACHE, .value = "BYTES",
     .applies = OPTION_RELOAD,
     .help = "keep so much of decoded images for each job that dieseld decodes for (default: tuned)",
     .about = "Where dieseld decodes a job's images, keep up to so much of what it decoded, so that later "
	      "epochs need not decode it again. Random crops and flips are done afresh all the same, and "
	      "tensors are the same as without. The memory is part of `--cache`, and only such as sessions "
	      "and their chunks do not need; it goes first when memory is short. Without this option the "
	      "tuner decides for each job whether it is worth it; 0: never."},
    {"cache-max", option_tuned, "8G", .key = WIRE_SET_CACHE_MAX, .value = "BYTES", .applies = OPTION_RELOAD,
     .help = "the most of all caches together (default: as --cache)",
     .about = "The most that the tuner gives to all caches together, and that they borrow. Default: what "
	      "`--cache` says."},
    {"cache-min", option_tuned, "0", .key = WIRE_SET_CACHE_MIN, .value = "BYTES", .usual = "0",
     .applies = OPTION_RELOAD, .help = "the least of all caches together",
     .about = "The least that the tuner gives to all caches together. Default: 0."},
    {"workers-max", option_tuned, "4", .key = WIRE_SET_WORKERS_MAX, .value = "N", .applies = OPTION_RELOAD,
     .help = "limit of --workers (default: one a core)",
     .about = "The most CPU threads that the tuner takes. Default: one a core. While no number of workers "
	      "is set, none works for one user on cores that the control group of another user's job has "
	      "(cpuset.cpus.effective, cpu.max)."},
    {"client-workers-max", option_tuned, "4", .key = WIRE_SET_CLIENT_WORKERS_MAX, .value = "N",
     .applies = OPTION_RELOAD, .help = "limit of --client-workers (default: one a core)",
     .about = "The most Python workers that the tuner gives to all jobs together. Default: one a core."},
    {"prefetch-max", option_tuned, "64", .key = WIRE_SET_PREFETCH_MAX, .value = "N", .usual = "64",
     .applies = OPTION_RELOAD, .help = "limit of --prefetch",
     .about = "The most chunks that the tuner has read ahead. Default: 64."},
    {"decoded-cache-max", option_tuned, "2G", .key = WIRE_SET_DECODED_CACHE_MAX, .value = "BYTES",
     .applies = OPTION_RELOAD, .help = "limit of --decoded-cache (default: as --cache)",
     .about =
	 "The most that `--decoded-cache` can be set to. Default: what `--cache` says; 0: nothing decoded is "
	 "ever kept."},
    {"read-limit", option_tuned, "500M", .key = WIRE_SET_READ_LIMIT, .value = "BYTES", .usual = "0",
     .applies = OPTION_RELOAD, .help = "what is read of all storages together in a second; 0: no limit",
     .about = "The most that is read of chunks in a second, of all storages together, such as 500M. Users "
	      "and jobs share it by turns, whichever storages they read from. Reads may run 0.1 s ahead of "
	      "it, and by one chunk. Default: 0, no limit."},
    {"read-ops-limit", option_tuned, "1000", .key = WIRE_SET_READ_OPS_LIMIT, .value = "N", .usual = "0",
     .applies = OPTION_RELOAD, .help = "the same in requests of up to 1 MiB",
     .about = "The same as `--read-limit` in requests of up to 1 MiB. Default: 0, no limit."},
    {"history", option_path, "off", AT(history), .words = "off", .value = "FILE", .takes = OPTION_FILE,
     .help = "database of decisions, or off (default: $STATE_DIRECTORY/history.db, else off)",
     .about = "Database of decisions, or `off`. Default: history.db in the state directory of the unit "
	      "(`$STATE_DIRECTORY`), and off without one. When its disk is full, decisions are kept in "
	      "memory. It, its folder and all above must belong to root or to dieseld's user, and others "
	      "must not be able to write to them; a sticky folder is fine."},
    {"history-max", option_size, "64M", AT(history_max_bytes), HISTORY_MIN_BYTES, UINT64_C(1) << 40,
     "is not a size from 1M to 1T", .value = "BYTES", .usual = "64M", .help = "its size",
     .about = "Size of that database. Default 64M. The oldest decisions go first."},
    {"socket", option_path, "/run/diesel/dieseld.sock", AT(socket_path), .group = "Serving", .value = "PATH",
     .usual = "/run/diesel/dieseld.sock", .takes = OPTION_FILE, .help = "where to listen",
     .about = "Where to listen. Default /run/diesel/dieseld.sock; clients look in the environment variable "
	      "DIESEL_SOCKET. Beside it lies `PATH.lock`, which names the process that holds it. A socket "
	      "left behind by a dead daemon is replaced."},
    {"window", option_number, "8", AT(serve.window_chunks), 1, WIRE_WINDOW_MAX, .value = "N", .usual = "8",
     .applies = OPTION_SESSIONS, .help = "chunks that are shuffled together when the client does not say",
     .about = "How many chunks are shuffled together when the client does not say and has one rank. Default "
	      "8; fewer when twice the window does not fit in a quarter of the cache, and then the client "
	      "is told so. Sessions of several ranks that do not say get 8, and `diesel_loader`(3) always "
	      "says."},
    {"batches", option_number, "8", AT(serve.n_slots), RING_MIN_SLOTS, RING_MAX_SLOTS, .value = "N",
     .usual = "8", .applies = OPTION_SESSIONS, .help = "batches that are kept ready per session, 3 to 64",
     .about = "How many batches are kept ready for each session, 3 to 64. Default 8; fewer when they would "
	      "take more than a quarter of the cache."},
    {"user-share", option_number, "75", AT(serve.user_share), 1, 100, .value = "N", .usual = "75",
     .applies = OPTION_SESSIONS,
     .help = "percent of connections, cache and chunks in memory that one user may take",
     .about = "The most that one user may take, in percent: of the connections (1,024, fewer where few "
	      "files may be open), of the cache that open sessions need, and of the chunks that they need "
	      "in memory at one time. Default 75. Administrators (`--admin-user`) are not limited to a "
	      "share, and a 32nd of each is kept for them. A user who asks for more is told so; running "
	      "jobs are not touched."},
    {"cache-quota", option_quotas, "alice=20%, @physics=40%", AT(serve.quotas), .value = "LIST",
     .usual = "off", .applies = OPTION_RELOAD,
     .help = "parts of the cache for users and groups, such as alice=20%,@physics=40%, or off; all others "
	     "share the rest",
     .about = "Parts of the cache for users and groups, such as `alice=20%,@physics=40%`; a group has an @ "
	      "in front, and its members share its part. Or `off` (default). A row is what its jobs get "
	      "whenever they want it, and what they may need at one time, in place of `--user-share`; all "
	      "users without a row have together what the rows leave. What nobody wants of a part is lent "
	      "to others, and comes back when its owner wants it. Users and groups are those of the kernel, "
	      "by name or number. The parts are 100% at most together, in 31 rows at most. A name that the "
	      "machine does not know yet is a warning: others have its part until the name is known, which "
	      "is looked at again after 5 seconds, and later every five minutes. `--check-config` refuses "
	      "it."},
    {"admin-user", option_admin, "root", AT(admin), .value = "USER", .usual = "root", .takes = OPTION_USER,
     .help = "who may set, sees all users' jobs and has no share: root (with dieseld's own user), a user's "
	     "name or number, or none",
     .about = "Who administers dieseld over its socket, and so may `dieselctl set`, sees the jobs of all "
	      "users, and has no share: `root` (default; with it the user that dieseld runs as), the name "
	      "or number of a user, who then is the only one (nobody, until the machine knows the name), or "
	      "`none`. With the last two, uid 0 is a user like any other. Say so where somebody else's uid "
	      "0 reaches the socket, as root of containers without a user namespace does. With `none` the "
	      "configuration alone says what is set. Shared nodes then need `--cluster-key`."},
    {"admin-socket", option_path, "/run/diesel-admin/admin.sock", AT(admin_socket), .words = "off",
     .value = "PATH", .usual = "off", .takes = OPTION_FILE,
     .help = "who can connect to this socket of mode 0600 administers, too; or off",
     .about = "Another socket, of mode 0600, or `off` (default). Who can connect to it administers as well, "
	      "whatever user it is: for nodes whose containers are root, with `--admin-user none`. Put it "
	      "in a folder that no container mounts, and never in that of `--socket`."},
    {"require-digest", option_word, "never", AT(serve.require_digest), .words = "never|shared|always",
     .says = "is none of never, shared, always", .value = "WHEN", .usual = "never",
     .applies = OPTION_SESSIONS,
     .help = "refuse datasets without SHA-256; shared: those opened by another user than the owner",
     .about = "Refuse to open datasets without a SHA-256 of their chunks (`dieselctl pack --digest "
	      "sha256`): `never` (default), `shared` (for every user except the owner of the snapshot) or "
	      "`always`. The message that refuses says what to run. Digests are compared wherever a dataset "
	      "has them."},
    {"codec", option_codec, "/usr/lib/diesel/codecs/wav.so", AT(codecs), .value = "FILE", .usual = "off",
     .repeats = true, .takes = OPTION_FILE,
     .help = "load a codec from this shared object, which only root and dieseld's own user can change; may "
	     "be given again",
     .about = "Load a codec from this shared object (`<diesel/diesel_codec.h>`), for samples of a format "
	      "that dieseld does not know. May be given again; what the configuration says is added. FILE "
	      "is an absolute path without links. The file and all folders above it must belong to root or "
	      "the daemon's own user, and others must not be able to write to them (but may to a sticky "
	      "folder, such as /tmp). The file is opened once, and loaded in the processes that decode, "
	      "which are locked up. One that is refused, or cannot be loaded, is an error in the log, and "
	      "dieseld serves without it; `dieselctl status` lists both."},
    {"exit-when-idle", option_number, "0", AT(exit_when_idle_s), 0, MAX_IDLE_S, .value = "SECONDS",
     .usual = "0", .applies = OPTION_RELOAD, .help = "end when no client was there for so long; 0: never",
     .about = "End when nobody has been connected, or held a batch, for so long. Default 0: never. A daemon "
	      "that `diesel_loader`(3) starts for a user ends after five minutes. The service wants 0: "
	      "systemd does not start it again after that."},
    {"assist", option_flag, "no", AT(assist), .usual = "no",
     .help = "read files ahead for the machine's other PyTorch jobs, where that helps (root)",
     .about = "Read files ahead into the page cache for the machine's PyTorch jobs that know nothing of "
	      "dieseld, where that is measured to help; `dieselctl why` says for which and why. Takes root, "
	      "and BPF."},
    {"observe", option_flag, "no", AT(serve.observe), .usual = "no", .applies = OPTION_RELOAD,
     .help = "serve nobody: measure what this daemon itself takes, and, with --assist, what the machine's "
	     "PyTorch jobs wait for, before it changes anything",
     .about = "Serve nobody: who opens a dataset is refused in one line, and jobs without `DIESEL_SOCKET` "
	      "use a dieseld of their own, as on a node without one. What is left is what this daemon "
	      "itself takes, and, with `--assist`, what the machine's PyTorch jobs wait for. In the file, a "
	      "reload ends it. Datasets that are open stay open."},
    {"no-io-uring", option_flag, "no", AT(serve.use_io_uring), .least = 1, .usual = "no",
     .help = "read by threads instead",
     .about = "Read by threads instead of io_uring. This is also what happens where io_uring is not "
	      "permitted."},
    {"metrics", option_metrics, OPTIONS_METRICS, AT(metrics), .value = "ADDR", .usual = "127.0.0.1:9467",
     .help = "where Prometheus may ask, ADDRESS:PORT, or off",
     .about = "Where Prometheus may ask for `/metrics`, or `off`. Default 127.0.0.1:9467. Probes ask "
	      "`/healthz` and `/readyz`, which answers 503 and one line when clients cannot connect. If the "
	      "port is taken, only the metrics are missing. The service has no network: there "
	      "`dieseld-metrics.socket` listens, at the address of its own `ListenStream=`, and `off` is "
	      "all that is heeded. Everybody who reaches it reads it: leave it on loopback, or put a "
	      "firewall before it."},
    {"metrics-names", option_flag_of_words, "hidden", AT(hide_names), .words = "shown|hidden",
     .says = "is neither shown nor hidden", .value = "WHEN", .usual = "shown", .applies = OPTION_RELOAD,
     .help = "hidden: without users, programs, accounts and pods",
     .about = "`shown` (default), or `hidden`: figures of jobs have their numbers alone. The metrics of "
	      "users, quotas, programs, accounts, pods and namespaces are left out. Every user of the node "
	      "can ask on loopback."},
    {"stage", option_stage, "off", AT(stage), .group = "A local disk for what does not fit in memory",
     .value = "DIR", .usual = "off", .takes = OPTION_FOLDER,
     .help = "keep chunks that do not fit in memory in this folder of a local disk, or off; it must be "
	     "dieseld's user's alone, and is made if need be",
     .about = "Keep chunks of datasets that do not fit in memory in this folder of a local disk, or `off` "
	      "(default). What was read from storage once comes from there in later epochs, after a restart "
	      "too, for whoever may read the chunk's own file. An absolute path; the folder must belong to "
	      "dieseld's user and be closed to all others (mode 0700), and is made if its parent is there. "
	      "All folders above must belong to root or to dieseld's user, and others must not be able to "
	      "write to them, unless they are sticky. One dieseld uses it at a time. A disk that is full, "
	      "fails or hangs costs what is on it: chunks come from storage then, and one line says so. The "
	      "service also wants `ReadWritePaths=` for the folder, or `CacheDirectory=diesel` and "
	      "`CacheDirectoryMode=0700` with /var/cache/diesel."},
    {"stage-when", option_flag_of_words, "slower", AT(serve.stage.always), .words = "slower|always",
     .says = "is neither slower nor always", .value = "WHEN", .usual = "slower",
     .help = "slower: where storage is slower than that disk",
     .about = "`slower` (default): a dataset whose storage gives its chunks as fast as that disk does, both "
	      "measured while it is served, is neither written nor read there; a line of the log says so, "
	      "with both rates. `always`: without measuring."},
    {"stage-size", option_size, "100G", AT(serve.stage.bytes), MIN_STAGE_BYTES, MOST_BYTES,
     "is not a size from 16M up", .value = "BYTES", .usual = "16G", .help = "the most that it may take",
     .about = "The most that the folder may take. Default 16G. One user's datasets take at most "
	      "`--user-share` percent of it."},
    {"cluster", option_cluster, "redis://HOST:6379", CLUSTER(OPTIONS_CLUSTER_REDIS), .group = "Other nodes",
     .value = "URL",
     .help = "share datasets with the other nodes of a job, which are found in this Redis (redis://HOST), "
	     "or off (default)",
     .about = "Share datasets with the other nodes of a job: each chunk has one node that reads it, and the "
	      "others have it from there. The nodes find each other in this Redis, redis://HOST[:PORT] or "
	      "rediss://HOST (TLS); a user and a password are taken from the environment, as of "
	      "`dieselctl`(1). `off` (default): each node reads for itself. Which jobs share is said by the "
	      "jobs: see `diesel_loader`(3), `cluster`. A node, or Redis, that is gone stops nobody. If the "
	      "options below are wrong, the log has one line, and this node reads for itself "
	      "(`--check-config` says so before); while the address is taken, it does, too, and tries again "
	      "every 2 seconds."},
    {"cluster-listen", option_text, "10.0.0.1:7700", CLUSTER(OPTIONS_CLUSTER_LISTEN), .value = "ADDRESS:PORT",
     .help = "where those connect to",
     .about = "Where other nodes connect to: an address in numbers. Needed with `--cluster`."},
    {"cluster-advertise", option_text, "10.0.0.1:7700", CLUSTER(OPTIONS_CLUSTER_ADVERTISE),
     .value = "ADDRESS:PORT", .help = "that address as others see it (default: as --cluster-listen)",
     .about = "That address as others see it. Default: what `--cluster-listen` says."},
    {"cluster-name", option_text, "node-1", CLUSTER(OPTIONS_CLUSTER_NAME), .value = "NAME",
     .help = "what this node is called there (default: the host's name)",
     .about = "What this node is called among them; no two may have one name. Default: the host's name."},
    {"cluster-key", option_path, "/etc/diesel/cluster.key", CLUSTER(OPTIONS_CLUSTER_KEY), .value = "FILE",
     .takes = OPTION_FILE, .help = "a key that all nodes have; without it, loopback addresses alone",
     .about = "A key that all nodes have, of 16 to 4096 bytes, which secures what they say to each other "
	      "(TLS). The file belongs to root or dieseld's user and is closed to all others (mode 0600). "
	      "Without it all addresses must be of loopback."},
    {"cluster-limit", option_cluster_limit, "100M", CLUSTER(OPTIONS_CLUSTER_LIMIT), CLUSTER_LIMIT_MIN,
     CLUSTER_LIMIT_MAX, "is neither 0 nor a size from 1M to 1T, such as 100M", .value = "BYTES", .usual = "0",
     .help = "what is sent to each other node in a second; 0: no limit",
     .about = "What is sent to each other node in a second, at most, from 1M to 1T; 0: no limit (default). "
	      "The kernel holds the connection to it (`SO_MAX_PACING_RATE`)."},
    {"config", .command = true, .group = "Of the command line alone", .value = "FILE", .takes = OPTION_FILE,
     .help = "INI file with a section [dieseld] and the names above without dashes",
     .about = "An INI file, see `dieseld.conf`(5); its section `[dieseld]` has the options above by name "
	      "without dashes, e.g. `cache = 8G`. The command line wins over the file. A mistake is named "
	      "by line and column. On SIGHUP the file is read again. What it says of memory, pins, tuning, "
	      "quotas and limits applies at once; window and batches apply to new sessions, user-share to "
	      "new connections and sessions, and require-digest to datasets that are opened from then on. "
	      "The others take effect at the next start. A file with a mistake changes nothing."},
    {"check-config", option_flag, AT(check_only), .command = true,
     .help = "say whether options and file are right, and end",
     .about = "Say whether the options and the file are right, and exit: 0, or 2 with one line. The line "
	      "names the file and its line, and what to write there. It also looks for what dieseld would "
	      "find only later: folders of socket, history and staging, files of codecs, and what "
	      "`--cluster` takes."},
    {"ready-fd", option_ready_fd, AT(ready_fd), .command = true, .value = "N",
     .help = "write \"ready\\n\" to this descriptor when listening",
     .about = "Write \"ready\" and a newline to this descriptor once clients can connect."},
    {"verbose", option_flag, AT(verbose), .command = true, .letter = 'v', .help = "say more"},
    {"help", option_flag, AT(show_help), .command = true, .help = "print this, and end",
     .about = "Print the options, and end."},
    {"version", option_flag, AT(show_version), .command = true, .letter = 'V',
     .help = "print the version, and end", .about = "Print the version, and end."},
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
