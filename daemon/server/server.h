/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's socket: accepts clients, and owns connections and sessions. One event loop; after each round
 * of events, schedule_turn() starts all work that the events made possible.
 *
 * It takes no lock: docs/contributing/modules/daemon.md has the table of threads and locks.
 */

#include "daemon/sandboxed/closer.h"
#include "daemon/cache/borrow_watch.h"
#include "lib/log.h"
#include "daemon/node/quota.h"
#include "daemon/schedule/schedule.h"
#include "daemon/serve/serving.h"

#define SERVER_DRAIN_MS        5000
#define SERVER_MAX_CONNECTIONS SCHEDULE_MAX_SESSIONS
/* Number of rate limits for log lines. Each user maps to one; users that map to the same one share it. */
#define SERVER_LINE_PLACES 64

struct connection;
struct control;
struct control_viewer;
struct opener;
struct membership;

/* Identity of the socket's file when it was created. Another file may have taken its path since. */
struct listen_place {
	uint64_t device, inode;
};

/* The socket for administrators. fd < 0: none. */
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
	uint32_t n_connections; /* number of connections, including closing ones */
	uint32_t max_connections;
	bool failed; /* the server stopped because of an error */
	uv_poll_t fork_server_poll;
	struct log_limit accept_lines, lines[SERVER_LINE_PLACES];
	struct control *control;               /* borrowed */
	const struct fork_server *fork_server; /* borrowed */
	struct opener *opener;
	struct closer closer;
	int listen_fd, lock_fd;
	struct listen_place place;
	struct admin_socket admin;
	int spare_fd; /* closed if no descriptor is left, so that a client can be accepted and turned away */
	uv_poll_t listen_poll;
	uv_timer_t accept_retry;
	uv_check_t settle;
	uv_timer_t removed;    /* looks whether datasets were removed */
	uv_timer_t orphans;    /* runs only while there are orphaned connections */
	uv_timer_t silence;    /* runs only while a client must send something */
	uv_timer_t look_again; /* fires when schedule_turn() may find more work without an event */
	uv_timer_t publish;    /* publishes this node's report to other nodes */
	bool publishes;
	struct borrow_watch borrow;
	uv_timer_t drain;
	uint64_t drain_until_ns;
	bool stopping;
	int io_why;                 /* the errno that ruled out io_uring */
	uint64_t start_ns, left_ns; /* left_ns: when the last client left, or start_ns */
	uint64_t start_unix_ns;     /* the wall clock at start_ns; the clock may be set later on */
	uint64_t n_accepted;
};

/* Sets up the server and listens. On failure, err has the remedy in one line. The fork server is borrowed.
 * Takes from items the descriptors that an earlier daemon left in the service manager's store and that are
 * still useful. */
int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serving_options *options, const struct fork_server *fork_server,
		 struct fd_store_items *items, struct error *err);
/* Listens on a second socket, of mode 0600. All its clients are administrators, whatever their uid: for
 * nodes whose containers share uid 0, where a uid is no proof of identity. The path is borrowed. Call
 * after server_start(). */
int server_open_admin(struct server *s, const char *path, struct error *err);
/* Starts to share chunks with other nodes through this child process, and takes ownership of it. */
int server_start_sharing(struct server *s, struct fork_server *keeper);
/*
 * Drains the server: accepts no new client, finishes and publishes batches that workers are filling, then
 * ends connections. libdiesel delivers the published batches, and asks the next daemon for the rest. The loop
 * ends when the last worker is done. Running reads are left to their readers, which end by themselves.
 */
void server_stop(struct server *s);
/* Returns for how many ms no client has been connected or held a batch; 0: one is connected, or about to be
 * accepted. */
uint64_t server_idle_ms(const struct server *s);
/* To be called when the loop has ended. */
void server_free(struct server *s);

/* Returns 0 if clients can connect. -ESHUTDOWN: the server is stopping; -ENOENT: the socket's path
 * is gone, or leads to another file; -EMFILE: no client is accepted at the moment. */
int server_check_ready(const struct server *s, struct error *err);

/* Checks that the use by the client's user, and by all users, is within the limits. Returns as quota_check().
 */
int server_check_usage(struct server *s, const struct connection *c, struct error *err);
/* Replaces the quotas of the cache. They also apply to open sessions, none of which must be closed for that.
 */
void server_set_quotas(struct server *s, const struct cache_quotas *quotas);

/* Returns the rate limit for log lines that this user causes. */
struct log_limit *server_lines_of(struct server *s, uint32_t uid);

/* status.c: returns JSON text for the caller to free, or NULL. Lists only the datasets, sessions and jobs
 * that the viewer may see. */
char *server_status(const struct server *s, const struct control_viewer *viewer);

/* connection.c */
struct ucred;
int connection_new(struct server *server, int fd, const struct ucred *peer);
void connection_close(struct connection *c);
