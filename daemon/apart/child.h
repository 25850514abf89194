/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A process of the daemon's own that does one kind of work for it: forked before the daemon has a second
 * thread, and told what to do through a socket. It begins with the descriptors up to 2, that socket, and
 * nothing else of the daemon's: whoever waits for the daemon's end must not have to wait for the child's.
 */

#include <sys/types.h>
#include <unistd.h>

#include "lib/error.h"

#define CHILD_FD (STDERR_FILENO + 1) /* the child's end */

/* Returns the child's process id, or a negative errno with *err filled. The child calls run(CHILD_FD), and
 * ends when that returns. *ret_fd is our end of a SOCK_SEQPACKET pair. what: "the sensing child", for
 * *err. */
pid_t child_fork(const char *what, void (*run)(int fd), int *ret_fd, struct error *err);
