/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/objects.h"

#include <errno.h>
#include <stdio.h>

#include "lib/fd_message.h"

int objects_serve(int channel, const char *url)
{
	struct objects_reply reply = {.result = -EPROTONOSUPPORT};

	snprintf(reply.text, sizeof(reply.text),
		 "%s: this dieselctl was built without S3 (DIESEL_S3=OFF), like the one from pip: set "
		 "DIESEL_DIESELCTL to the path of the dieselctl of the package diesel",
		 url);
	(void)fd_message_send(channel, &reply, sizeof(reply), NULL, 0, 0);
	return reply.result;
}
