/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where samples come from, behind one table of functions: this node (by BPF or /proc), the daemon, both
 * together, or a reel. Used by one thread; no call waits long.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct error;
struct feed;
struct top_sample;

/* What a view needs beyond jobs. Collecting it costs something, so it is done only when asked for. */
enum feed_want {
	FEED_WANT_WORKERS = 1 << 0,
	FEED_WANT_DEVICES = 1 << 1,
	FEED_WANT_HOPS = 1 << 2,
	FEED_WANT_DECISIONS = 1 << 3,
	FEED_WANT_THREADS = 1 << 4, /* with FEED_WANT_WORKERS: threads too */
	FEED_WANT_GPUS = 1 << 5,
	FEED_WANT_ALL = 15 | FEED_WANT_GPUS, /* all but threads */
};

enum feed_seek {
	FEED_SEEK_FIRST,
	FEED_SEEK_LAST,
	FEED_SEEK_BACK,   /* the record before the one that was given last */
	FEED_SEEK_TIME,   /* the last record at that time: "14:03", "14:03:22", "+60", "-60", ... */
	FEED_SEEK_REWIND, /* as many records back from the next one as `time` says, or to the first */
};

struct feed_ops {
	/* Does the work that is due between two samples; *ret_next_ns: when to call it again at the latest.
	 */
	void (*work)(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns);
	/* The current state, in which unavailable parts say so. A reel gives its next record, and -ENODATA at
	 * its end; other feeds fail only with -ENOMEM and the like. Caller frees. */
	int (*sample)(struct feed *feed, unsigned int wanted, uint64_t now_ns, struct top_sample **ret_sample,
		      struct error *err);
	/* Reels only, else NULL: chooses the record that sample() gives next. -EINVAL: no such time.
	 * FEED_SEEK_REWIND returns how many records it went back. */
	int (*seek)(struct feed *feed, enum feed_seek where, const char *time, struct error *err);
	/* Reels only, else NULL: how many damaged records were skipped so far. */
	size_t (*n_skipped)(const struct feed *feed);
	void (*close)(struct feed *feed);
};

struct feed {
	const struct feed_ops *ops;
};

struct node_options {
	const pid_t *pids; /* only these jobs; none: all that train */
	size_t n_pids;
	bool sampled; /* do not try BPF */
};

/* Jobs of this machine, without a daemon. Without privilege shares are approximate; the sample says so. */
int feed_node_open(const struct node_options *options, struct feed **ret_feed, struct error *err);

/* For a node's feed: the process that the job of this process began with; 0: it belongs to none. */
pid_t feed_node_job_of(const struct feed *feed, pid_t pid);

/* What dieseld says about its jobs. socket: NULL for the usual one. dieseld need not be there, and may come
 * and go. */
int feed_daemon_open(const char *socket, struct feed **ret_feed, struct error *err);

/* What the nodes of a cluster say of their jobs, through Redis (dataset/registry.h). The server need not be
 * there, and may come and go. -EINVAL: no such URL. */
int feed_nodes_open(const char *url, struct feed **ret_feed, struct error *err);

/* A node's feed and a daemon's as one, which takes over both, also on failure. */
int feed_both_open(struct feed *node, struct feed *daemon, struct feed **ret_feed, struct error *err);

struct replay_options {
	const char *path;
	const char *begin, *end; /* as the user writes times; NULL: all */
};

/* What diesel-top -w recorded. Errors are those of reel_open(), and -EINVAL for the times. */
int feed_replay_open(const struct replay_options *options, struct feed **ret_feed, struct error *err);

static inline struct feed *feed_close(struct feed *feed)
{
	if (feed)
		feed->ops->close(feed);
	return NULL;
}
