/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What connection.c (the conversation) and connection_open.c (opening a dataset) share. */

#include "client/transport.h"
#include "server.h"

struct connection {
	struct connection *next;
	struct server *server;
	int fd;
	uv_poll_t poll;
	int64_t pid;
	uint32_t uid;
	bool greeted;
	bool opening; /* a worker has this connection's request */
	bool closed, handle_closed;
	struct served_dataset *dataset;
	struct session *session;
};

int connection_reply_error(struct connection *c, const struct error *err, int code);
void connection_listen(struct connection *c, bool on);
/* Starts to open a dataset; takes the descriptors. connection_opened() follows, on the loop's thread. */
int connection_open_dataset(struct connection *c, uint64_t version, struct wire_fds *fds);
void connection_opened(struct connection *c);
/* connection_control.c: STATUS, JOBS, WHY and SET. */
int connection_answer(struct connection *c, const union wire_message *m);
