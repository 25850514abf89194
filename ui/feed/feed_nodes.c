/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asker.h"
#include "dataset/registry.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/sorted.h"
#include "lib/text.h"
#include "node_report.h"
#include "ui/state/sample.h"

#define ANSWER_MS 500 /* maximum time that a sample waits for an answer */

struct heard_reports {
	struct registry_report *reports;
	size_t n;
	struct error err; /* err.code is 0 if there are reports */
};

/* Samples use the latest reports from the Redis server. */
struct nodes_feed {
	struct feed feed;
	char *url;
	struct asker asker;
	/* used by the asker's thread only */
	struct heard_reports heard;
	/* protected by the asker's lock */
	struct heard_reports last; /* reports: those received at at_ns; err: of the last attempt */
	uint64_t at_ns;            /* 0: never */
};

static void ask(void *user)
{
	struct nodes_feed *feed = user;
	struct heard_reports *h = &feed->heard;

	*h = (struct heard_reports){.err = ERROR_INIT};
	if (registry_reports(feed->url, &h->reports, &h->n, &h->err) == 0)
		h->err = ERROR_INIT;
}

static void keep(void *user)
{
	struct nodes_feed *feed = user;

	feed->last.err = feed->heard.err;
	if (feed->heard.err.code)
		return;
	registry_reports_free(feed->last.reports, feed->last.n);
	feed->last = feed->heard;
	feed->at_ns = clock_monotonic_ns();
}

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
}

/* Writes the number of nodes, the names of silent ones, and the reason if there is no new data. */
static void fill_source(const struct nodes_feed *feed, struct top_sample *sample)
{
	struct self_sample *self = &sample->self;
	char text[sizeof(self->source)] = "", age[32];
	size_t n_silent = 0, used = 0;

	for (size_t i = 0; i < sample->n_nodes; i++) {
		const struct node_sample *node = &sample->nodes[i];
		char name[80];

		if (strcmp(node->state, "silent") != 0)
			continue;
		if (n_silent++ < 3)
			used += (size_t)snprintf(
			    text + used, sizeof(text) - used, "%s%s for %.0f s", used ? ", " : "",
			    text_printable(name, sizeof(name), node->name, strlen(node->name)), node->age_s);
	}
	snprintf(age, sizeof(age), "%zu silent: ", n_silent);
	snprintf(self->source, sizeof(self->source), "%zu node%s%s%s%s%s%s", sample->n_nodes,
		 sample->n_nodes == 1 ? "" : "s", n_silent ? ", " : "", n_silent ? age : "", text,
		 feed->last.err.code ? "; " : "", feed->last.err.code ? feed->last.err.text : "");
}

/* Sorts by wait, longest first; jobs with an unknown wait come last. */
static int compare_jobs(const void *left, const void *right)
{
	const struct job_sample *a = left, *b = right;
	double of_a = isnan(a->stall_s) ? -1 : a->stall_s, of_b = isnan(b->stall_s) ? -1 : b->stall_s;

	return of_a != of_b ? compare_numbers(of_b, of_a) : strcmp(a->node, b->node);
}

static int fill(const struct nodes_feed *feed, uint64_t now_ns, struct top_sample *sample)
{
	double since_s = now_ns > feed->at_ns ? (double)(now_ns - feed->at_ns) / 1e9 : 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < feed->last.n; i++)
		r = node_report_fill(feed->last.reports[i].json, feed->last.reports[i].node,
				     (double)feed->last.reports[i].age_ms / 1e3 + since_s, sample);
	if (sample->n_jobs)
		qsort(sample->jobs, sample->n_jobs, sizeof(*sample->jobs), compare_jobs);
	fill_source(feed, sample);
	if (feed->last.err.code)
		snprintf(sample->daemon.problem, sizeof(sample->daemon.problem), "%s", feed->last.err.text);
	return r;
}

static int take_sample(struct feed *base, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct nodes_feed *feed = (struct nodes_feed *)base;
	struct top_sample *sample = sample_new();
	int r;

	if (!sample)
		return error_set(err, -ENOMEM, "no memory for a sample");
	sample->time_s = (double)clock_realtime_ns() / 1e9;
	asker_wait(&feed->asker, now_ns, ANSWER_MS);
	r = fill(feed, clock_monotonic_ns(), sample);
	pthread_mutex_unlock(&feed->asker.lock);
	if (r < 0) {
		sample_free(sample);
		return error_set(err, r, "no memory for a sample");
	}
	*ret_sample = sample;
	return 0;
}

static void nodes_close(struct feed *base)
{
	struct nodes_feed *feed = (struct nodes_feed *)base;

	if (!asker_stop(&feed->asker))
		return;
	registry_reports_free(feed->last.reports, feed->last.n);
	free(feed->url);
	free(feed);
}

static const struct feed_ops nodes_ops = {.work = work, .sample = take_sample, .close = nodes_close};

int feed_nodes_open(const char *url, struct feed **ret_feed, struct error *err)
{
	struct nodes_feed *feed;
	int r = registry_check_url(url, err);

	if (r < 0)
		return r;
	feed = calloc(1, sizeof(*feed));
	if (!feed || !(feed->url = strdup(url))) {
		free(feed);
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	}
	feed->feed.ops = &nodes_ops;
	feed->asker.ask = ask;
	feed->asker.keep = keep;
	feed->asker.user = feed;
	r = asker_start(&feed->asker);
	if (r < 0) {
		free(feed->url);
		free(feed);
		return error_errno(err, r, "cannot connect to the Redis server");
	}
	*ret_feed = &feed->feed;
	return 0;
}
