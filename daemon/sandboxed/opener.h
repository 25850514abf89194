/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Opens datasets, each in a process of its own (fork_server.h). A dataset that a client passes in may hang
 * any process that touches it (FUSE, NFS, a descriptor whose close blocks), crash a parser, or take long. A
 * separate process limits the damage to that client. The daemon never holds such a descriptor, and never
 * reads such bytes before they have been verified.
 *
 * A process opens one dataset and exits. It identifies the dataset and waits, since a dataset that is already
 * served is not read again. Then it copies the snapshot into sealed memory, enters a sandbox (lib/sandbox.h)
 * and verifies the copy there.
 *
 * A user has at most OPENER_MAX_A_USER processes at a time; administrators (admin.h) are exempt from this
 * limit. All users together have at most OPENER_MAX, of which OPENER_ROOT_RESERVE are reserved for
 * administrators. Openings beyond these limits wait, each user's in order. A process that cannot be killed
 * because it is blocked on storage counts until it is gone.
 *
 * Loop thread only. No function calls a handler before it returns.
 */

#include <stdint.h>
#include <uv.h>

#include "lib/error.h"
#include "fork_server.h"
#include "daemon/storage/proof.h"

#define OPENER_MAX          48
#define OPENER_ROOT_RESERVE 4
#define OPENER_MAX_A_USER   4

struct opener;
struct opening;

/* Creates an opener. The fork server is borrowed. */
int opener_new(uv_loop_t *loop, const struct fork_server *fork_server, struct opener **ret);
/* Kills all running processes; no more callbacks. Accepts NULL. The loop must run once more. */
void opener_free(struct opener *o);

struct opening_handler {
	/* The process has identified the dataset. Answer with opening_go_on() or opening_end(). */
	void (*identified)(void *user, struct proof *proof);
	/* The copy is verified; the callee owns the descriptor. The opening has ended. */
	void (*verified)(void *user, int copy_fd);
	/* The opening has failed, and ended. */
	void (*failed)(void *user, const struct error *err);
};

/* Starts an opening. Its process takes OPEN_DATASET from the connection's socket, where this must be the next
 * message. */
int opening_start(struct opener *o, uint32_t uid, int connection, const struct opening_handler *handler,
		  void *user, struct opening **ret);
void opening_go_on(struct opening *q);
/* Ends the opening: no more callbacks, and its process is killed if it still runs. */
void opening_end(struct opening *q);

/* Runs the helper, which opens one dataset. Returns its exit status. */
int opener_run(int socket);
