/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One message with descriptors (SCM_RIGHTS, unix(7)) over a Unix socket that keeps messages apart:
 * SOCK_SEQPACKET, or a connected SOCK_DGRAM. */

#include <stddef.h>

#define FD_MESSAGE_MAX_FDS 2

/* flags: of sendmsg(2); no SIGPIPE in any case. 0 or -errno. */
int fd_message_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds, int flags);

/*
 * flags: of recvmsg(2); descriptors are close-on-exec in any case. The message's bytes, 0 at the end of the
 * socket, or -errno; -EPROTO: it is longer than `bytes` or has more than FD_MESSAGE_MAX_FDS descriptors. The
 * caller closes fds, of which *n_fds says how many: none unless the result is positive.
 */
int fd_message_receive(int socket, void *data, size_t bytes, int flags, int fds[FD_MESSAGE_MAX_FDS],
		       size_t *n_fds);
