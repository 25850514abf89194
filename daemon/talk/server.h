/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon: listens, keeps connections and sessions, and hands out reads. One event loop; a pass of
 * on_settle() (server.c) after each round of events starts whatever the events made possible.
 *
 * Locks: none here, nor in sensing and metrics, which are the loop's too. The process has two: the pool's
 * (pool.h) and that of the history's queue. Nobody holds both, so they have no order.
 */

#include "lend_watch.h"
#include "lib/log.h"
#include "quota.h"
#include "serving.h"

#define SERVER_DRAIN_MS        5000
#define SERVER_MAX_CONNECTIONS 1024
#define SERVER_ORPHAN_MS       200
/* Of users, for log lines: who shares a place with another one shares its lines. */
#define SERVER_LINE_PLACES 64

struct connection;
struct control;
struct control_viewer;
struct opener;

struct server {
	uv_loop_t *loop;
	const char *socket_path;
	struct serving serving;
	struct connection *connections;
	uint32_t n_connections; /* those that are closing included */
	uint32_t max_connections;
	bool failed; /* it had to end */
	uv_poll_t nursery_poll;
	struct log_limit accept_lines, lines[SERVER_LINE_PLACES];
	struct control *control;       /* borrowed */
	const struct nursery *nursery; /* borrowed */
	struct opener *opener;
	int listen_fd, lock_fd;
	int spare_fd; /* given up to let in, and turn away, a client when there is no other */
	uv_poll_t listen_poll;
	uv_timer_t accept_retry;
	uv_check_t settle;
	uv_timer_t orphans; /* runs only while there are connections without a socket */
	struct lend_watch lend;
	uv_timer_t drain;
	uint64_t drain_until_ns;
	bool stopping;
	int io_why; /* the errno that ruled out io_uring */
	uint64_t cached_clock;
	uint64_t start_ns;
	uint64_t n_accepted;
};

/* Makes everything and listens. The line in err says what to do. The nursery is borrowed; of what an earlier
 * daemon left in the service manager's store, what is of use is taken. */
int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serving_options *options, const struct nursery *nursery,
		 struct fd_store_items *items, struct error *err);
/*
 * Drains: nobody new is let in, batches that workers fill are finished and published, then connections end:
 * libdiesel hands out what is published, and asks the next daemon for the rest. The loop runs out when the
 * last worker is done; reads under way are left to their readers, which end by themselves.
 */
void server_stop(struct server *s);
/* After the loop has run out. */
void server_free(struct server *s);

/* Looks now and then whether clients without a socket gave back what they had. */
void server_watch_orphans(struct server *s);

/* listen.c: takes the lock beside the socket (who holds it is in the error) and listens. */
int listen_open(const char *path, int *ret_listen_fd, int *ret_lock_fd, struct error *err);

/* accept.c */
void accept_init(struct server *s);
void accept_start(struct server *s);
void accept_stop(struct server *s);

/* usage.c: how many clients and chunks there may be at one time, from the limit of open files. */
void server_size_by_files(struct server *s);
/* Returns true if this chunk may be read for the session now: there is a reader for it, and what is read
 * ahead leaves what others need. taken_bytes: cache_taken_bytes() */
bool server_may_load(const struct server *s, const struct session *q, uint64_t chunk, uint32_t distance,
		     uint64_t taken_bytes);
struct quota server_quota(const struct server *s);
/* Returns true if what the user has, and everybody, is within their limits (quota_check()). */
int server_check_usage(const struct server *s, uint32_t uid, struct error *err);

/* The limit of log lines that this user may cause. */
struct log_limit *server_lines_of(struct server *s, uint32_t uid);

/* status.c: JSON, malloc'ed, or NULL. Of datasets, sessions and jobs, what the viewer may see. */
char *server_status(const struct server *s, const struct control_viewer *viewer);

/* connection.c */
struct ucred;
int connection_new(struct server *server, int fd, const struct ucred *peer);
void connection_close(struct connection *c);
/* Closes those without a socket whose process has nothing of them any more; whether others are left. */
bool connection_close_orphans(struct server *s);
