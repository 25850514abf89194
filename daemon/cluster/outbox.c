/* SPDX-License-Identifier: Apache-2.0 */
#include "outbox.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/fd_message.h"
#include "lib/list.h"

struct outbox_item {
	struct outbox_item *prev, *next;
	int memory_fd;
	size_t bytes;
	uint8_t data[];
};

static int send_now(const struct outbox *o, const void *data, size_t bytes, int memory_fd)
{
	int r = fd_message_send(o->fd, data, bytes, &memory_fd, memory_fd >= 0, MSG_DONTWAIT);

	/* The kernel limits the descriptors in flight, too. */
	return r == -ENOBUFS || r == -ETOOMANYREFS ? -EAGAIN : r;
}

int outbox_send(struct outbox *o, const void *data, size_t bytes, int memory_fd)
{
	struct outbox_item *item;
	int r = o->first ? -EAGAIN : send_now(o, data, bytes, memory_fd);

	if (r != -EAGAIN)
		return r;
	item = malloc(sizeof(*item) + bytes);
	if (!item)
		return -ENOMEM;
	*item = (struct outbox_item){.memory_fd = memory_fd, .bytes = bytes};
	memcpy(item->data, data, bytes);
	DL_APPEND(o->first, item);
	return 0;
}

int outbox_flush(struct outbox *o)
{
	while (o->first) {
		struct outbox_item *item = o->first;
		int r = send_now(o, item->data, item->bytes, item->memory_fd);

		if (r < 0)
			return r;
		DL_DELETE(o->first, item);
		free(item);
	}
	return 0;
}

void outbox_reset(struct outbox *o, int fd)
{
	struct outbox_item *item, *next;

	DL_FOREACH_SAFE (o->first, item, next)
		free(item);
	*o = (struct outbox){.fd = fd};
}
