/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd_message.h"
#include "message.h"

static void on_link_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void keeper_drop(struct keeper *k)
{
	struct keeper_link *l = k->link;

	k->link = NULL;
	if (!l)
		return;
	uv_close((uv_handle_t *)&l->poll, on_link_closed);
	close(l->fd);
}

static void started(struct keeper *k, int fd, pid_t pid)
{
	struct keeper_link *l = calloc(1, sizeof(*l));

	keeper_drop(k);
	if (!l || uv_poll_init(k->poll.loop, &l->poll, fd) < 0) {
		free(l);
		close(fd); /* the process sees that and exits, and the keeper starts the next one */
		return;
	}
	l->fd = fd;
	l->pid = pid;
	l->user = k->handler.user;
	l->poll.data = l;
	uv_unref((uv_handle_t *)&l->poll);
	k->link = l;
	k->handler.started(k->handler.user);
}

static void ended(struct keeper *k, const struct fork_server_news *news)
{
	char how[96];

	if (news->hung)
		snprintf(how, sizeof(how), "did not respond for several seconds and was killed");
	else if (WIFSIGNALED(news->status))
		snprintf(how, sizeof(how), "was ended by signal %d (%s)", WTERMSIG(news->status),
			 strsignal(WTERMSIG(news->status)));
	else
		snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(news->status));
	k->handler.ended(k->handler.user, news, how);
}

static void on_news(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;
	struct fork_server_news news;
	int fd, r = message_receive(k->fork_server.fd, &news, sizeof(news), MSG_DONTWAIT, &fd, 1);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		uv_poll_stop(poll);
		k->handler.lost(k->handler.user);
	} else if (fd >= 0) {
		started(k, fd, news.pid);
	} else {
		ended(k, &news);
	}
}

int keeper_init(struct keeper *k, uv_loop_t *loop, struct fork_server *fork_server,
		const struct keeper_handler *handler)
{
	int r = uv_poll_init(loop, &k->poll, fork_server->fd);

	if (r < 0)
		return r;
	k->fork_server = *fork_server;
	k->handler = *handler;
	k->link = NULL;
	k->poll.data = k;
	*fork_server = FORK_SERVER_NONE;
	uv_poll_start(&k->poll, UV_READABLE, on_news);
	uv_unref((uv_handle_t *)&k->poll);
	return 0;
}

void keeper_close(struct keeper *k, uv_close_cb closed)
{
	keeper_drop(k);
	k->poll.data = k->handler.user;
	uv_close((uv_handle_t *)&k->poll, closed);
	fork_server_end(&k->fork_server);
}

bool keeper_tell(const struct keeper *k, enum fork_server_verb verb, pid_t pid)
{
	const struct fork_server_order order = {.verb = verb, .pid = pid};

	return fd_message_send(k->fork_server.fd, &order, sizeof(order), NULL, 0, MSG_DONTWAIT) == 0;
}
