/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sources of samples behind one table of functions: this node (by BPF or /proc), the daemon, both, or a
 * recording. Used by one thread; no call waits for long.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct error;
struct feed;
struct top_sample;

/* Data that a view needs in addition to jobs. A feed collects it only on request because it costs CPU time.
 */
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
	FEED_SEEK_BACK,   /* the record before the last returned one */
	FEED_SEEK_TIME,   /* the last record not later than a time: "14:03", "14:03:22", "+60", "-60", ... */
	FEED_SEEK_REWIND, /* go back `time` records from the next one, at most to the first */
};

struct feed_ops {
	/* Does the work that is due between two samples. *ret_next_ns: the latest time for the next call. */
	void (*work)(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns);
	/* Returns the current state, in which unavailable parts are marked. A recording returns its next
	 * record, and -ENODATA at its end; other feeds fail only with -ENOMEM and the like. Caller frees. */
	int (*sample)(struct feed *feed, unsigned int wanted, uint64_t now_ns, struct top_sample **ret_sample,
		      struct error *err);
	/* Reels only, else NULL: chooses the record that sample() returns next. -EINVAL: no such time. With
	 * FEED_SEEK_REWIND, returns the number of records gone back. */
	int (*seek)(struct feed *feed, enum feed_seek where, const char *time, struct error *err);
	/* Reels only, else NULL: returns the number of damaged records skipped so far. */
	size_t (*n_skipped)(const struct feed *feed);
	/* A node's feed only, else NULL: returns the root process of the job that `pid` belongs to; 0: it
	 * belongs to no job. */
	pid_t (*job_of)(const struct feed *feed, pid_t pid);
	void (*close)(struct feed *feed);
};

struct feed {
	const struct feed_ops *ops;
};

struct node_options {
	const pid_t *pids; /* only these jobs; none: all training processes */
	size_t n_pids;
	bool sampled; /* sample /proc, without trying BPF */
};

/* Opens a feed of this machine's jobs that needs no daemon. Without privilege, shares are approximate; the
 * sample says so. */
int feed_node_open(const struct node_options *options, struct feed **ret_feed, struct error *err);

/* Opens a feed of the jobs that dieseld reports. socket: NULL for the default. dieseld may be absent, start
 * later, and restart. */
int feed_daemon_open(const char *socket, struct feed **ret_feed, struct error *err);

/* Opens a feed of the jobs that the nodes of a cluster report through Redis (dataset/registry.h). The server
 * may be absent, start later, and restart. -EINVAL: not a valid URL. */
int feed_nodes_open(const char *url, struct feed **ret_feed, struct error *err);

/* Combines a node's feed and a daemon's: the node's view of its jobs, and the daemon's report on the same
 * jobs. Takes ownership of both, also on failure. */
int feed_both_open(struct feed *node, struct feed *daemon, struct feed **ret_feed, struct error *err);

struct replay_options {
	const char *path;
	const char *begin, *end; /* times as the user writes them; NULL: all */
};

/* Opens a recording made by diesel-top -w. -ENOENT and the like; -EBADMSG: not a recording; -EPROTONOSUPPORT:
 * all records were made by a newer diesel-top; -EINVAL: not a regular file, or an invalid time. */
int feed_replay_open(const struct replay_options *options, struct feed **ret_feed, struct error *err);

static inline struct feed *feed_close(struct feed *feed)
{
	if (feed)
		feed->ops->close(feed);
	return NULL;
}
