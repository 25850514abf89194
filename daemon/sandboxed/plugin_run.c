/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's side of plugin.h: loads one plug-in, answers, and exits. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/helpers/message.h"
#include "lib/fd_message.h"
#include "lib/sandbox.h"
#include "plugin.h"
#include "plugin_load.h"

#define MEMORY_BYTES (UINT64_C(512) << 20)

static int answer(const struct plugin_order *order, int fd, struct plugin_reply *reply)
{
	const struct sandbox_limits limits = {.memory_bytes = MEMORY_BYTES, .cpu_s = PLUGIN_OPEN_CPU_S};
	struct plugin_codec p = {.codec = NULL};
	int r = plugin_load(fd, 0, &p, &reply->error);

	if (r < 0)
		return r;
	/* If the system refuses a sandbox, the daemon logs that once (opener.c). */
	(void)sandbox_enter(&limits);
	if (strnlen(p.codec->name, sizeof(reply->codec.name)) < sizeof(reply->codec.name))
		strcpy(reply->codec.name, p.codec->name);
	return order->opens
		   ? plugin_open(&p, order->codec.options, &reply->type, &reply->codec, &reply->error)
		   : 0;
}

int plugin_run(int socket)
{
	static struct plugin_reply reply;
	struct plugin_order order;
	int fd;

	if (message_receive(socket, &order, sizeof(order), 0, &fd, 1) < 0 || fd < 0)
		return 1;
	alarm(PLUGIN_PATIENCE_S);
	reply.status = answer(&order, fd, &reply);
	return fd_message_send(socket, &reply, sizeof(reply), NULL, 0, 0) < 0;
}
