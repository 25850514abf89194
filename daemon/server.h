/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon: listens, keeps connections and sessions, and hands out reads. One event loop; a pass of
 * server_settle() after each round of events starts whatever the events made possible.
 */

#include "cache.h"
#include "serve.h"
#include "session.h"

#define SERVER_DRAIN_MS 5000
/* A dataset stays in memory for the next job so long, if there is room. */
#define SERVER_KEEP_IDLE_MS 600000

struct connection;
struct control;
struct control_viewer;

struct server {
	uv_loop_t *loop;
	const char *socket_path;
	struct serve_options options;
	struct cache cache;
	struct connection *connections;
	uint32_t n_connections; /* those that are closing included */
	struct session *sessions;
	struct jobs jobs;
	struct control *control; /* borrowed */
	int listen_fd, lock_fd;
	uv_poll_t listen_poll;
	uv_check_t settle;
	uv_timer_t idle; /* runs only while there is a dataset that nobody uses */
	uv_timer_t drain;
	uint64_t drain_until_ns;
	bool dirty;
	bool stopping;
	int io_why; /* the errno that ruled out io_uring */
	uint64_t served_clock;
	uint64_t start_ns;
	uint64_t n_accepted;
};

/* Makes everything and listens. The line in err says what to do. */
int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serve_options *options, struct error *err);
/*
 * Drains: nobody new is let in, batches that workers fill are finished and published, then connections end:
 * libdiesel hands out what is published, and asks the next daemon for the rest. The loop runs out when the
 * last worker and read are done; a read that does not return within SERVER_DRAIN_MS is left to the kernel.
 */
void server_stop(struct server *s);
/* After the loop has run out. */
void server_free(struct server *s);

/* What the job did until now, live sessions included. */
void server_job_counters(const struct server *s, const struct job *job, struct job_counters *ret);
/* Python worker processes that the job says it runs. */
uint32_t server_job_client_workers(const struct server *s, const struct job *job);

/* Something may have become possible: look at all sessions before the loop sleeps again. */
void server_touch(struct server *s);

/* listen.c: takes the lock beside the socket (who holds it is in the error) and listens. */
int listen_open(const char *path, int *ret_listen_fd, int *ret_lock_fd, struct error *err);

/* status.c: JSON, malloc'ed, or NULL. Of sessions and jobs, what the viewer may see. */
char *server_status(const struct server *s, const struct control_viewer *viewer);

/* connection.c */
int connection_new(struct server *server, int fd);
void connection_close(struct connection *c);
