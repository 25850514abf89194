/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages between the daemon and its helpers: fixed structs between copies of one program, one per datagram,
 * over a pair of sockets. fd_message_send() sends them. */

#include <stddef.h>

/*
 * Receives a message of exactly `bytes` bytes, and up to n_fds descriptors, at most FD_MESSAGE_MAX_FDS.
 * Missing descriptors are set to -EBADF; further ones are closed. *fds is written in any case. flags are
 * those of recvmsg(2). Returns 0; -EAGAIN: no message is waiting; -ECONNRESET: the other end is closed;
 * -EPROTO: a message of another size.
 */
int message_receive(int socket, void *message, size_t bytes, int flags, int *fds, size_t n_fds);
