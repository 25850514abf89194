/* SPDX-License-Identifier: Apache-2.0 */
#include "opener.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/node/admin.h"
#include "daemon/helpers/message.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/list.h"
#include "lib/log.h"
#include "opener_message.h"

enum opening_state {
	OPENING_WAITS, /* waits for its turn */
	OPENING_RUNS,  /* a process runs it, or will soon */
	OPENING_ENDS,  /* no handler will be called; lasts until the process has exited */
};

struct opening {
	struct opening *next;
	struct opener *opener;
	enum opening_state state;
	uint32_t uid;
	int connection; /* borrowed until OPENING_RUNS */
	int fd, pidfd, copy_fd;
	uv_poll_t poll;
	const struct opening_handler *handler;
	void *user;
};

struct opener {
	uv_loop_t *loop;
	const struct fork_server *fork_server;
	struct opening *first;
	bool said_bare;
};

static const char died[] = "the process that opened the dataset died: the snapshot is damaged, takes too "
			   "long to verify, or memory ran out";

int opener_new(uv_loop_t *loop, const struct fork_server *fork_server, struct opener **ret)
{
	struct opener *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->loop = loop;
	o->fork_server = fork_server;
	*ret = o;
	return 0;
}

static void opening_free(uv_handle_t *handle)
{
	struct opening *q = handle->data;

	closep(&q->fd);
	free(q);
}

/* Removes an opening whose process has exited or was never started. */
static void opening_remove(struct opening *q)
{
	struct opener *o = q->opener;
	LL_DELETE(o->first, q);
	closep(&q->pidfd);
	closep(&q->copy_fd);
	if (q->state == OPENING_WAITS)
		free(q);
	else
		uv_close((uv_handle_t *)&q->poll, opening_free);
}

static void opening_kill(const struct opening *q)
{
	if (q->pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, q->pidfd, SIGKILL, NULL, 0);
}

static void answer_waiting(struct opener *o);

static void opening_fail(struct opening *q, const struct error *err)
{
	const struct opening_handler *handler = q->handler;

	q->state = OPENING_ENDS;
	opening_kill(q);
	handler->failed(q->user, err);
}

static void on_identified(struct opening *q, struct opener_reply *reply, int *fds)
{
	struct error err = ERROR_INIT;

	if (fds[1] < 0) {
		error_set(&err, -EMFILE,
			  "dieseld has no file descriptor left to open the dataset: raise its limit of open "
			  "files (LimitNOFILE=)");
		opening_fail(q, &err);
		return;
	}
	reply->proof.path[sizeof(reply->proof.path) - 1] = '\0';
	reply->proof.chunks_fd = steal_fd(&fds[0]);
	reply->proof.snapshot_fd = steal_fd(&fds[1]);
	q->handler->identified(q->user, &reply->proof);
	proof_close(&reply->proof);
}

static void on_verified(struct opening *q, const struct opener_reply *reply)
{
	struct opener *o = q->opener;
	int copy_fd = q->copy_fd;

	if (reply->sandbox < 0 && !o->said_bare) {
		log_warning(
		    "snapshots are verified without a sandbox, because this system does not allow one (%s)",
		    strerror(-reply->sandbox));
		o->said_bare = true;
	}
	q->copy_fd = -EBADF;
	q->state = OPENING_ENDS;
	q->handler->verified(q->user, copy_fd);
}

static void on_reply(struct opening *q, struct opener_reply *reply, int *fds)
{
	struct error err = ERROR_INIT;

	if (reply->type == OPENER_STARTED && q->pidfd < 0 && fds[0] >= 0) {
		q->pidfd = steal_fd(&fds[0]);
		if (q->state == OPENING_ENDS)
			opening_kill(q);
		return;
	}
	if (q->state == OPENING_ENDS)
		return;
	if (reply->type == OPENER_IDENTIFIED && q->copy_fd < 0) {
		on_identified(q, reply, fds);
	} else if (reply->type == OPENER_COPIED && q->copy_fd < 0 && fds[0] >= 0) {
		q->copy_fd = steal_fd(&fds[0]);
	} else if (reply->type == OPENER_VERIFIED && q->copy_fd >= 0) {
		on_verified(q, reply);
	} else if (reply->type == OPENER_FAILED && reply->code < 0) {
		reply->error.text[sizeof(reply->error.text) - 1] = '\0';
		reply->error.code = reply->code;
		opening_fail(q, &reply->error);
	} else {
		error_set(&err, -EIO, "%s", died);
		opening_fail(q, &err);
	}
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct opening *q = poll->data;
	struct opener *o = q->opener;
	struct opener_reply reply;
	struct error err = ERROR_INIT;
	int fds[2], r = message_receive(q->fd, &reply, sizeof(reply), MSG_DONTWAIT, fds, 2);

	if (r == -EAGAIN)
		return;
	if (r == 0)
		on_reply(q, &reply, fds);
	closep(&fds[0]);
	closep(&fds[1]);
	if (r == 0)
		return;
	/* Either the process is gone or could not be forked, so that its end of the socket is closed, or it
	 * has sent something that is not a reply and is killed now. */
	opening_kill(q);
	if (q->state == OPENING_RUNS) {
		error_set(&err, -EIO, "%s", died);
		opening_fail(q, &err);
	}
	opening_remove(q);
	answer_waiting(o);
}

static int opening_run(struct opening *q)
{
	struct opener *o = q->opener;
	int r = fork_server_start_with(o->fork_server, HELPER_OPENER, &q->uid, sizeof(q->uid), &q->connection,
				       1, &q->fd);

	if (r == 0)
		r = uv_poll_init(o->loop, &q->poll, q->fd);
	if (r < 0) {
		closep(&q->fd);
		return r;
	}
	q->poll.data = q;
	q->state = OPENING_RUNS;
	uv_poll_start(&q->poll, UV_READABLE, on_readable);
	return 0;
}

static bool may_run(const struct opener *o, uint32_t uid)
{
	uint32_t n_users = 0, n_own = 0,
		 limit = admin_is(uid) ? OPENER_MAX : OPENER_MAX - OPENER_ROOT_RESERVE;

	for (const struct opening *q = o->first; q; q = q->next) {
		if (q->state == OPENING_WAITS)
			continue;
		n_users++;
		n_own += q->uid == uid && !admin_is(uid);
	}
	return n_users < limit && n_own < OPENER_MAX_A_USER;
}

static void answer_waiting(struct opener *o)
{
	for (struct opening *q = o->first, *next; q; q = next) {
		struct error err = ERROR_INIT;
		int r;

		next = q->next;
		if (q->state != OPENING_WAITS || !may_run(o, q->uid))
			continue;
		r = opening_run(q);
		if (r == 0)
			continue;
		error_errno(&err, r, "cannot pass the dataset to the process that opens it");
		q->handler->failed(q->user, &err);
		opening_remove(q);
		/* The callback may have ended other openings. */
		next = o->first;
	}
}

int opening_start(struct opener *o, uint32_t uid, int connection, const struct opening_handler *handler,
		  void *user, struct opening **ret)
{
	struct opening *q = calloc(1, sizeof(*q));
	int r = 0;

	if (!q)
		return -ENOMEM;
	*q = (struct opening){.opener = o,
			      .uid = uid,
			      .connection = connection,
			      .fd = -EBADF,
			      .pidfd = -EBADF,
			      .copy_fd = -EBADF,
			      .handler = handler,
			      .user = user};
	LL_APPEND(o->first, q);
	if (may_run(o, uid))
		r = opening_run(q);
	if (r < 0) {
		opening_remove(q);
		return r;
	}
	*ret = q;
	return 0;
}

void opening_go_on(struct opening *q)
{
	const char go = 1;

	/* If the process is gone, on_readable() sees the end of its socket. */
	(void)fd_message_send(q->fd, &go, sizeof(go), NULL, 0, 0);
}

void opening_end(struct opening *q)
{
	if (q->state == OPENING_WAITS) {
		opening_remove(q);
		return;
	}
	q->state = OPENING_ENDS;
	opening_kill(q);
}

void opener_free(struct opener *o)
{
	if (!o)
		return;
	while (o->first) {
		opening_kill(o->first);
		opening_remove(o->first);
	}
	free(o);
}
