/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's socket: listens, and keeps connections and sessions. One event loop; after each round of
 * events, schedule_turn() starts whatever the events made possible.
 *
 * It takes no lock: docs/contributing/architecture.md has the table of threads and locks.
 */

#include "daemon/apart/closer.h"
#include "daemon/cache/lend_watch.h"
#include "lib/log.h"
#include "daemon/node/quota.h"
#include "daemon/schedule/schedule.h"
#include "daemon/serve/serving.h"

#define SERVER_DRAIN_MS        5000
#define SERVER_MAX_CONNECTIONS SCHEDULE_MAX_SESSIONS
#define SERVER_ORPHAN_MS       200
/* Places for users' limits on log lines: users that share a place share its limit. */
#define SERVER_LINE_PLACES 64

struct connection;
struct control;
struct control_viewer;
struct opener;
struct sharer;

/* The socket's file, as it was made: another one may have its name by now. */
struct listen_place {
	uint64_t device, inode;
};

/* fd < 0: there is none. */
struct admin_socket {
	const char *path;
	int fd, lock_fd;
	struct listen_place place;
	uv_poll_t poll;
};

struct server {
	uv_loop_t *loop;
	const char *socket_path;
	struct serving serving;
	struct connection *connections;
	uint32_t n_connections; /* including those that are closing */
	uint32_t max_connections;
	bool failed; /* it had to stop */
	uv_poll_t nursery_poll;
	struct log_limit accept_lines, lines[SERVER_LINE_PLACES];
	struct control *control;       /* borrowed */
	const struct nursery *nursery; /* borrowed */
	struct opener *opener;
	struct closer closer;
	int listen_fd, lock_fd;
	struct listen_place place;
	struct admin_socket admin;
	int spare_fd; /* closed to make room to accept a client, and turn it away, when no other descriptor is
			 left */
	uv_poll_t listen_poll;
	uv_timer_t accept_retry;
	uv_check_t settle;
	uv_timer_t orphans;    /* runs only while there are orphaned connections */
	uv_timer_t silence;    /* runs only while a client has to say something */
	uv_timer_t look_again; /* while reads hold others back: when they count no longer */
	uv_timer_t publish;    /* with other nodes */
	bool publishes;
	struct lend_watch lend;
	uv_timer_t drain;
	uint64_t drain_until_ns;
	bool stopping;
	int io_why;                 /* the errno that ruled out io_uring */
	uint64_t start_ns, left_ns; /* when the last client left, or start_ns */
	uint64_t start_unix_ns;     /* the wall clock at start_ns; the clock may be set later on */
	uint64_t n_accepted;
};

/* Sets everything up and listens. The line in err says what to do. The nursery is borrowed. Takes from items
 * what an earlier daemon left in the service manager's store and is still of use. */
int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serving_options *options, const struct nursery *nursery,
		 struct fd_store_items *items, struct error *err);
/* Listens on another socket, of mode 0600, whose clients administer, whoever they are: for where containers
 * share the node's uid 0, so that no uid can. The path is borrowed. Called after server_start(). */
int server_open_admin(struct server *s, const char *path, struct error *err);
/* Other nodes of a job are reached by this child, which is taken over. */
int server_start_sharing(struct server *s, struct nursery *keeper);
/*
 * Drains the server: no new client is let in, batches that workers are filling are finished and published,
 * then connections end. libdiesel hands out what is published, and asks the next daemon for the rest. The
 * loop ends when the last worker is done; reads under way are left to their readers, which end by themselves.
 */
void server_stop(struct server *s);
/* For how long nobody has been connected, or held anything; 0: somebody is, or is about to be let in. */
uint64_t server_idle_ms(const struct server *s);
/* To be called when the loop has ended. */
void server_free(struct server *s);

/* From now on looks now and then whether orphaned clients gave back what they had. */
void server_watch_orphans(struct server *s);

/* accept.c: takes the lock beside the socket and listens. If another process holds the lock, err names it. */
int listen_open(const char *path, mode_t mode, int *ret_listen_fd, int *ret_lock_fd,
		struct listen_place *ret_place, struct error *err);
/* Removes the socket, unless its name is another one's now: its folder may have been made anew. */
void listen_remove(const char *path, const struct listen_place *place);
/* Returns 0 if clients can connect. -ESHUTDOWN: it stops; -ENOENT: the socket's path is gone, or leads to
 * another one; -EMFILE: no client is let in for the moment. */
int server_check_ready(const struct server *s, struct error *err);

/* accept.c */
void accept_init(struct server *s);
void accept_stop(struct server *s);

/* Checks that what the client's user has, and what all users have, is within the limits. Returns as
 * quota_check(). */
int server_check_usage(struct server *s, const struct connection *c, struct error *err);
/* For struct session_args: user is the connection. */
int server_may_take(void *user, uint64_t bytes, struct error *err);
/* Other quotas of the cache: they hold for what is open, too, which nobody has to close for that. */
void server_set_quotas(struct server *s, const struct cache_quotas *quotas);

/* The limit on log lines that this user may cause. */
struct log_limit *server_lines_of(struct server *s, uint32_t uid);

/* status.c: JSON text for the caller to free, or NULL; has those datasets, sessions and jobs that the viewer
 * may see. */
char *server_status(const struct server *s, const struct control_viewer *viewer);

/* connection.c */
struct ucred;
int connection_new(struct server *server, int fd, const struct ucred *peer);
void connection_close(struct connection *c);
/* Closes orphaned connections whose process has given everything back. Returns true if others are left. */
bool connection_close_orphans(struct server *s);
