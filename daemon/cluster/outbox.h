/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages that wait until a SOCK_SEQPACKET socket takes them, in order. Whoever sends never waits, and
 * bounds itself how many there can be. */

#include <stdbool.h>
#include <stddef.h>

struct outbox_item;

struct outbox {
	int fd;
	struct outbox_item *first, *last;
};

/* memory_fd: sent along unless negative; it stays open until the message is sent. -ENOMEM, or -EPIPE and the
 * like: nobody is there any more. */
int outbox_send(struct outbox *o, const void *data, size_t bytes, int memory_fd);
/* Sends what it can. 0: nothing waits any more; -EAGAIN: when the socket can be written; or as above. */
int outbox_flush(struct outbox *o);
static inline bool outbox_waits(const struct outbox *o)
{
	return o->first;
}
/* Forgets what waits. */
void outbox_clear(struct outbox *o);
