/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Helper processes for work on what belongs to clients. A file on FUSE or NFS may never answer: the thread
 * that asked cannot be killed then, and its process cannot end. So the daemon never asks itself: a helper
 * does, which may hang alone, and which nobody waits for.
 *
 * The nursery is a process of one thread, forked before the daemon has a second one; it forks the helpers, so
 * that each begins with little memory, none of the daemon's descriptors and no foreign thread's locks. It
 * ends with the daemon. A helper's socket ends when the helper does; until then, something of it is left.
 */

#include <sys/types.h>

#include "lib/error.h"

struct nursery {
	int fd; /* -EBADF: there is none */
	pid_t pid;
};

#define NURSERY_NONE ((struct nursery){.fd = -EBADF})

enum nursery_kind {
	NURSERY_READER_URING, /* reader.h */
	NURSERY_READER_THREADS,
	NURSERY_OPENER,   /* opener.h */
	NURSERY_CLOSER,   /* closer.h */
	NURSERY_CODEC,    /* codec.h */
	NURSERY_PLUGIN,   /* plugin.h */
	NURSERY_STAGER,   /* stager.h */
	NURSERY_UNPACKER, /* unpack.h */
	NURSERY_N_KINDS,
};

/* Keeps this process's descriptors up to 2 in the nursery and closes all others. */
int nursery_fork(struct nursery *ret, struct error *err);

/* Starts a helper; *ret_fd is our end of a SOCK_SEQPACKET pair. Does not block. If the helper cannot be
 * forked, its socket ends at once. -EAGAIN: the nursery has too much to do; -EPIPE: it is gone. Any thread.
 */
int nursery_start(const struct nursery *n, enum nursery_kind kind, int *ret_fd);

/* Lets the nursery end; helpers go on until they see the end of their own sockets. */
void nursery_end(struct nursery *n);
