/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl cluster status: the jobs whose nodes share one copy of their dataset, as Redis has it. */
#include "ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/registry.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "lib/text.h"
#include "lib/units.h"

#define TEXT_BYTES 800 /* size of a name with every byte escaped */

enum problem { /* worst state last */
	       PROBLEM_ALONE,
	       PROBLEM_NO_MEMORY,
	       PROBLEM_OTHER_VERSION,
	       PROBLEM_SAME_ADDRESS,
	       N_PROBLEMS,
};

static const struct {
	const char *name; /* item of "problems" in the JSON */
	const char *text;
} problems[N_PROBLEMS] = {
    [PROBLEM_ALONE] = {"alone", "only one node takes part, so no data is shared"},
    [PROBLEM_NO_MEMORY] =
	{"no_memory", "nodes without memory for the dataset own no chunks: raise the cache of their daemons"},
    [PROBLEM_OTHER_VERSION] = {"other_version",
			       "nodes of this job read another dataset or version, and share nothing with "
			       "the others: open the same version on all nodes"},
    [PROBLEM_SAME_ADDRESS] = {"same_address", "several nodes report the same address, so only one of them "
					      "can be reached: start their daemons with --cluster-advertise"},
};

struct job_group {
	const struct registry_entry *members;
	size_t n;
	bool has[N_PROBLEMS];
	uint64_t memory_bytes;
};

struct groups {
	struct job_group *list;
	size_t n;
};

static bool is_same_job(const struct registry_group_key *a, const struct registry_group_key *b)
{
	return a->uid == b->uid && strcmp(a->job, b->job) == 0;
}

static void judge(struct job_group *g)
{
	g->has[PROBLEM_ALONE] = g->n == 1;
	for (size_t i = 0; i < g->n; i++) {
		const struct registry_member *m = &g->members[i].member;

		g->memory_bytes += m->weight_bytes;
		g->has[PROBLEM_NO_MEMORY] |= m->weight_bytes == 0;
		for (size_t k = 0; k < i; k++)
			g->has[PROBLEM_SAME_ADDRESS] |= strcmp(m->address, g->members[k].member.address) == 0;
	}
}

static int worst(const struct job_group *g)
{
	for (int p = N_PROBLEMS - 1; p >= 0; p--)
		if (g->has[p])
			return p;
	return -1;
}

/* Sorts groups by state, worst first, then by size, largest first. */
static int compare_groups(const void *left, const void *right)
{
	const struct job_group *a = left, *b = right;

	if (worst(a) != worst(b))
		return compare_numbers(worst(b), worst(a));
	if (a->n != b->n)
		return compare_numbers(b->n, a->n);
	return strcmp(a->members->group.text, b->members->group.text);
}

/* Makes the groups from entries that are sorted by group. */
static int make_groups(const struct registry_entry *entries, size_t n, struct groups *ret)
{
	struct groups all = {.list = calloc(n + 1, sizeof(*all.list))};

	if (!all.list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (i == 0 || strcmp(entries[i].group.text, entries[i - 1].group.text) != 0)
			all.list[all.n++].members = &entries[i];
		all.list[all.n - 1].n++;
	}
	for (size_t i = 0; i < all.n; i++) {
		judge(&all.list[i]);
		for (size_t k = 0; k < all.n; k++)
			all.list[i].has[PROBLEM_OTHER_VERSION] |=
			    i != k && is_same_job(&all.list[i].members->key, &all.list[k].members->key);
	}
	qsort(all.list, all.n, sizeof(*all.list), compare_groups);
	*ret = all;
	return 0;
}

/* Returns the member's share of the chunks, by the rule of dataset/owner.h. */
static double share_of(const struct job_group *g, const struct registry_member *m)
{
	return g->memory_bytes ? (double)m->weight_bytes / (double)g->memory_bytes : 1.0 / (double)g->n;
}

static const char *printable(char text[TEXT_BYTES], const char *name)
{
	return text_printable(text, TEXT_BYTES, name, strlen(name));
}

static const char *digest_text(char text[33], const uint8_t digest[16])
{
	for (size_t i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return text;
}

static int width_of(const struct job_group *g)
{
	char text[TEXT_BYTES];
	size_t width = 8;

	for (size_t i = 0; i < g->n; i++)
		if (strlen(printable(text, g->members[i].member.node)) > width)
			width = strlen(text);
	return (int)width;
}

static void print_group(const struct job_group *g)
{
	const struct registry_entry *first = g->members;
	char text[TEXT_BYTES], path[TEXT_BYTES], digest[33], bytes[16];
	int width = width_of(g);

	printf("job %s of uid %u: %s, version %.8s; %zu node%s, %s together\n",
	       printable(text, first->key.job), first->key.uid, printable(path, first->path),
	       digest_text(digest, first->key.dataset), g->n, units_plural(g->n),
	       units_format_bytes(bytes, sizeof(bytes), g->memory_bytes));
	for (int p = N_PROBLEMS - 1; p >= 0; p--)
		if (g->has[p])
			printf("  ! %s\n", problems[p].text);
	printf("  %-*s  %-21s %10s %7s\n", width, "NODE", "ADDRESS", "MEMORY", "CHUNKS");
	for (size_t i = 0; i < g->n; i++) {
		const struct registry_entry *e = &g->members[i];

		printf("  %-*s  %-21s %10s %5.1f %%", width, printable(text, e->member.node),
		       e->member.address, units_format_bytes(bytes, sizeof(bytes), e->member.weight_bytes),
		       100 * share_of(g, &e->member));
		if (strcmp(e->path, first->path) != 0)
			printf("  (%s)", printable(path, e->path));
		putchar('\n');
	}
}

static void print_text(const struct groups *groups)
{
	if (groups->n == 0)
		puts("no job runs on several nodes");
	for (size_t i = 0; i < groups->n; i++) {
		if (i)
			putchar('\n');
		print_group(&groups->list[i]);
	}
}

static void print_string(const char *name, const char *text)
{
	printf("\"%s\": ", name);
	ctl_json_string(text, strlen(text));
}

static void print_json_group(const struct job_group *g)
{
	const struct registry_group_key *key = &g->members->key;
	const char *separator = "";
	char digest[33];

	printf("\n{\"group\": \"%s\", \"uid\": %u, ", g->members->group.text, key->uid);
	print_string("job", key->job);
	printf(", \"dataset\": \"%s\", \"memory_bytes\": %llu, \"problems\": [",
	       digest_text(digest, key->dataset), (unsigned long long)g->memory_bytes);
	for (int p = N_PROBLEMS - 1; p >= 0; p--)
		if (g->has[p]) {
			printf("%s\"%s\"", separator, problems[p].name);
			separator = ", ";
		}
	printf("], \"members\": [");
	for (size_t i = 0; i < g->n; i++) {
		const struct registry_entry *e = &g->members[i];

		printf("%s\n  {", i ? "," : "");
		print_string("node", e->member.node);
		printf(", ");
		print_string("address", e->member.address);
		printf(", ");
		print_string("path", e->path);
		printf(", \"memory_bytes\": %llu, \"share\": %.6f}",
		       (unsigned long long)e->member.weight_bytes, share_of(g, &e->member));
	}
	printf("]}");
}

static void print_json(const struct groups *groups)
{
	printf("{\"schema\": \"diesel.cluster/1\", \"groups\": [");
	for (size_t i = 0; i < groups->n; i++) {
		printf("%s", i ? "," : "");
		print_json_group(&groups->list[i]);
	}
	puts("]}");
}

struct cluster_verb {
	const char *url;
	bool json;
};

static int run(const struct option_verb *verb, int argc, char **argv)
{
	_cleanup_(freep) struct registry_entry *entries = NULL;
	struct groups groups = {0};
	struct error err = ERROR_INIT;
	struct cluster_verb o = {0};
	size_t n = 0;
	int r;

	if (!ctl_options(verb, argc, argv, &o, &r))
		return r;
	if (argc - optind != 1 || strcmp(argv[optind], "status") != 0)
		return ctl_usage(verb, "expected a subcommand: status");
	r = registry_list(o.url, &entries, &n, &err);
	if (r == -ENOKEY)
		return ctl_usage(verb, "expected --redis URL, as for dieseld --cluster, or DIESEL_REDIS");
	if (r == 0 && (r = make_groups(entries, n, &groups)) < 0)
		error_errno(&err, r, "%zu nodes", n);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (o.json)
		print_json(&groups);
	else
		print_text(&groups);
	free(groups.list);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct cluster_verb, member)

static const struct option_row cluster_rows[] = {
    {"redis", option_set_string, AT(url), .value = "URL",
     .help = "URL of the Redis server of dieseld --cluster (default: DIESEL_REDIS, or the URL in the file "
	     "DIESEL_REDIS_FILE)",
     .about = "The URL given to `dieseld --cluster`: `redis://`[USER:PASSWORD@]HOST[:PORT][/PREFIX] or "
	      "`rediss://`. The default is `DIESEL_REDIS`, or the URL in the file that `DIESEL_REDIS_FILE` "
	      "names. Password and certificates are as for `pack --meta`; the wait is 5 seconds."},
    {"json", option_set_flag, AT(json), .help = "as a JSON object"},
};

#undef AT

const struct option_verb ctl_cluster = {
    .name = "cluster",
    .arguments = "status",
    .summary = "Show which nodes share the datasets of which jobs",
    .help = "Per job: its nodes, the memory that each has for the dataset, and the part of the chunks that "
	    "it owns.\n"
	    "Jobs with problems come first. Runs on any machine that reaches the server.\n",
    .about =
	"Lists the jobs whose nodes share one copy of their dataset in memory (`dieseld --cluster`), "
	"from the Redis server of these nodes. It runs on any machine that reaches that server. Per "
	"job: its name and user, the dataset, and its nodes, each with address, memory for the dataset, "
	"and the part of the chunks that it owns. A node that stops renewing its entry disappears "
	"within 3 seconds. Jobs with problems come first: nodes with the same address, nodes that read "
	"different versions of the dataset, nodes without memory for it, a job with only one node. Control "
	"characters in names are shown escaped. `dieselctl status` on a node shows which chunks are in "
	"memory now, and which came from other nodes.",
    OPTION_ROWS(cluster_rows),
    .words = "status",
    .run = run,
};
