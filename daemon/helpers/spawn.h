/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Helper processes for work on what belongs to clients, or takes rights that the daemon has not. A file on
 * FUSE or NFS may never answer: the thread that asked cannot be killed then, and its process cannot end. So
 * the daemon never asks itself: a helper does, which may hang alone, and which nobody waits for.
 *
 * A fork server is a process of one thread, forked before the daemon has a second one; it forks helpers, so
 * that each begins with little memory, none of the daemon's descriptors and no foreign thread's locks. It
 * ends with the daemon. A helper's socket ends when the helper does; until then, something of it is left.
 *
 * A fork server may also keep one helper of its own: then it is that helper's keeper, starts it again when it
 * has died, and is the only process that still has the rights for that. keeper.h is the daemon's side.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "helper.h"
#include "lib/error.h"

struct fork_server {
	int fd; /* -EBADF: there is none */
	pid_t pid;
};

#define FORK_SERVER_NONE ((struct fork_server){.fd = -EBADF})

/* What a process does: returns its exit status. fd: its socket. */
typedef int helper_run(int fd);

/* A helper that is kept. */
struct kept_helper {
	int fd;                         /* to the daemon; each one has a new one */
	struct fork_server fork_server; /* its keeper: forks others for it */
	_Atomic uint32_t *beat; /* of a program that beats: to be changed each second, once it works */
};

struct fork_server_program {
	enum helper_kind kind;   /* its own */
	helper_run *const *runs; /* of the helpers that it forks when told, by kind; NULL: of none */
	int (*prepare)(int fd);  /* before all else; negative: it ends. May be NULL */
	enum helper_kind keeps;
	int (*run)(const struct kept_helper *self); /* what it keeps; NULL: nothing */
	bool on_demand; /* that runs from FORK_SERVER_KEEP on until it ends with status 0; else always */
	bool beats;     /* it is killed when it does not for a while */
};

/* Forks one, which begins with the descriptors up to 2, its socket, and nothing else of the daemon's. The
 * program is used by it as long as it lives. A negative errno, with *err filled. */
int fork_server_spawn(const struct fork_server_program *program, struct fork_server *ret, struct error *err);

/* Starts a helper; *ret_fd is our end of a SOCK_SEQPACKET pair. Does not block. If the helper cannot be
 * forked, its socket ends at once. -EAGAIN: the fork server has too much to do; -EPIPE: it is gone. Any
 * thread.
 */
int fork_server_start(const struct fork_server *n, enum helper_kind kind, int *ret_fd);

/* Lets the fork server end; helpers go on until they see the end of their own sockets. */
void fork_server_end(struct fork_server *n);

/* What a fork server is told. */
enum fork_server_verb {
	FORK_SERVER_FORK = 1, /* kind; with the helper's end of its socket */
	FORK_SERVER_KEEP,     /* starts what it keeps, and starts it again when it dies */
	FORK_SERVER_REST,     /* not any more; who wants the process to end closes its socket */
	FORK_SERVER_KILL,     /* pid: of what it keeps, if that is it */
};

struct fork_server_order {
	uint32_t verb, kind;
	int32_t pid;
};

/* What a keeper says: with a descriptor, the daemon's end of a socket: it has started; without: it has ended.
 */
struct fork_server_news {
	int32_t pid;
	int32_t status; /* as of waitpid() */
	uint32_t hung;  /* it did not beat, and was killed */
};
