/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a codec: the codec itself says so, in a process of its own (plugin.h). Nothing more is
 * read from the client meanwhile. */
#include <errno.h>
#include <string.h>

#include "connection.h"
#include "plugin.h"

static void on_answer(void *user, const struct plugin_answer *answer, const struct error *err)
{
	struct connection *c = user;
	union wire_message m;
	int r;

	c->asking = NULL;
	if (answer) {
		protocol_init(&m, WIRE_CODEC_REPLY);
		m.codec.type = answer->type;
		m.codec.codec = answer->codec;
		r = connection_reply(c, &m, NULL, 0);
	} else {
		r = connection_reply_error(c, err, err->code);
	}
	if (r < 0)
		connection_cut(c, r);
	else
		connection_listen(c);
}

int connection_ask_codec(struct connection *c, const struct wire_codec *m)
{
	struct server *s = c->server;
	struct plugins *plugins = s->serving.options.plugins;
	struct error err = ERROR_INIT;
	const struct plugin *plugin;
	int r = plugins_find(plugins, m->codec.name, &plugin, &err);

	if (r == 0)
		r = plugin_ask(plugins, s->loop, c->uid, &m->codec, on_answer, c, &c->asking, &err);
	if (r < 0)
		return connection_reply_error(c, &err, r);
	connection_watch_end(c);
	return 0;
}

void connection_ask_cancel(struct connection *c)
{
	if (c->asking)
		plugin_forget(c->asking);
	c->asking = NULL;
}
