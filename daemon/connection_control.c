/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are answered with JSON text. The text goes as a sealed memory file: it may be long. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "control.h"

static int reply_text(struct connection *c, const char *text)
{
	struct shared_memory memory = SHARED_MEMORY_INIT;
	struct error err = ERROR_INIT;
	union wire_message answer;
	size_t bytes = text ? strlen(text) : 0;
	int r =
	    text ? shared_memory_new("diesel-status", bytes ? bytes : 1, SHARED_SEALED, &memory) : -ENOMEM;

	if (r < 0)
		return connection_reply_error(c, &err, r);
	memcpy(memory.data, text, bytes);
	protocol_init(&answer, WIRE_STATUS_REPLY);
	answer.status_reply.bytes = bytes;
	r = transport_send(c->fd, &answer, &memory.fd, 1);
	shared_memory_free(&memory);
	return r;
}

int connection_answer(struct connection *c, const union wire_message *m)
{
	struct control_viewer viewer = control_viewer_of(c->uid);
	struct control *control = c->server->control;
	struct error err = ERROR_INIT;
	char *text = NULL;
	int r = 0;

	if (m->header.type == WIRE_WHY)
		r = control_why(control, &viewer, &m->why, &text, &err);
	else if (m->header.type == WIRE_SET)
		r = control_set(control, &viewer, &m->set, &text, &err);
	else
		text = m->header.type == WIRE_JOBS ? control_jobs(control, &viewer)
						   : server_status(c->server, &viewer);
	r = r < 0 ? connection_reply_error(c, &err, r) : reply_text(c, text);
	free(text);
	return r;
}
