/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of plugin.h. */
#include "plugin.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/node/admin.h"
#include "daemon/helpers/message.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/text.h"

struct plugin_question {
	struct plugin_question *next;
	struct plugins *plugins;
	uv_poll_t poll;
	int fd;
	uint32_t uid;
	struct recipe_codec codec;
	plugin_answered *answered; /* NULL: the caller has dropped the question */
	void *user;
};

/* Receives the reply. The process may lie, but its reply must be well-formed. */
static int take(int fd, const struct plugin_order *order, struct plugin_reply *reply, struct error *err)
{
	char text[sizeof(err->text)];
	int r = message_receive(fd, reply, sizeof(*reply), MSG_DONTWAIT, NULL, 0);
	const char *wrong;

	if (r == -EAGAIN)
		return r;
	if (r < 0 || reply->status > 0)
		return error_set(err, -ELIBBAD,
				 "the codec crashes the process that loads it, takes too long, or makes a "
				 "system call that codecs may not make");
	if (reply->status < 0) {
		reply->error.text[sizeof(reply->error.text) - 1] = '\0';
		return error_set(err, reply->status, "%s", text_line(text, sizeof(text), reply->error.text));
	}
	wrong = recipe_check_name(&reply->codec);
	if (!wrong && order->opens)
		wrong = recipe_check_output(reply->type, &reply->codec);
	return wrong ? error_set(err, -ELIBBAD, "%s", wrong) : 0;
}

static int learn(const struct fork_server *fork_server, struct plugin *p, struct error *err)
{
	uint64_t end_ns = clock_monotonic_ns() + (PLUGIN_PATIENCE_S + 2) * NS_PER_S;
	const struct plugin_order order = {.opens = false};
	struct plugin_reply reply;
	_cleanup_(closep) int fd = -EBADF;
	struct pollfd waits = {.events = POLLIN};
	int r = plugin_file_open(p->path, &p->fd, err);

	if (r < 0)
		return r;
	r = fork_server_start_with(fork_server, HELPER_PLUGIN, &order, sizeof(order), &p->fd, 1, &fd);
	if (r < 0)
		return error_errno(err, r, "%s is not loaded", p->path);
	waits.fd = fd;
	while (poll(&waits, 1, 1000) <= 0 && clock_monotonic_ns() < end_ns)
		;
	r = take(fd, &order, &reply, err);
	if (r == -EAGAIN)
		r = error_set(err, -ETIMEDOUT, "loading the codec takes too long");
	if (r < 0) {
		error_prefix(err, "%s is not loaded", p->path);
		return r;
	}
	memcpy(p->name, reply.codec.name, sizeof(p->name));
	return 0;
}

static const struct plugin *find(const struct plugins *p, const char *name)
{
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->all[i].name[0] && strcmp(p->all[i].name, name) == 0)
			return &p->all[i];
	}
	return NULL;
}

void plugins_start(struct plugins *p, const struct fork_server *fork_server, char *const *paths, uint32_t n)
{
	p->fork_server = fork_server;
	for (uint32_t i = 0; i < n && i < PLUGINS_MAX; i++) {
		struct plugin q = {.path = paths[i], .fd = -EBADF};
		const struct plugin *other;
		int r = learn(fork_server, &q, &q.problem);

		other = r == 0 ? find(p, q.name) : NULL;
		if (other) {
			error_set(&q.problem, -EEXIST,
				  "%s is not loaded: its codec name, %s, is already used by %s", q.path,
				  q.name, other->path);
			q.name[0] = '\0';
		}
		p->all[p->n++] = q;
	}
}

static void question_free(uv_handle_t *handle)
{
	struct plugin_question *q = handle->data;

	close(q->fd);
	free(q);
}

static void question_end(struct plugin_question *q)
{
	LL_DELETE(q->plugins->asking, q);
	uv_close((uv_handle_t *)&q->poll, question_free);
}

void plugins_stop(struct plugins *p)
{
	while (p->asking)
		question_end(p->asking);
}

void plugins_free(struct plugins *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		closep(&p->all[i].fd);
	p->n = 0;
}

int plugins_find(const struct plugins *p, const char *name, const struct plugin **ret, struct error *err)
{
	const struct plugin *found = p ? find(p, name) : NULL;
	char names[256] = "";
	size_t used = 0;

	if (found) {
		*ret = found;
		return 0;
	}
	for (uint32_t i = 0; p && i < p->n && used < sizeof(names); i++) {
		if (p->all[i].name[0])
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
						 p->all[i].name);
	}
	if (!used)
		return error_set(err, -ENOENT,
				 "dieseld has no codec \"%s\", and no other codec: its operator can add one "
				 "with --codec PATH",
				 name);
	return error_set(err, -ENOENT, "dieseld has no codec \"%s\"; its codecs are %s", name, names);
}

static void on_reply(uv_poll_t *poll, int status, int events)
{
	struct plugin_question *q = poll->data;
	const struct plugin_order order = {.opens = true, .codec = q->codec};
	struct plugin_answer answer = {.codec = q->codec};
	struct plugin_reply reply;
	struct error err = ERROR_INIT;
	int r = take(q->fd, &order, &reply, &err);

	if (r == -EAGAIN)
		return;
	if (r < 0)
		error_prefix(&err, "codec %s", q->codec.name);
	else {
		answer.type = reply.type;
		answer.codec.n_dimensions = reply.codec.n_dimensions;
		memcpy(answer.codec.dimensions, reply.codec.dimensions, sizeof(answer.codec.dimensions));
	}
	if (q->answered)
		q->answered(q->user, r < 0 ? NULL : &answer, &err);
	question_end(q);
}

static int check_asking(const struct plugins *p, uint32_t uid, struct error *err)
{
	uint32_t n = 0, n_own = 0;

	for (const struct plugin_question *q = p->asking; q; q = q->next) {
		n++;
		n_own += q->uid == uid;
	}
	if (!admin_is(uid) && (n >= PLUGIN_MAX_ASKING || n_own >= PLUGIN_MAX_ASKING_UID))
		return error_set(
		    err, -EAGAIN,
		    "too many loaders are querying codecs of dieseld at the same time: try again");
	return 0;
}

int plugin_ask(struct plugins *p, const struct recipe_codec *codec, const struct plugin_asker *asker,
	       struct plugin_question **ret, struct error *err)
{
	const struct plugin_order order = {.opens = true, .codec = *codec};
	const struct plugin *plugin;
	struct plugin_question *q;
	int r = plugins_find(p, codec->name, &plugin, err);

	if (r == 0)
		r = check_asking(p, asker->uid, err);
	if (r < 0)
		return r;
	q = calloc(1, sizeof(*q));
	if (!q)
		return error_errno(err, -ENOMEM, "codec %s", codec->name);
	*q = (struct plugin_question){.plugins = p,
				      .uid = asker->uid,
				      .codec = *codec,
				      .answered = asker->answered,
				      .user = asker->user};
	r = fork_server_start_with(p->fork_server, HELPER_PLUGIN, &order, sizeof(order), &plugin->fd, 1,
				   &q->fd);
	if (r < 0) {
		free(q);
		return error_errno(err, r, "cannot query codec %s", codec->name);
	}
	r = uv_poll_init(asker->loop, &q->poll, q->fd);
	if (r < 0) {
		close(q->fd);
		free(q);
		return error_errno(err, r, "cannot query codec %s", codec->name);
	}
	q->poll.data = q;
	q->next = p->asking;
	p->asking = q;
	uv_poll_start(&q->poll, UV_READABLE, on_reply);
	*ret = q;
	return 0;
}

void plugin_forget(struct plugin_question *q)
{
	q->answered = NULL;
}
