/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Opens datasets, each in a process of its own (fork_server.h). What a client brings may hang any process
 * that looks at it (FUSE, NFS, a descriptor that blocks when it is closed), crash a parser, or take long:
 * here that costs the client that brought it, and nobody else. The daemon never has such a descriptor, and
 * never reads such bytes before they have been verified.
 *
 * A process opens one dataset and ends. It identifies the dataset and waits (one that is served already is
 * not read again), copies the snapshot into sealed memory, enters a sandbox (lib/sandbox.h) and verifies the
 * copy there.
 *
 * A user has at most OPENER_MAX_A_USER processes at a time; an administrator (admin.h) has no limit of its
 * own. All users together have OPENER_MAX, of which OPENER_ROOT_RESERVE are kept for administrators. Openings
 * beyond that wait, each user's in order. A process that cannot be killed, because storage holds it, counts
 * until it is gone.
 *
 * Loop thread only. No callback comes from within a call.
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

/* The fork server is borrowed. */
int opener_new(uv_loop_t *loop, const struct fork_server *fork_server, struct opener **ret);
/* Kills all that runs; no more callbacks. Accepts NULL. The loop must run once more. */
void opener_free(struct opener *o);

struct opening_handler {
	/* Which dataset it is. Answer with opening_go_on() or opening_end(). */
	void (*identified)(void *user, struct proof *proof);
	/* The copy is verified, and the descriptor is the callee's. The opening is over. */
	void (*verified)(void *user, int copy_fd);
	/* The opening is over. */
	void (*failed)(void *user, const struct error *err);
};

/* Starts an opening. Its process takes OPEN_DATASET, which must be the next message there, from the
 * connection's socket. */
int opening_start(struct opener *o, uint32_t uid, int connection, const struct opening_handler *handler,
		  void *user, struct opening **ret);
void opening_go_on(struct opening *q);
/* Ends the opening: no more callbacks, and its process is killed if it still runs. */
void opening_end(struct opening *q);

/* The helper: opens one dataset. Returns its exit status. */
int opener_run(int socket);
