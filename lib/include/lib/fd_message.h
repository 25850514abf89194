/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One message with descriptors (SCM_RIGHTS, unix(7)) over a Unix socket that preserves message boundaries:
 * SOCK_SEQPACKET, or a connected SOCK_DGRAM. */

#include <stddef.h>

#define FD_MESSAGE_MAX_FDS 2

/* flags are those of sendmsg(2); SIGPIPE is never raised. 0 or -errno. */
int fd_message_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds, int flags);

/*
 * flags are those of recvmsg(2); descriptors are always close-on-exec. Returns the length of the message, 0
 * when the peer has closed, or -errno; -EPROTO if the message is longer than `bytes` or has more than
 * FD_MESSAGE_MAX_FDS descriptors. *n_fds is the number of descriptors, which the caller closes; it is 0
 * unless the result is positive.
 */
int fd_message_receive(int socket, void *data, size_t bytes, int flags, int fds[FD_MESSAGE_MAX_FDS],
		       size_t *n_fds);
