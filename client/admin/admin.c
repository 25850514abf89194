/* SPDX-License-Identifier: Apache-2.0 */
#include "client/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/diesel.h"
#include "client/transport.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "own_daemon.h"

#define TEXT_MAX_BYTES (64u << 20)

struct admin {
	struct transport transport;
	bool asked; /* the connection's time was the first question's */
};

static int read_text(int fd, uint64_t bytes, char **ret_text, struct error *err)
{
	char *text;
	size_t done;
	int r;

	if (bytes > TEXT_MAX_BYTES)
		return error_set(err, -EPROTO, "dieseld's answer is %llu bytes long",
				 (unsigned long long)bytes);
	text = malloc(bytes + 1);
	if (!text)
		return error_errno(err, -ENOMEM, "cannot read dieseld's answer");
	r = fd_read_at(fd, text, bytes, 0, &done);
	if (r == 0 && done < bytes)
		r = -EPROTO;
	if (r < 0) {
		free(text);
		return error_errno(err, r, "cannot read dieseld's answer");
	}
	text[bytes] = '\0';
	*ret_text = text;
	return 0;
}

static int ask(struct admin *c, union wire_message *request, char **ret_json, struct error *err)
{
	union wire_message reply;
	struct wire_fds fds;
	int r;

	if (c->asked)
		transport_restart(&c->transport);
	c->asked = true;
	r = transport_call(&c->transport, request, NULL, 0, WIRE_STATUS_REPLY, &reply, &fds, err);
	if (r < 0)
		return r;
	r = read_text(fds.fd[0], reply.status_reply.bytes, ret_json, err);
	wire_fds_close(&fds);
	return r;
}

/* The node's daemon or, where it does not let us in, the user's own. */
static int connect_to_one(uint32_t timeout_s, struct transport *transport, struct error *err)
{
	struct error own = ERROR_INIT;
	int r = transport_connect_within(DIESEL_DEFAULT_SOCKET, timeout_s, transport, err);

	if (r != -ECONNREFUSED && r != -EACCES)
		return r;
	if (own_daemon_connect(timeout_s, transport, &own) == 0) {
		if (err)
			*err = ERROR_INIT;
		return 0;
	}
	if (err) {
		size_t used = strlen(err->text);

		snprintf(err->text + used, sizeof(err->text) - used, "; nor one of your own: %s", own.text);
	}
	return r;
}

int admin_open(const char *socket, uint32_t timeout_s, struct admin **ret, struct error *err)
{
	const char *path = socket && *socket ? socket : getenv("DIESEL_SOCKET");
	struct admin *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_errno(err, -ENOMEM, "cannot ask dieseld");
	c->transport = (struct transport)TRANSPORT_INIT;
	r = path && *path ? transport_connect_within(path, timeout_s, &c->transport, err)
			  : connect_to_one(timeout_s, &c->transport, err);
	if (r == 0)
		r = transport_hello(&c->transport, err);
	if (r < 0) {
		admin_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

void admin_close(struct admin *c)
{
	if (!c)
		return;
	transport_close(&c->transport);
	free(c);
}

int admin_own_folder(char *ret_folder, struct error *err)
{
	return own_daemon_folder(ret_folder, err);
}

int admin_status(struct admin *c, char **ret_json, struct error *err)
{
	union wire_message request;

	protocol_init(&request, WIRE_STATUS);
	return ask(c, &request, ret_json, err);
}

int admin_jobs(struct admin *c, char **ret_json, struct error *err)
{
	union wire_message request;

	protocol_init(&request, WIRE_JOBS);
	return ask(c, &request, ret_json, err);
}

int admin_why(struct admin *c, uint64_t job, uint32_t max, char **ret_json, struct error *err)
{
	union wire_message request;

	protocol_init(&request, WIRE_WHY);
	request.why.job = job;
	request.why.max = max;
	return ask(c, &request, ret_json, err);
}

int admin_set(struct admin *c, uint64_t job, const struct wire_setting *settings, uint32_t n_settings,
	      char **ret_json, struct error *err)
{
	union wire_message request;

	if (n_settings < 1 || n_settings > WIRE_SETTINGS_MAX)
		return error_set(err, -EINVAL, "1 to %d settings can be changed at once", WIRE_SETTINGS_MAX);
	for (uint32_t i = 0; i < n_settings && c->transport.version < 8; i++)
		if (settings[i].flags & WIRE_SETTING_UNTIL_RESTART)
			return error_set(err, -EOPNOTSUPP,
					 "this dieseld speaks protocol %u, which sets nothing until restart: "
					 "upgrade dieseld (apt install diesel), or set it without that",
					 c->transport.version);
	protocol_init(&request, WIRE_SET);
	request.set.job = job;
	request.set.n_settings = n_settings;
	memcpy(request.set.settings, settings, n_settings * sizeof(*settings));
	return ask(c, &request, ret_json, err);
}
