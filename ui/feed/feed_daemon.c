/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asker.h"
#include "client/admin.h"
#include "daemon_status.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "ui/state/sample.h"

#define DECISIONS_MAX 200
/* Maximum wait for an answer of the daemon, which usually comes within some ms. */
#define ANSWER_MS 150
#define STALE_S   5.0

struct daemon_answer {
	char *status, *why; /* NULL: no answer, see err */
	struct error err;
	uint64_t at_ns; /* time of the answer; 0: none yet */
};

struct daemon_feed {
	struct feed feed;
	char *socket;
	struct asker asker;
	/* used by the asker's thread only */
	struct admin_client *admin; /* NULL: not connected */
	struct daemon_answer heard;
	/* protected by the asker's lock */
	bool wants_why;
	struct daemon_answer answer;
	/* used by the screen's thread only */
	bool was_up;
	double read_bytes, read_s; /* totals at the last answer, for the rate */
};

static void answer_free(struct daemon_answer *answer)
{
	free(answer->status);
	free(answer->why);
	*answer = (struct daemon_answer){0};
}

/* Asks the daemon. If the connection broke, connects again once: the daemon may have been restarted. */
static void ask(struct admin_client **admin, const char *socket, bool wants_why, struct daemon_answer *answer)
{
	int r = -ECONNRESET;

	for (int tries = 0; tries < 2 && r == -ECONNRESET; tries++) {
		answer->err = ERROR_INIT;
		r = *admin ? 0 : admin_open(socket, ADMIN_TIMEOUT_S, admin, &answer->err);
		if (r == 0)
			r = admin_status(*admin, &answer->status, &answer->err);
		if (r == 0 && wants_why &&
		    admin_why(*admin, 0, DECISIONS_MAX, &answer->why, &(struct error){0}))
			answer->why = NULL; /* a daemon without a tuner has no decisions */
		if (r < 0) {
			admin_close(*admin);
			*admin = NULL;
		}
	}
	answer->err.code = r;
	answer->at_ns = clock_monotonic_ns();
}

static void ask_daemon(void *user)
{
	struct daemon_feed *feed = user;

	pthread_mutex_lock(&feed->asker.lock);
	bool wants_why = feed->wants_why;

	pthread_mutex_unlock(&feed->asker.lock);
	ask(&feed->admin, feed->socket, wants_why, &feed->heard);
}

static void keep_answer(void *user)
{
	struct daemon_feed *feed = user;

	answer_free(&feed->answer);
	feed->answer = feed->heard;
	feed->heard = (struct daemon_answer){0};
}

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
}

/* Sends the request, waits a moment, and returns the answer available by then, which the caller frees. */
static void take_answer(struct daemon_feed *feed, bool wants_why, uint64_t now_ns, struct daemon_answer *ret)
{
	pthread_mutex_lock(&feed->asker.lock);
	feed->wants_why = wants_why;
	pthread_mutex_unlock(&feed->asker.lock);
	asker_wait(&feed->asker, now_ns, ANSWER_MS);
	*ret = feed->answer;
	ret->status = feed->answer.status ? strdup(feed->answer.status) : NULL;
	ret->why = feed->answer.why ? strdup(feed->answer.why) : NULL;
	pthread_mutex_unlock(&feed->asker.lock);
}

static void fill_rate(struct daemon_feed *feed, struct daemon_sample *daemon, double at_s)
{
	if (feed->read_s > 0 && at_s > feed->read_s && daemon->read_bytes >= feed->read_bytes)
		daemon->read_bytes_per_s = (daemon->read_bytes - feed->read_bytes) / (at_s - feed->read_s);
	if (isfinite(daemon->read_bytes)) {
		feed->read_bytes = daemon->read_bytes;
		feed->read_s = at_s;
	}
}

static int fill(struct daemon_feed *feed, const struct daemon_answer *answer, uint64_t now_ns,
		struct top_sample *sample)
{
	struct daemon_sample *daemon = &sample->daemon;
	double age_s = answer->at_ns ? ((double)now_ns - (double)answer->at_ns) / 1e9 : INFINITY;
	struct error err = ERROR_INIT;
	int r = 0;

	if (answer->status && age_s < STALE_S) {
		double at_s = sample->time_s - fmax(age_s, 0);

		r = daemon_answer_fill(answer->status, at_s, sample, &err);
		if (r == 0 && answer->why)
			r = daemon_answer_fill(answer->why, at_s, sample, &err);
		daemon->age_s = fmax(age_s, 0);
		feed->was_up |= r == 0;
		fill_rate(feed, daemon, at_s);
		for (size_t i = 0; i < sample->n_jobs; i++)
			sample->jobs[i].age_s = daemon->age_s;
	} else if (!answer->err.code) {
		error_set(&err, -ETIMEDOUT, "dieseld does not answer: is it stopped?");
	} else {
		err = answer->err;
	}
	if (!err.code)
		return 0;
	snprintf(daemon->state, sizeof(daemon->state), "%s", feed->was_up ? "away" : "none");
	snprintf(daemon->problem, sizeof(daemon->problem), "%s", err.text);
	return r == -ENOMEM ? r : 0;
}

static int take_sample(struct feed *base, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct daemon_feed *feed = (struct daemon_feed *)base;
	struct top_sample *sample = sample_new();
	struct daemon_answer answer;
	int r;

	if (!sample)
		return error_set(err, -ENOMEM, "no memory for a sample");
	sample->time_s = (double)clock_realtime_ns() / 1e9;
	take_answer(feed, wanted & FEED_WANT_DECISIONS, now_ns, &answer);
	r = fill(feed, &answer, clock_monotonic_ns(), sample);
	answer_free(&answer);
	if (r < 0) {
		sample_free(sample);
		return error_set(err, r, "no memory for a sample");
	}
	*ret_sample = sample;
	return 0;
}

static void daemon_close(struct feed *base)
{
	struct daemon_feed *feed = (struct daemon_feed *)base;

	if (!asker_stop(&feed->asker))
		return;
	admin_close(feed->admin);
	answer_free(&feed->answer);
	free(feed->socket);
	free(feed);
}

static const struct feed_ops daemon_ops = {.work = work, .sample = take_sample, .close = daemon_close};

int feed_daemon_open(const char *socket, struct feed **ret_feed, struct error *err)
{
	struct daemon_feed *feed = calloc(1, sizeof(*feed));
	int r;

	if (!feed || !(feed->socket = strdup(socket ? socket : ""))) {
		free(feed);
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	}
	feed->feed.ops = &daemon_ops;
	feed->asker.ask = ask_daemon;
	feed->asker.keep = keep_answer;
	feed->asker.user = feed;
	r = asker_start(&feed->asker);
	if (r < 0) {
		free(feed->socket);
		free(feed);
		return error_errno(err, r, "cannot connect to dieseld");
	}
	*ret_feed = &feed->feed;
	return 0;
}
