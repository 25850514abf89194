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
	FEED_WANT_DECISIONS = 1 << 3,
	FEED_WANT_THREADS = 1 << 4, /* with FEED_WANT_WORKERS: threads, too */
	FEED_WANT_GPUS = 1 << 5,
	FEED_WANT_ALL = 15 | FEED_WANT_GPUS, /* but for threads */
};

enum feed_seek {
	FEED_SEEK_FIRST,
	FEED_SEEK_LAST,
	FEED_SEEK_BACK,   /* the one before the one that was given last */
	FEED_SEEK_TIME,   /* the last one at that time; "14:03", "14:03:22", "+60", "-60", ... */
	FEED_SEEK_REWIND, /* so many records (in `time`) before the one that would be next, or the first */
};

struct feed_ops {
	/* Work that is due between two samples; *ret_next_ns: call again then at the latest. */
	void (*work)(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns);
	/* Current state; unavailable parts say so. Caller frees. -ENOMEM and the like only. A recording
	 * gives the next record, and -ENODATA at its end. */
	int (*sample)(struct feed *feed, unsigned int wanted, uint64_t now_ns, struct sample **ret_sample,
		      struct error *err);
	/* Recordings only, else NULL: which record sample() gives next. -EINVAL: no such time.
	 * FEED_SEEK_REWIND gives how many records it were. */
	int (*seek)(struct feed *feed, enum feed_seek where, const char *time, struct error *err);
	/* Recordings only: damaged records so far. */
	size_t (*n_skipped)(const struct feed *feed);
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

/* Of a node's feed: the process that the job began with which this process belongs to; 0: none. */
pid_t feed_node_job_of(const struct feed *feed, pid_t pid);

/* What dieseld says of its jobs. socket NULL: the usual one. It need not be there, and may come back. */
int feed_daemon_open(const char *socket, struct feed **ret_feed, struct error *err);

/* A node's feed and a daemon's as one, which owns both; also on failure. */
int feed_both_open(struct feed *node, struct feed *daemon, struct feed **ret_feed, struct error *err);

struct replay_options {
	const char *path;
	const char *begin, *end; /* as the user writes times; NULL: all */
};

/* What diesel-top -w recorded. Errors: reel_open()'s, -EINVAL for the times. */
int feed_replay_open(const struct replay_options *options, struct feed **ret_feed, struct error *err);

static inline struct feed *feed_close(struct feed *feed)
{
	if (feed)
		feed->ops->close(feed);
	return NULL;
}
