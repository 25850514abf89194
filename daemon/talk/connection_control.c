/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are answered with JSON text. The text goes as a memory file: it may be long. It is lent until
 * the connection's next such request, so that nobody can hold the daemon's memory by keeping descriptors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/admin.h"
#include "connection.h"
#include "daemon/control/control.h"
#include "lib/cleanup.h"

/* Limit of the texts that one user's connections have, each until its next request. Administrators have
 * none. */
#define USER_TEXT_BYTES (8u << 20)

static uint64_t text_bytes_of(const struct server *s, uint32_t uid)
{
	uint64_t bytes = 0;

	for (const struct connection *c = s->connections; c; c = c->next)
		bytes += c->uid == uid ? c->text.bytes : 0;
	return bytes;
}

static int text_new(struct connection *c, const char *text, struct error *err)
{
	size_t bytes = strlen(text);
	int r;

	shared_memory_discard(&c->text); /* of the last request, even if its descriptor was kept */
	if (!c->is_admin && !admin_is(c->uid) && text_bytes_of(c->server, c->uid) + bytes > USER_TEXT_BYTES)
		return error_set(err, -EDQUOT,
				 "user %u has %u MiB of this dieseld's answers open: close connections, or "
				 "read with fewer",
				 c->uid, USER_TEXT_BYTES >> 20);
	r = shared_memory_new("diesel-text", bytes ? bytes : 1, SHARED_LENT, &c->text);
	if (r < 0)
		return error_errno(err, r, "no memory for dieseld's answer");
	memcpy(c->text.data, text, bytes);
	return 0;
}

static int reply_text(struct connection *c, const char *text)
{
	_cleanup_(closep) int fd = -EBADF;
	struct error err = ERROR_INIT;
	union wire_message answer;
	int r = text ? text_new(c, text, &err) : error_set(&err, -ENOMEM, "no memory for dieseld's answer");

	if (r == 0)
		r = shared_memory_reader(c->text.fd, &fd);
	if (r < 0)
		return connection_reply_error(c, &err, r);
	protocol_init(&answer, WIRE_STATUS_REPLY);
	answer.status_reply.bytes = strlen(text);
	return connection_reply(c, &answer, &fd, 1);
}

int connection_answer(struct connection *c, const union wire_message *m)
{
	struct control_viewer viewer =
	    c->is_admin ? (struct control_viewer){.uid = c->uid, .all = true} : control_viewer_of(c->uid);
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
