/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where samples come from, behind one table: this node (collector and analyzer, or /proc), the daemon, both
 * together, or a recording. One thread; no call waits for anything.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct error;
struct feed;
struct sample;

/* What a view needs beyond jobs: looking at it costs, so nobody looks unasked. */
enum feed_want {
	FEED_WANT_WORKERS = 1 << 0,
	FEED_WANT_DEVICES = 1 << 1,
	FEED_WANT_HOPS = 1 << 2,
	FEED_WANT_ALL = 7,
};

struct feed_ops {
	/* Work that is due between two samples; *ret_next_ns: call again then at the latest. */
	void (*work)(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns);
	/* The present; what is not there is said in it. Caller frees. -ENOMEM and the like only. A recording
	 * gives the next record, and -ENODATA at its end. */
	int (*sample)(struct feed *feed, unsigned int wanted, uint64_t now_ns, struct sample **ret_sample,
		      struct error *err);
	void (*close)(struct feed *feed);
};

struct feed {
	const struct feed_ops *ops;
};

struct node_options {
	const pid_t *pids; /* these jobs; none: all that train */
	size_t n_pids;
	bool sampled; /* do not try BPF */
};

/* Jobs of this machine, without a daemon. Without privilege it is approximate and says so. */
int feed_node_open(const struct node_options *options, struct feed **ret_feed, struct error *err);

static inline struct feed *feed_close(struct feed *feed)
{
	if (feed)
		feed->ops->close(feed);
	return NULL;
}
