/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fd_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/notify.h"
#include "lib/units.h"

#define FIRST_FD 3 /* SD_LISTEN_FDS_START */

static uint32_t number_of(const char *variable)
{
	const char *text = getenv(variable);
	int64_t value;

	return text && units_parse_integer(text, 0, INT32_MAX, &value) == 0 ? (uint32_t)value : 0;
}

uint32_t fd_store_max(void)
{
	return getenv("NOTIFY_SOCKET") ? number_of("FDSTORE") : 0;
}

/* Copies the first of several names, separated by colons, to the item. Returns the remaining names. */
static const char *take_name(const char *names, struct fd_store_item *item)
{
	size_t length = strcspn(names, ":");

	if (length < sizeof(item->name))
		memcpy(item->name, names, length);
	return names[length] ? names + length + 1 : names + length;
}

static int take_all(struct fd_store_items *ret)
{
	const char *names = getenv("LISTEN_FDNAMES");
	uint32_t n = number_of("LISTEN_PID") == (uint32_t)getpid() ? number_of("LISTEN_FDS") : 0;
	struct fd_store_item *items = calloc((size_t)n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	ret->items = items;
	for (uint32_t i = 0; i < n; i++) {
		struct fd_store_item *item = &ret->items[ret->n];

		if (names)
			names = take_name(names, item);
		item->fd = FIRST_FD + (int)i;
		if (fcntl(item->fd, F_SETFD, FD_CLOEXEC) == 0)
			ret->n++;
		else
			*item = (struct fd_store_item){0};
	}
	return 0;
}

int fd_store_take(struct fd_store_items *ret)
{
	int r;

	*ret = (struct fd_store_items){0};
	r = take_all(ret);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return r;
}

int fd_store_steal(struct fd_store_items *items, const char *name)
{
	for (size_t i = 0; i < items->n; i++) {
		int fd = items->items[i].fd;

		if (strcmp(items->items[i].name, name) != 0)
			continue;
		items->items[i] = items->items[--items->n];
		return fd;
	}
	return -EBADF;
}

void fd_store_items_free(struct fd_store_items *items)
{
	for (size_t i = 0; i < items->n; i++)
		closep(&items->items[i].fd);
	free(items->items);
	*items = (struct fd_store_items){0};
}

int fd_store_add(const char *name, int fd)
{
	char state[64];

	/* FDPOLL=0: the manager cannot poll a memory descriptor. */
	snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
	return notify_send_fd(state, fd);
}

int fd_store_remove(const char *name)
{
	char state[64];

	snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return notify_send_fd(state, -EBADF);
}
