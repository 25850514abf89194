/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Helper processes: they access clients' files, or do work that requires rights that the daemon does not
 * have. A file on FUSE or NFS may never answer. The thread that accessed it then cannot be killed, and its
 * process cannot exit. So the daemon never accesses such files itself: a helper does, which may hang without
 * blocking the daemon.
 *
 * A fork server is a process of one thread, forked before the daemon has a second one. It forks helpers, so
 * that each begins with little memory, without the daemon's descriptors and without locks that other threads
 * hold. It ends with the daemon. A helper's socket reaches its end when the helper has exited completely.
 *
 * A fork server may also keep one helper of its own. Then it is that helper's keeper: it starts the helper
 * again when it has died, and is the only process that still has the rights for that. keeper.h is the
 * daemon's side.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "helper.h"
#include "lib/error.h"

struct fork_server {
	int fd; /* -EBADF: none */
	pid_t pid;
};

#define FORK_SERVER_NONE ((struct fork_server){.fd = -EBADF})

/* Main function of a process: returns its exit status. fd: its socket. */
typedef int helper_run(int fd);

/* Arguments that a kept helper gets from its keeper. */
struct kept_helper {
	int fd;                         /* socket to the daemon; new for each process */
	struct fork_server fork_server; /* its keeper, which forks further helpers for it */
	_Atomic uint32_t *beat; /* heartbeat, if the program beats: the helper changes it every second */
};

struct fork_server_program {
	enum helper_kind kind;   /* the fork server's own kind */
	helper_run *const *runs; /* main functions of its helpers, by kind; NULL: it forks none */
	int (*prepare)(int fd);  /* called first; negative: the fork server exits. May be NULL */
	enum helper_kind keeps;
	int (*run)(const struct kept_helper *self); /* main function of the kept helper; NULL: none */
	bool on_demand; /* the kept helper runs only from FORK_SERVER_KEEP until it exits with status 0; else
			   always */
	bool beats;     /* the kept helper is killed if it stops beating */
};

/* Forks a fork server, which inherits only the descriptors up to 2 and its socket. It uses the program as
 * long as it lives. Returns 0, or a negative errno with *err filled. */
int fork_server_spawn(const struct fork_server_program *program, struct fork_server *ret, struct error *err);

/* Starts a helper; *ret_fd is our end of a SOCK_SEQPACKET pair. Does not block. If the fork fails, the
 * helper's socket ends at once. -EAGAIN: the fork server is busy; -EPIPE: it is gone. Any thread. */
int fork_server_start(const struct fork_server *n, enum helper_kind kind, int *ret_fd);

/* Starts a helper, and sends it its first message. The descriptors in fds stay the caller's. Results as for
 * fork_server_start(). */
int fork_server_start_with(const struct fork_server *n, enum helper_kind kind, const void *message,
			   size_t bytes, const int *fds, size_t n_fds, int *ret_fd);

/* Makes the fork server exit. Helpers continue until they see the end of their own sockets. */
void fork_server_end(struct fork_server *n);

/* Orders to a fork server. */
enum fork_server_verb {
	FORK_SERVER_FORK = 1, /* forks a helper of `kind`; carries the helper's end of its socket */
	FORK_SERVER_KEEP,     /* starts the kept helper, and restarts it when it dies */
	FORK_SERVER_REST,     /* ends the kept helper; to end the fork server, close its socket */
	FORK_SERVER_KILL,     /* kills the kept helper if its process id is `pid` */
};

struct fork_server_order {
	uint32_t verb, kind;
	int32_t pid;
};

/* Report of a keeper. With a descriptor, the daemon's end of a socket: the kept helper has started; without:
 * it has ended. */
struct fork_server_news {
	int32_t pid;
	int32_t status; /* as waitpid() returns it */
	uint32_t hung;  /* its heartbeat stopped, so it was killed */
};
