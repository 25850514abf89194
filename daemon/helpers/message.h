/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the daemon and its helpers say to each other: fixed structs between copies of one program, one a
 * datagram, over a pair of sockets. fd_message_send() sends them. */

#include <stddef.h>

/*
 * Takes a message of exactly so many bytes, and up to n_fds descriptors, at most FD_MESSAGE_MAX_FDS; of those
 * that did not come, -EBADF is written. More of them are closed. flags are those of recvmsg(2). 0; -EAGAIN:
 * there is none now; -ECONNRESET: the other end is closed; -EPROTO: it says something else. *fds is written
 * in any case.
 */
int message_receive(int socket, void *message, size_t bytes, int flags, int *fds, size_t n_fds);
