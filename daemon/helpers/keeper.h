/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's side of a keeper (spawn.h): reports when the kept process has started and ended. Each process
 * has a socket of its own, so that no message for the previous one reaches it. Loop thread only.
 */

#include <stdbool.h>
#include <uv.h>

#include "spawn.h"

/* Connection to a process that runs, or has just ended. */
struct keeper_link {
	uv_poll_t poll; /* the owner starts this handle, whose data pointer is the link */
	int fd;
	pid_t pid;
	void *user;
};

struct keeper_handler {
	/* The process has started: keeper->link is set. */
	void (*started)(void *user);
	/* The process has ended. The link, unless it was dropped, may have unread messages. how: "was ended
	 * by signal 9 (Killed)" */
	void (*ended)(void *user, const struct fork_server_news *news, const char *how);
	/* The keeper itself is gone, so the process is not started again. */
	void (*lost)(void *user);
	void *user;
};

struct keeper {
	struct fork_server fork_server;
	struct keeper_handler handler;
	uv_poll_t poll;
	struct keeper_link *link; /* NULL: no process */
};

/* Takes over *fork_server, which is FORK_SERVER_NONE afterwards. Its handles do not keep the loop alive.
 * Returns 0 or a negative errno. */
int keeper_init(struct keeper *k, uv_loop_t *loop, struct fork_server *fork_server,
		const struct keeper_handler *handler);
/* Makes the keeper exit. The loop must run once more; closed() gets a handle whose data is the handler's
 * user pointer. */
void keeper_close(struct keeper *k, uv_close_cb closed);
/* Closes the link, if there is one. The process sees the end of its socket. */
void keeper_drop(struct keeper *k);
/* Sends an order to the keeper. pid: for FORK_SERVER_KILL. Returns true if it was sent. */
bool keeper_tell(const struct keeper *k, enum fork_server_verb verb, pid_t pid);
