/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages that wait until a SOCK_SEQPACKET socket accepts them, in order. Senders never block; each limits
 * how many messages it can have waiting. */

#include <stdbool.h>
#include <stddef.h>

struct outbox_item;

struct outbox {
	int fd;
	struct outbox_item *first;
};

/* Begins with another socket, or with none (negative). Forgets the messages that wait. */
void outbox_reset(struct outbox *o, int fd);
/* Sends the message, or keeps a copy until it can be sent. memory_fd: sent along unless negative; the caller
 * keeps it open until the message is sent. -ENOMEM, or -EPIPE and the like: the other end is closed. */
int outbox_send(struct outbox *o, const void *data, size_t bytes, int memory_fd);
/* Sends as many as possible. 0: no message is left; -EAGAIN: call again when the socket can be written; or
 * errors as above. */
int outbox_flush(struct outbox *o);
static inline bool outbox_waits(const struct outbox *o)
{
	return o->first;
}
