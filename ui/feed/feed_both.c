/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/error.h"
#include "merge.h"
#include "ui/state/sample.h"

struct both {
	struct feed feed;
	struct feed *node, *daemon;
};

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct both *both = (struct both *)feed;

	both->node->ops->work(both->node, now_ns, ret_next_ns);
}

static uint64_t job_of(void *user, uint64_t pid)
{
	return (uint64_t)feed_node_job_of(user, (pid_t)pid);
}

static int take_sample(struct feed *feed, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct both *both = (struct both *)feed;
	struct top_sample *node = NULL, *daemon = NULL;
	int r = both->node->ops->sample(both->node, wanted, now_ns, &node, err);

	if (r == 0)
		r = both->daemon->ops->sample(both->daemon, wanted, now_ns, &daemon, err);
	if (r == 0 && merge_daemon(node, daemon, job_of, both->node))
		r = error_set(err, -ENOMEM, "no memory for a sample");
	sample_free(daemon);
	if (r < 0)
		sample_free(node);
	else
		*ret_sample = node;
	return r;
}

static void both_close(struct feed *feed)
{
	struct both *both = (struct both *)feed;

	feed_close(both->node);
	feed_close(both->daemon);
	free(both);
}

static const struct feed_ops both_ops = {.work = work, .sample = take_sample, .close = both_close};

int feed_both_open(struct feed *node, struct feed *daemon, struct feed **ret_feed, struct error *err)
{
	struct both *both = calloc(1, sizeof(*both));

	if (!both) {
		feed_close(node);
		feed_close(daemon);
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	}
	*both = (struct both){{&both_ops}, node, daemon};
	*ret_feed = &both->feed;
	return 0;
}
