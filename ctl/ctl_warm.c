/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl warm: brings a dataset into dieseld's cache, before a job wants it. */
#include "ctl.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/admin.h"
#include "client/mapped.h"
#include "ctl_own_daemon.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/progress.h"
#include "lib/units.h"

#define RECONNECT_MS 30000
/* Minimum time for which a node of a multi-node job stays, so that the others see it. */
#define STAY_NS   (5 * NS_PER_S)
#define NODES_MAX 100000

struct warm_options {
	const char *path, *socket, *job;
	uint64_t version;
	uint32_t nodes, node, timeout_s;
	bool has_node;
	bool json;
};

struct warm {
	const struct option_verb *verb;
	const struct warm_options *options;
	struct diesel_dataset *dataset;
	struct diesel_session *session;
	const struct snapshot *snapshot;
	struct progress bar;
	uint64_t n_chunks, n_asked, n_done;
	uint64_t n_warm, warm_bytes;
	uint64_t n_elsewhere, elsewhere_bytes;
	uint64_t n_full, full_bytes;
	uint64_t n_damaged, n_unread;
	uint64_t begin_ns;
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	stopped = number;
}

/* The first signal ends a wait; a second one kills the process. */
static void catch_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void say(struct warm *w, const char *text)
{
	progress_hide(&w->bar);
	ctl_warn(w->verb, text);
}

/* Requests one sample of each of the next chunks, as many as the daemon accepts. */
static int ask(struct warm *w)
{
	while (w->n_asked < w->n_chunks) {
		struct snapshot_chunk chunk;
		int r = snapshot_chunk_get(w->snapshot, w->n_asked, &chunk);

		if (r == 0)
			r = diesel_session_ask(w->session, &chunk.first_sample, 1, 0);
		if (r == -EBUSY)
			return 0;
		if (r < 0)
			return r;
		w->n_asked++;
	}
	return 0;
}

/* Counts the result of a requested chunk. is_of_chunk: an error of its own. Returns nonzero to stop. */
static int note(struct warm *w, int result, bool is_of_chunk)
{
	struct snapshot_chunk chunk;

	if (snapshot_chunk_get(w->snapshot, w->n_done, &chunk) < 0)
		chunk.file_bytes = 0;
	switch (result) {
	case 0:
		w->n_warm++;
		w->warm_bytes += chunk.file_bytes;
		break;
	case -EREMOTE:
		w->n_elsewhere++;
		w->elsewhere_bytes += chunk.file_bytes;
		break;
	case -ENOSPC:
		w->n_full++;
		w->full_bytes += chunk.file_bytes;
		break;
	case -EBADMSG:
		w->n_damaged++;
		say(w, diesel_session_error(w->session));
		break;
	default:
		if (!is_of_chunk)
			return result;
		w->n_unread++;
		say(w, diesel_session_error(w->session));
	}
	w->n_done++;
	progress_show(w->options->path, w->n_done, w->n_chunks, w->warm_bytes, &w->bar);
	return 0;
}

/* Returns 0 when all chunks are done, or it was stopped. */
static int warm_chunks(struct warm *w)
{
	int r = 0;

	while (r == 0 && w->n_done < w->n_chunks && !stopped) {
		struct diesel_batch batch = {.epoch = UINT64_MAX};
		const char *notice;

		r = ask(w);
		if (r < 0) {
			say(w, strerror(-r));
			return r;
		}
		r = diesel_session_next(w->session, &batch);
		notice = diesel_session_notice(w->session);
		if (notice)
			say(w, notice);
		if (r == 0)
			diesel_batch_release(batch.lease);
		r = r == -EINTR ? 0 : note(w, r, batch.epoch != UINT64_MAX);
		if (r < 0)
			say(w, diesel_session_error(w->session));
	}
	return r;
}

/* Stays for a while if other nodes take part: nodes that start a little later might never see a node that
 * leaves at once. */
static void stay(const struct warm *w)
{
	uint64_t now_ns;

	if (w->n_elsewhere == 0)
		return;
	while (!stopped && (now_ns = clock_monotonic_ns()) < w->begin_ns + STAY_NS)
		(void)poll(NULL, 0, (int)((w->begin_ns + STAY_NS - now_ns) / NS_PER_MS) + 1);
}

static void print_part(const char *format, uint64_t n, uint64_t bytes)
{
	char text[24];

	if (n)
		printf(format, (unsigned long long)n, units_plural(n),
		       units_format_bytes(text, sizeof(text), bytes));
}

static void print_text(const struct warm *w)
{
	char bytes[24];

	printf("%llu of %llu chunk%s in memory, %s", (unsigned long long)w->n_warm,
	       (unsigned long long)w->n_chunks, units_plural(w->n_chunks),
	       units_format_bytes(bytes, sizeof(bytes), w->warm_bytes));
	print_part("; %llu chunk%s of other nodes, %s", w->n_elsewhere, w->elsewhere_bytes);
	print_part("; no space for %llu chunk%s, %s", w->n_full, w->full_bytes);
	if (w->n_damaged)
		printf("; %llu damaged", (unsigned long long)w->n_damaged);
	if (w->n_unread)
		printf("; %llu not read", (unsigned long long)w->n_unread);
	if (w->n_done < w->n_chunks)
		printf("; stopped before %llu", (unsigned long long)(w->n_chunks - w->n_done));
	putchar('\n');
}

static void print_json(const struct warm *w)
{
	fputs("{\"dataset\": ", stdout);
	ctl_json_string(w->options->path, strlen(w->options->path));
	printf(
	    ", \"chunks\": %llu, \"in_memory\": %llu, \"in_memory_bytes\": %llu, \"of_other_nodes\": %llu, "
	    "\"no_space\": %llu, \"no_space_bytes\": %llu, \"damaged\": %llu, \"unread\": %llu, "
	    "\"not_reached\": %llu}\n",
	    (unsigned long long)w->n_chunks, (unsigned long long)w->n_warm, (unsigned long long)w->warm_bytes,
	    (unsigned long long)w->n_elsewhere, (unsigned long long)w->n_full,
	    (unsigned long long)w->full_bytes, (unsigned long long)w->n_damaged,
	    (unsigned long long)w->n_unread, (unsigned long long)(w->n_chunks - w->n_done));
}

static int warm(struct warm *w)
{
	const struct warm_options *o = w->options;
	const struct diesel_session_options options = {.flags = DIESEL_ASKED | DIESEL_WARM,
						       .world = o->job && !o->job[0] ? 1 : INT_MAX,
						       .rank = o->has_node ? o->node : 0,
						       .lanes = o->has_node ? o->nodes : 0,
						       .batch = 1,
						       .reconnect_ms = RECONNECT_MS,
						       .nodes = o->nodes,
						       .cluster = o->job};
	char error[512] = "", text[CTL_SOCKET_MAX];
	struct error err = ERROR_INIT;
	const char *socket;
	int r = ctl_own_daemon(o->socket, o->timeout_s, text, &socket, &err);

	if (r < 0)
		return ctl_failed(w->verb, &err);

	r = diesel_dataset_open_version(o->path, o->version, socket, &w->dataset, error, sizeof(error));
	if (r == 0)
		r = diesel_session_open(w->dataset, &options, &w->session, error, sizeof(error));
	if (r < 0)
		return ctl_warn(w->verb, error);
	w->snapshot = mapped_snapshot(w->dataset);
	w->n_chunks = snapshot_info(w->snapshot)->n_chunks;
	w->begin_ns = clock_monotonic_ns();
	catch_signals();
	r = warm_chunks(w);
	progress_end(&w->bar);
	if (r == 0)
		stay(w);
	if (o->json)
		print_json(w);
	else
		print_text(w);
	if (stopped)
		return 128 + stopped;
	r = r < 0 || w->n_damaged || w->n_unread ? CTL_FAILED : CTL_OK;
	return ctl_finish(w->verb) == CTL_OK ? r : CTL_FAILED;
}

/* Returns the number in an environment variable; 0: it is not set, or not a number. */
static uint32_t environment_number(const char *name)
{
	const char *text = getenv(name);
	int64_t value;

	return text && units_parse_integer(text, 0, NODES_MAX, &value) == 0 ? (uint32_t)value : 0;
}

static int check(const struct option_verb *verb, struct warm_options *o, int argc, char **argv)
{
	if (argc != 1)
		return ctl_usage(verb, "expected one dataset");
	if (o->job && o->job[0] && !o->nodes)
		return ctl_usage(verb, "--job needs --nodes: the number of nodes that share the dataset");
	if (!o->job && !getenv("SLURM_STEP_NUM_NODES")) /* the number of nodes is not known */
		o->job = "";
	if (o->nodes > 1 && o->job && !o->job[0])
		return ctl_usage(verb, "--nodes needs --job: a name that is the same on all nodes");
	if (!o->job && !o->nodes)
		o->nodes = environment_number("SLURM_STEP_NUM_NODES");
	if (!o->has_node && getenv("SLURM_NODEID")) {
		o->node = environment_number("SLURM_NODEID");
		o->has_node = o->node < o->nodes;
	}
	if (o->nodes > 1 && !o->has_node)
		return ctl_usage(verb, "--nodes %u needs --node: the number of this node, from 0", o->nodes);
	if (o->has_node && o->node >= o->nodes)
		return ctl_usage(verb, "--node %u of %u nodes: must be less than the number of nodes",
				 o->node, o->nodes);
	o->path = argv[0];
	return CTL_OK;
}

static int set_node(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct warm_options *o = options;

	o->has_node = true;
	return option_set_u32(o, row, value, err);
}

static int run_warm(const struct option_verb *verb, int argc, char **argv)
{
	struct warm_options o = {.timeout_s = ADMIN_TIMEOUT_S};
	struct warm w = {.verb = verb, .options = &o};
	int r;

	if (!ctl_options(verb, argc, argv, &o, &r))
		return r;
	r = check(verb, &o, argc - optind, argv + optind);
	if (r != CTL_OK)
		return r;
	r = warm(&w);
	diesel_session_close(w.session);
	diesel_dataset_close(w.dataset);
	return r;
}

#define AT(member) .at = offsetof(struct warm_options, member)

static const struct option_row warm_rows[] = {
    {"job", option_set_string, AT(job), .value = "NAME",
     .help = "name of the job whose nodes share the dataset: run the command on each of them, with the same "
	     "name (default: that of the Slurm step; \"\": only this node)",
     .about = "The job's name, the same on all nodes that share the dataset. In a step of Slurm, the default "
	      "is the step's name. Otherwise, or with an empty name, this node takes all chunks."},
    {"nodes", option_set_u32, AT(nodes), .least = 1, .most = NODES_MAX,
     .says = "must be a number of nodes from 1", .value = "N",
     .help = "number of nodes (default: that of the Slurm step)",
     .about = "The number of nodes. Default in a step of Slurm: the step's. The command begins when that "
	      "many nodes are there, or after 5 seconds."},
    {"node", set_node, AT(node), .most = NODES_MAX, .says = "must be a number from 0", .value = "K",
     .help = "number of this node, from 0, in the order of the job's ranks (default: Slurm's)",
     .about = "The number of this node, from 0, in the order of the job's ranks; in a step of Slurm, the "
	      "default is $SLURM_NODEID."},
    {"json", option_set_flag, AT(json), .help = "print JSON",
     .about =
	 "Prints an object: `chunks`, `in_memory`, `in_memory_bytes`, `of_other_nodes` (chunks that "
	 "other nodes have), `no_space`, `no_space_bytes`, `damaged`, `unread` (refused, deleted or out of "
	 "reach), and `not_reached` (if the command "
	 "was stopped)."},
    CTL_ROW_VERSION(AT(version), .help = "version to read (default: the newest)"),
    CTL_ROW_SOCKET(AT(socket)),
    CTL_ROW_TIMEOUT(AT(timeout_s)),
};

#undef AT

const struct option_verb ctl_warm = {
    .name = "warm",
    .arguments = "DATASET",
    .summary = "Bring a dataset into dieseld's cache, before a job needs it",
    .help = "warm reads chunks in storage order, after all reads of jobs, into memory that is free, "
	    "or that holds\n"
	    "only unused chunks of this user. They stay until somebody needs the memory. The command starts "
	    "a daemon of\n"
	    "your own if none runs.\n",
    .about =
	"Brings the dataset's chunks into the cache of `dieseld`(8), in the order of storage, before a job "
	"needs them or while it begins, and prints its progress.\n"
	"`warm` reads with the rights of its user, and after all reads of jobs: it pauses for checkpoints, "
	"and on busy storage gets a sixteenth of a job's share. It takes only free memory, or memory with "
	"chunks of datasets that nobody has open and that the same user was the last to use. It leaves out "
	"and "
	"counts the chunks for which there is no such memory; that is not a failure.\n"
	"After the verb has ended, the chunks stay like any chunk of a dataset that nobody has open: until "
	"somebody needs the memory. If the daemon is unreachable, `warm` waits half a minute for it to come "
	"back, and continues. An interrupt ends `warm`, and the chunks in memory stay. Its exit status is "
	"then 128 plus the signal's number.\n"
	"If several nodes share datasets (`dieseld --cluster`), run `warm` on each of them with the same "
	"`--job`. Each node then takes the lanes whose samples its ranks will need, if each node has as many "
	"ranks, and all read at the same time. Jobs with other names find the chunks there, too.",
    OPTION_ROWS(warm_rows),
    .takes = OPTION_FILE,
    .run = run_warm,
};
