/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages of client/protocol.h over a SOCK_SEQPACKET Unix socket. Both ends use this; nothing that did
 * not pass protocol_check() gets through. Received descriptors are close-on-exec and the caller's to close;
 * on any failure they have been closed here.
 */

#include "client/protocol.h"
#include "lib/error.h"

#include <stdbool.h>

struct wire_fds {
	int fd[WIRE_MAX_FDS];
	size_t n;
};

void wire_fds_close(struct wire_fds *fds);

/*
 * A client's end of a connection. Any failure other than an ERROR reply ends it for good: no reply in time, a
 * malformed one, or one to another request. A late reply could not be distinguished from the answer to the
 * next request. All later calls return -ECONNRESET. The descriptor stays open until transport_close(), so
 * that transport_send() in another thread fails safely.
 */
struct transport {
	int fd;
	uint16_t sequence; /* number of the last request */
	uint32_t version;  /* version in force, from transport_hello() on */
	bool broken;
	uint32_t timeout_s;   /* timeout of a whole request, from transport_connect_within(); 0: none */
	uint64_t deadline_ns; /* deadline of the request */
};

#define TRANSPORT_INIT                                                                                       \
	{                                                                                                    \
		.fd = -1                                                                                     \
	}

/* Connects, or returns the kernel's error. -ETIMEDOUT: the listener accepts no connections. timeout_s:
 * limit for the first request, which begins here. 0: each step has the limits of a served client. */
int transport_reach(const char *path, uint32_t timeout_s, struct transport *ret);
/* Connects to a daemon of root, of the caller's user, or of the owner of the folder that path is in. In a
 * user namespace, it also connects to a daemon whose user has no number there: that user looks like root.
 * -EACCES: the socket is closed to this user. -EPERM: another user listens there. -ECONNREFUSED: no daemon
 * does, whatever the reason. The text contains the remedy. */
int transport_connect(const char *path, struct transport *ret, struct error *err);
int transport_connect_within(const char *path, uint32_t timeout_s, struct transport *ret, struct error *err);
/* Restarts the timeout for another request, with the same timeout_s. */
void transport_restart(struct transport *t);
void transport_close(struct transport *t);

/* 0; -EAGAIN on a non-blocking socket whose peer does not read; -EPIPE, -ECONNRESET: the peer has closed. */
int transport_send(int socket, const union wire_message *message, const int *fds, size_t n_fds);

/* 0; -EAGAIN; -ECONNRESET: the peer closed; -EPROTO: not a message. */
int transport_receive(int socket, union wire_message *ret_message, struct wire_fds *ret_fds);

/*
 * Daemon side: like transport_receive(), but the message stays in the socket, and no descriptor comes into
 * this process: closing another process's descriptor can block for ever. A message with descriptors is for
 * another process to take.
 */
int transport_peek(int socket, union wire_message *ret_message);
/* Removes the message that was peeked at, which must have no descriptors. */
void transport_drop(int socket);

/*
 * Client side: numbers and sends a request, and waits for its reply of type `expected`. An ERROR reply
 * becomes its code with its text in err. -ECONNRESET: the daemon has exited, or the connection was ended
 * before; -ETIMEDOUT: no reply; -EPROTO: a malformed one. fds, which the caller keeps, and ret_fds may be
 * NULL if no descriptor is sent or received.
 */
int transport_call(struct transport *t, union wire_message *request, const struct wire_fds *fds,
		   enum wire_type expected, union wire_message *ret_reply, struct wire_fds *ret_fds,
		   struct error *err);

/* Exchanges the first messages of a connection, to agree on a version. -EPROTO: no common version; the
 * text says which side to upgrade. */
int transport_hello(struct transport *t, struct error *err);

/* Ends the connection because a reply contradicts its request; `what` says how. Returns -EPROTO. */
int transport_refuse(struct transport *t, struct error *err, const char *what);
