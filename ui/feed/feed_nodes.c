/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of its own asks the Redis server, again and again while samples are taken, so that a server that
 * hangs does not hang the screen. Samples are made of what it said last. */
#include "feed.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataset/registry.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/sorted.h"
#include "lib/text.h"
#include "node_report.h"
#include "ui/state/sample.h"

#define ANSWER_MS 500 /* a sample waits for at most so long */

struct nodes_feed {
	struct feed feed;
	char *url;
	pthread_t thread;
	pthread_mutex_t lock; /* protects what follows, up to the loop's own */
	pthread_cond_t changed;
	bool is_asked, stops;
	struct registry_report *reports; /* as they were at at_ns */
	size_t n;
	struct error err;         /* of the last attempt */
	uint64_t at_ns, tried_ns; /* 0: never */
	/* the loop's own */
	bool is_slow;
};

static void *serve(void *user)
{
	struct nodes_feed *feed = user;

	pthread_mutex_lock(&feed->lock);
	while (!feed->stops) {
		struct registry_report *reports = NULL;
		struct error err = ERROR_INIT;
		size_t n = 0;
		int r;

		if (!feed->is_asked) {
			pthread_cond_wait(&feed->changed, &feed->lock);
			continue;
		}
		feed->is_asked = false;
		pthread_mutex_unlock(&feed->lock);
		r = registry_reports(feed->url, &reports, &n, &err);
		pthread_mutex_lock(&feed->lock);
		feed->err = r < 0 ? err : ERROR_INIT;
		feed->tried_ns = clock_monotonic_ns();
		if (r == 0) {
			registry_reports_free(feed->reports, feed->n);
			feed->reports = reports;
			feed->n = n;
			feed->at_ns = feed->tried_ns;
		}
		pthread_cond_broadcast(&feed->changed);
	}
	pthread_mutex_unlock(&feed->lock);
	return NULL;
}

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
}

/* How many there are, who is silent, and why nothing new is known. */
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
		 feed->err.code ? "; " : "", feed->err.code ? feed->err.text : "");
}

/* Who waited the longest first; who is not known to have waited, last. */
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

	for (size_t i = 0; r == 0 && i < feed->n; i++)
		r = node_report_fill(feed->reports[i].json, feed->reports[i].node,
				     (double)feed->reports[i].age_ms / 1e3 + since_s, sample);
	if (sample->n_jobs)
		qsort(sample->jobs, sample->n_jobs, sizeof(*sample->jobs), compare_jobs);
	fill_source(feed, sample);
	if (feed->err.code)
		snprintf(sample->daemon.problem, sizeof(sample->daemon.problem), "%s", feed->err.text);
	return r;
}

/* With the lock: asks, and waits a moment for an answer that is newer than this. */
static void wait_for_answer(struct nodes_feed *feed, uint64_t now_ns)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(feed->is_slow ? 0 : ANSWER_MS * NS_PER_MS);
	until.tv_sec += until.tv_nsec / (long)NS_PER_S;
	until.tv_nsec %= (long)NS_PER_S;
	feed->is_asked = true;
	pthread_cond_broadcast(&feed->changed);
	while (r == 0 && feed->tried_ns < now_ns)
		r = pthread_cond_timedwait(&feed->changed, &feed->lock, &until);
	feed->is_slow = r != 0;
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
	pthread_mutex_lock(&feed->lock);
	wait_for_answer(feed, now_ns);
	r = fill(feed, clock_monotonic_ns(), sample);
	pthread_mutex_unlock(&feed->lock);
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

	pthread_mutex_lock(&feed->lock);
	feed->stops = true;
	pthread_cond_broadcast(&feed->changed);
	pthread_mutex_unlock(&feed->lock);
	/* A thread that waits for a hanging server is left behind: the process ends anyway. */
	if (feed->is_slow) {
		pthread_detach(feed->thread);
		return;
	}
	pthread_join(feed->thread, NULL);
	registry_reports_free(feed->reports, feed->n);
	pthread_cond_destroy(&feed->changed);
	pthread_mutex_destroy(&feed->lock);
	free(feed->url);
	free(feed);
}

static const struct feed_ops nodes_ops = {.work = work, .sample = take_sample, .close = nodes_close};

int feed_nodes_open(const char *url, struct feed **ret_feed, struct error *err)
{
	struct nodes_feed *feed;
	pthread_condattr_t attributes;
	int r = registry_check_url(url, err);

	if (r < 0)
		return r;
	feed = calloc(1, sizeof(*feed));
	if (!feed || !(feed->url = strdup(url))) {
		free(feed);
		return error_set(err, -ENOMEM, "no memory to begin");
	}
	feed->feed.ops = &nodes_ops;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&feed->lock, NULL);
	pthread_cond_init(&feed->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	r = -pthread_create(&feed->thread, NULL, serve, feed);
	if (r < 0) {
		free(feed->url);
		free(feed);
		return error_errno(err, r, "cannot begin to ask the Redis server");
	}
	*ret_feed = &feed->feed;
	return 0;
}
