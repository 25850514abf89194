/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl status: what the daemon is doing. */
#include "ctl_daemon.h"

#include <stdio.h>

#include <jansson.h>

#include "lib/text.h"
#include "lib/units.h"

static void print_daemon(const json_t *root)
{
	const json_t *cache = json_object_get(root, "cache");
	uint64_t claimed = ctl_number(cache, "claimed_bytes"), borrowed = ctl_number(cache, "borrowed_bytes");
	char text[200], up[24], held[24], budget[24], of[2][24], read[24];

	printf("dieseld   pid %llu, up %s, %s\n", ctl_number(root, "pid"),
	       units_format_duration(up, sizeof(up),
				     (uint64_t)(json_number_value(json_object_get(root, "uptime_s")) * 1e9)),
	       ctl_string(root, "socket", text));
	if (json_is_true(json_object_get(root, "observes")))
		puts("observes  dieseld only watches (observe = yes), and serves no job; with --assist, "
		     "dieselctl why prints the waits of jobs");
	printf("cache     %s of %s: %s claimed, %s borrowed; %llu read%s, %s; %llu evicted, %llu damaged\n",
	       units_format_bytes(held, sizeof(held), claimed + borrowed),
	       units_format_bytes(budget, sizeof(budget), ctl_number(cache, "budget_bytes")),
	       units_format_bytes(of[0], sizeof(of[0]), claimed),
	       units_format_bytes(of[1], sizeof(of[1]), borrowed), ctl_number(cache, "reads"),
	       units_plural(ctl_number(cache, "reads")),
	       units_format_bytes(read, sizeof(read), ctl_number(cache, "read_bytes")),
	       ctl_number(cache, "evictions"), ctl_number(cache, "quarantined"));
}

static void print_quotas(const json_t *root)
{
	const json_t *quotas = json_object_get(root, "quotas"), *users = json_object_get(root, "users");
	char name[200], bytes[24], used[24];

	for (size_t i = 0; i < json_array_size(quotas); i++) {
		const json_t *q = json_array_get(quotas, i);

		printf("%-9s %s of the cache %llu %%, %s: %s used\n", i ? "" : "quotas",
		       ctl_string(q, "name", name), ctl_number(q, "percent"),
		       units_format_bytes(bytes, sizeof(bytes), ctl_number(q, "bytes")),
		       units_format_bytes(used, sizeof(used), ctl_number(q, "used_bytes")));
	}
	for (size_t i = 0; i < json_array_size(users); i++) {
		const json_t *u = json_array_get(users, i);

		printf("%-9s uid %llu: %llu job%s with %s of the cache and up to %llu worker%s; %s read, "
		       "%.1f s of CPU time\n",
		       i ? "" : "users", ctl_number(u, "uid"), ctl_number(u, "jobs"),
		       units_plural(ctl_number(u, "jobs")),
		       units_format_bytes(bytes, sizeof(bytes), ctl_number(u, "cache_bytes")),
		       ctl_number(u, "workers"), units_plural(ctl_number(u, "workers")),
		       units_format_bytes(used, sizeof(used), ctl_number(u, "read_bytes")),
		       json_number_value(json_object_get(u, "cpu_s")));
	}
}

static void print_tune(const json_t *root)
{
	const json_t *tune = json_object_get(root, "tune"), *history = json_object_get(tune, "history");
	size_t n_jobs = json_array_size(json_object_get(root, "jobs")),
	       n_pins = json_array_size(json_object_get(tune, "pins"));
	char text[200], mode[200];

	printf("tuning    %s; %zu job%s (dieselctl jobs), %zu pin%s\n", ctl_string(tune, "mode", mode),
	       n_jobs, units_plural(n_jobs), n_pins, units_plural(n_pins));
	if (*ctl_string(history, "problem", text))
		printf("  history is not written: %s; %llu record%s lost\n", text,
		       ctl_number(history, "dropped"), units_plural(ctl_number(history, "dropped")));
}

/* Prints data about other nodes of jobs: chunks received from them, and unreachable ones. */
static void print_cluster(const json_t *cluster)
{
	const json_t *nodes = json_object_get(cluster, "nodes"), *groups = json_object_get(cluster, "groups");
	char in[24], out[24], name[200], path[200];

	if (!json_is_object(cluster))
		return;
	printf("nodes     %s received from others in %llu chunk%s, %s sent to them; %llu late, %llu failed, "
	       "%llu damaged, %llu refused%s\n",
	       units_format_bytes(in, sizeof(in), ctl_number(cluster, "bytes_in")),
	       ctl_number(cluster, "chunks_in"), units_plural(ctl_number(cluster, "chunks_in")),
	       units_format_bytes(out, sizeof(out), ctl_number(cluster, "bytes_out")),
	       ctl_number(cluster, "late"), ctl_number(cluster, "failed"), ctl_number(cluster, "spoilt"),
	       ctl_number(cluster, "refused"),
	       json_is_true(json_object_get(cluster, "redis")) ? "" : "; Redis does not answer");
	for (size_t i = 0; i < json_array_size(nodes); i++) {
		const json_t *n = json_array_get(nodes, i);

		if (json_is_true(json_object_get(n, "unreachable")))
			printf("  node %s at %s is unreachable\n", ctl_string(n, "node", name),
			       ctl_string(n, "address", path));
	}
	for (size_t i = 0; i < json_array_size(groups); i++) {
		const json_t *g = json_array_get(groups, i);

		printf("  job %s: %llu of %zu node%s reached for %s\n", ctl_string(g, "name", name),
		       ctl_number(g, "reachable"), json_array_size(json_object_get(g, "members")),
		       units_plural(json_array_size(json_object_get(g, "members"))),
		       ctl_string(g, "dataset", path));
	}
}

static double cores(const json_t *sensing, const char *key)
{
	double active_s = json_number_value(json_object_get(sensing, "active_s"));

	return active_s > 0 ? 100 * json_number_value(json_object_get(sensing, key)) / active_s : 0;
}

/* Prints the cost of measuring: the sensing child's CPU time, and that of its BPF programs where the kernel
 * counts it. */
static void print_sensing(const json_t *root)
{
	const json_t *sensing = json_object_get(json_object_get(root, "tune"), "sensing");
	char text[200], bytes[24];

	if (!json_is_object(sensing))
		return;
	if (!json_is_true(json_object_get(sensing, "active"))) {
		printf("sensing   off: %s\n", *ctl_string(sensing, "why", text) ? text : "no job");
		return;
	}
	printf("sensing   by BPF: %.2f %% of a core and %s, ", cores(sensing, "cpu_s"),
	       units_format_bytes(bytes, sizeof(bytes), ctl_number(sensing, "resident_bytes")));
	if (json_is_real(json_object_get(sensing, "bpf_run_s")))
		printf("programs %.2f %% of a core", cores(sensing, "bpf_run_s"));
	else
		printf("programs not counted (to count them: sysctl kernel.bpf_stats_enabled=1)");
	printf("; %llu record%s lost, %llu restart%s\n", ctl_number(sensing, "lost"),
	       units_plural(ctl_number(sensing, "lost")), ctl_number(sensing, "restarts"),
	       units_plural(ctl_number(sensing, "restarts")));
}

static void print_chunks(const json_t *lines, const char *what)
{
	char text[512];

	for (size_t i = 0; i < json_array_size(lines); i++) {
		const json_t *line = json_array_get(lines, i);

		printf("  %s %s\n", what,
		       text_printable(text, sizeof(text), json_string_value(line), json_string_length(line)));
	}
}

static void print_dataset(const json_t *d)
{
	char text[200], bytes[24];

	printf(
	    "dataset   %s: version %llu, %llu sample%s, %s, %llu of %llu chunk%s in memory, %llu session%s\n",
	    ctl_string(d, "path", text), ctl_number(d, "version"), ctl_number(d, "samples"),
	    units_plural(ctl_number(d, "samples")),
	    units_format_bytes(bytes, sizeof(bytes), ctl_number(d, "bytes")), ctl_number(d, "cached_chunks"),
	    ctl_number(d, "chunks"), units_plural(ctl_number(d, "chunks")), ctl_number(d, "sessions"),
	    units_plural(ctl_number(d, "sessions")));
	print_chunks(json_object_get(d, "quarantined"), "damaged");
	print_chunks(json_object_get(d, "unread"), "not read");
}

/* Prints a job for which the daemon decodes images. */
static void print_decoding(const json_t *job)
{
	const json_t *d = json_object_get(job, "decoding");
	uint64_t n = ctl_number(d, "samples"), n_replaced = ctl_number(d, "replaced"),
		 n_decoded_copies = ctl_number(d, "samples_with_decoded_copy"),
		 n_from = ctl_number(d, "from_decoded_copies");
	char cpu[24], bytes[24];

	if (!json_is_object(d))
		return;
	printf("decoding  job %llu: %llu sample%s, %llu damaged, %s of CPU time, %llu decoder%s replaced\n",
	       ctl_number(job, "id"), (unsigned long long)n, units_plural(n), ctl_number(d, "damaged"),
	       units_format_duration(cpu, sizeof(cpu),
				     (uint64_t)(json_number_value(json_object_get(d, "cpu_s")) * 1e9)),
	       (unsigned long long)n_replaced, units_plural(n_replaced));
	if (n_decoded_copies > 0)
		printf("decoded   job %llu: copies of %llu sample%s, %s; %llu sample%s made from a copy\n",
		       ctl_number(job, "id"), (unsigned long long)n_decoded_copies,
		       units_plural(n_decoded_copies),
		       units_format_bytes(bytes, sizeof(bytes),
					  ctl_number(json_object_get(job, "memory"), "decoded_bytes")),
		       (unsigned long long)n_from, units_plural(n_from));
}

static void print_codec(const json_t *c)
{
	char name[200], path[200], problem[200];

	if (*ctl_string(c, "name", name))
		printf("codec     %s, from %s\n", name, ctl_string(c, "path", path));
	else
		printf("codec     none: %s\n", ctl_string(c, "problem", problem));
}

static void print_session(const json_t *s)
{
	char path[200], waits[200], position[100];

	if (json_is_null(json_object_get(s, "batches")))
		snprintf(position, sizeof(position), "%llu batches asked for", ctl_number(s, "next_batch"));
	else
		snprintf(position, sizeof(position), "epoch %llu, batch %llu of %llu", ctl_number(s, "epoch"),
			 ctl_number(s, "next_batch"), ctl_number(s, "batches"));
	printf("session   pid %llu, rank %llu of %llu, %s: %s, %llu of %llu slots ready%s%s\n",
	       ctl_number(s, "pid"), ctl_number(s, "rank"), ctl_number(s, "world"),
	       ctl_string(s, "dataset", path), position, ctl_number(s, "ready"), ctl_number(s, "slots"),
	       *ctl_string(s, "waits_for", waits) ? ", waits for " : "", waits);
	if (ctl_number(s, "shared") > 0)
		printf("          %llu of its %llu batches were decoded for another session\n",
		       ctl_number(s, "shared"), ctl_number(s, "delivered"));
}

static void print_each(const json_t *list, void (*print)(const json_t *item))
{
	for (size_t i = 0; i < json_array_size(list); i++)
		print(json_array_get(list, i));
}

static void print_status(const json_t *root, const void *what)
{
	(void)what;
	print_daemon(root);
	print_cluster(json_object_get(root, "cluster"));
	print_quotas(root);
	print_tune(root);
	ctl_print_settings(json_object_get(root, "tune"));
	print_sensing(root);
	print_each(json_object_get(root, "codecs"), print_codec);
	print_each(json_object_get(root, "datasets"), print_dataset);
	print_each(json_object_get(root, "sessions"), print_session);
	print_each(json_object_get(root, "jobs"), print_decoding);
}

static int ask(struct admin_client *admin, const void *what, char **ret_json, struct error *err)
{
	(void)what;
	return admin_status(admin, ret_json, err);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	static const struct ctl_question question = {"diesel.status/1", ask, print_status};

	return ctl_run_question(verb, argc, argv, &question);
}

#define AT(member) .at = offsetof(struct ctl_daemon_options, member)

static const struct option_row status_rows[] = {
    CTL_DAEMON_ROWS(AT(json), AT(socket), AT(timeout_s)),
};

#undef AT

const struct option_verb ctl_status = {
    .name = "status",
    .group = "The daemon and its jobs",
    .arguments = NULL,
    .summary = "Show the state of dieseld",
    .about =
	"Prints the state of `dieseld`(8): its cache, quotas and each user's part, the tuner, sensing, "
	"codecs and those that failed to load, datasets with damaged chunks, and sessions. For a job whose "
	"images it decodes, it prints the decoded and the damaged samples, the CPU time of the decoders, and "
	"how many decoders were replaced after they crashed, hung or were killed.\n"
	"Each verb that asks the daemon fails after `--timeout` seconds without an answer (1 to 3600, "
	"default 5), and reports that the daemon is stopped or hangs. The time covers connection, "
	"question and answer together.",
    OPTION_ROWS(status_rows),
    .run = run,
};
