/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/live.h"
#include "analyzer/source.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/proc.h"
#include "node.h"
#include "sample.h"

/* Parts of one core. Together with drawing they stay below a hundredth. */
#define POLL_RATIO 0.004
#define SCAN_RATIO 0.002

#define POLL_NS (100 * NS_PER_MS) /* collector_poll() must be called as often */
#define SCAN_NS (2 * NS_PER_S)

#define WINDOW_NS (12 * NS_PER_S)
/* Only hundreds of the sampler's looks tell something, and within the budget they take a while. */
#define WINDOW_SAMPLED_NS  (30 * NS_PER_S)
#define POLL_SAMPLED_RATIO 0.006
#define N_EVENTS_MAX       (1 << 16) /* of one job; more would cost too much to analyse often */

static void on_event(void *user, const struct event *event)
{
	struct node *node = user;

	/* The sampler finds descendants by itself, and only their own records say whose they are. */
	if (node->sampled && event->type == EVENT_ALIVE && event->name.parent_tgid > 1) {
		struct event fork = {.type = EVENT_FORK,
				     .start_ns = event->start_ns,
				     .end_ns = event->end_ns,
				     .tid = event->name.parent_tgid,
				     .tgid = event->name.parent_tgid};

		fork.fork.child_tid = fork.fork.child_tgid = event->tgid;
		live_event(node->live, &fork);
	}
	live_event(node->live, event);
}

static void on_note(void *user, const char *kind, uint64_t key, const void *data, size_t size)
{
	live_note(((struct node *)user)->live, kind, data, size);
}

void node_job_free(struct node_job *job)
{
	analysis_free(job->analysis);
}

void node_poll(struct node *node, uint64_t now_ns)
{
	const struct collector_sink sink = {on_event, on_note, node};
	uint64_t cpu_ns = budget_cpu_ns();

	source_poll(node->source, 0, &sink);
	budget_spend(&node->poll_budget, now_ns, budget_cpu_ns() - cpu_ns);
}

static int scan(struct node *node, uint64_t now_ns)
{
	uint64_t cpu_ns = budget_cpu_ns();
	int r = census_scan(node->census, now_ns);

	if (r > 0)
		r = node_jobs_update(node);
	budget_spend(&node->scan_budget, now_ns, budget_cpu_ns() - cpu_ns);
	return r;
}

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct node *node = (struct node *)feed;

	if (budget_allows(&node->poll_budget, now_ns))
		node_poll(node, now_ns);
	if (budget_allows(&node->scan_budget, now_ns))
		scan(node, now_ns);
	*ret_next_ns = node->poll_budget.next_ns < node->scan_budget.next_ns ? node->poll_budget.next_ns
									     : node->scan_budget.next_ns;
}

static int take_sample(struct feed *feed, unsigned int wanted, uint64_t now_ns, struct sample **ret_sample,
		       struct error *err)
{
	struct node *node = (struct node *)feed;
	struct sample *sample = sample_new();
	int r;

	if (!sample)
		return error_set(err, -ENOMEM, "no memory for a sample");
	sample->time_s = (double)clock_realtime_ns() / 1e9;
	if (node->sampled_ns)
		sample->interval_s = (double)(now_ns - node->sampled_ns) / 1e9;
	host_look(&node->host, "/proc", now_ns, &sample->host);
	r = node_jobs_sample(node, wanted, now_ns, sample);
	if (r == 0)
		r = node_workers_sample(node, wanted, now_ns, sample);
	if (r == 0 && wanted & FEED_WANT_DEVICES)
		r = devices_look(&node->devices, "/proc", now_ns, sample);
	if (r == 0 && wanted & FEED_WANT_GPUS)
		r = node_gpus_sample(node, sample);
	node_self_sample(node, now_ns, sample);
	node->sampled_ns = now_ns;
	if (r < 0) {
		sample_free(sample);
		return error_set(err, r, "no memory for a sample");
	}
	*ret_sample = sample;
	return 0;
}

static void node_close(struct feed *feed)
{
	struct node *node = (struct node *)feed;

	for (size_t i = 0; i < node->n_jobs; i++)
		node_job_free(&node->jobs[i]);
	free(node->jobs);
	free(node->tasks);
	devices_free(&node->devices);
	gpus_free(&node->gpus);
	census_free(node->census);
	live_free(node->live);
	source_close(node->source);
	free(node);
}

static const struct feed_ops node_ops = {.work = work, .sample = take_sample, .close = node_close};

/* Opens BPF, or /proc where BPF is refused; node->how says which. */
static int open_source(struct node *node, bool sampled, struct error *err)
{
	const struct collector_options options = {0};
	struct error refusal = ERROR_INIT;
	int r = sampled ? -EPERM : source_open(SOURCE_COLLECTOR, &options, &node->source, &refusal);

	node->sampled = r != 0;
	if (r == 0) {
		snprintf(node->how, sizeof(node->how), "BPF");
		return 0;
	}
	if (sampled)
		snprintf(node->how, sizeof(node->how), "sampling /proc: approximate");
	else
		snprintf(node->how, sizeof(node->how), "sampling /proc: approximate (%s)", refusal.text);
	r = source_open(SOURCE_SAMPLER, &options, &node->source, err);
	return r;
}

int feed_node_open(const struct node_options *options, struct feed **ret_feed, struct error *err)
{
	struct node *node = calloc(1, sizeof(*node));
	struct live_config config = {.n_events_max = N_EVENTS_MAX,
				     .n_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN)};
	int r;

	if (!node)
		return error_set(err, -ENOMEM, "no memory to begin");
	node->feed.ops = &node_ops;
	node->poll_budget = (struct budget){.interval_ns = POLL_NS, .ratio = POLL_RATIO};
	node->scan_budget = (struct budget){.interval_ns = SCAN_NS, .ratio = SCAN_RATIO};
	r = census_new("/proc", options->pids, options->n_pids, &node->census);
	if (r < 0)
		error_set(err, r, "no memory to begin");
	else
		r = open_source(node, options->sampled, err);
	if (node->sampled)
		node->poll_budget.ratio = POLL_SAMPLED_RATIO;
	config.window_ns = node->sampled ? WINDOW_SAMPLED_NS : WINDOW_NS;
	node->live = live_new(&config);
	if (r == 0 && !node->live)
		r = error_set(err, -ENOMEM, "no memory to begin");
	if (r == 0 && scan(node, clock_monotonic_ns()) < 0)
		r = error_set(err, -EIO, "cannot read /proc: is it mounted?");
	if (r < 0) {
		node_close(&node->feed);
		return r;
	}
	*ret_feed = &node->feed;
	return 0;
}

pid_t feed_node_job_of(const struct feed *feed, pid_t pid)
{
	const struct process *process = census_find(((const struct node *)feed)->census, pid);

	return process ? process->root : 0;
}
