/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's side of a keeper (spawn.h): tells when what it keeps has started and ended. Each process has a
 * socket of its own, so that nothing that was meant for the last one reaches it. Loop thread only.
 */

#include <stdbool.h>
#include <uv.h>

#include "spawn.h"

/* A process that runs, or has just ended. */
struct keeper_link {
	uv_poll_t poll; /* the owner's to start; its data is the link */
	int fd;
	pid_t pid;
	void *user;
};

struct keeper_handler {
	/* keeper->link is there. */
	void (*started)(void *user);
	/* The link, unless it was dropped, may have things left to say. how: "was ended by signal 9 (Killed)"
	 */
	void (*ended)(void *user, const struct fork_server_news *news, const char *how);
	/* The keeper itself is gone, and nobody starts the process again. */
	void (*lost)(void *user);
	void *user;
};

struct keeper {
	struct fork_server fork_server;
	struct keeper_handler handler;
	uv_poll_t poll;
	struct keeper_link *link; /* NULL: no process */
};

/* Takes *fork server over, which is FORK_SERVER_NONE afterwards. Its handles keep no loop going. A negative
 * errno. */
int keeper_init(struct keeper *k, uv_loop_t *loop, struct fork_server *fork_server,
		const struct keeper_handler *handler);
/* Ends the keeper. The loop must run once more; closed() gets a handle whose data is the handler's user. */
void keeper_close(struct keeper *k, uv_close_cb closed);
/* Closes the link, if there is one: the process sees that. */
void keeper_drop(struct keeper *k);
/* Returns true if the keeper was told. pid: for FORK_SERVER_KILL. */
bool keeper_tell(const struct keeper *k, enum fork_server_verb verb, pid_t pid);
