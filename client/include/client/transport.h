/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages of client/protocol.h over a SOCK_SEQPACKET Unix socket. Both ends use this; nothing that did
 * not pass protocol_check() gets through. Received descriptors are close-on-exec and the caller's to close;
 * on any failure they have been closed here.
 */

#include "client/protocol.h"
#include "lib/error.h"

struct wire_fds {
	int fd[WIRE_MAX_FDS];
	size_t n;
};

void wire_fds_close(struct wire_fds *fds);

/* -ECONNREFUSED: nobody listens at path, whatever the reason; the text says what to do. */
int transport_connect(const char *path, int *ret_socket, struct error *err);

/* 0; -EAGAIN on a non-blocking socket whose peer does not read; -EPIPE, -ECONNRESET: it is gone. */
int transport_send(int socket, const union wire_message *message, const int *fds, size_t n_fds);

/* 0; -EAGAIN; -ECONNRESET: the peer closed; -EPROTO: not a message. */
int transport_receive(int socket, union wire_message *ret_message, struct wire_fds *ret_fds);

/*
 * Client side: sends a request and waits for the reply of type `expected`. An ERROR reply becomes its code
 * with its text in err. -ECONNRESET: the daemon went away. ret_fds may be NULL when no descriptor comes.
 */
int transport_call(int socket, const union wire_message *request, const int *fds, size_t n_fds,
		   enum wire_type expected, union wire_message *ret_reply, struct wire_fds *ret_fds,
		   struct error *err);
