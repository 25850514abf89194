/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of stager.h. */
#include "stager.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/helpers/message.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"

struct stager_slot {
	bool is_taken, is_ordered;
	struct stager_job *job; /* NULL: the caller has stopped waiting */
};

struct stager {
	struct stager_handler handler;
	int fd;
	uv_poll_t poll;
	bool closed;
	struct stager_slot slots[STAGER_SLOTS];
};

static void on_closed(uv_handle_t *handle)
{
	struct stager *s = handle->data;

	closep(&s->fd);
	free(s);
}

struct stager *stager_free(struct stager *s)
{
	if (s) {
		s->closed = true;
		uv_close((uv_handle_t *)&s->poll, on_closed);
	}
	return NULL;
}

static void order_done(struct stager *s, struct stager_slot *slot, int result, const struct error *err)
{
	struct stager_job *job = slot->job;

	slot->is_ordered = false;
	if (job)
		job->done(job, result, err);
	else
		slot->is_taken = false;
	if (!s->closed)
		s->handler.changed(s->handler.user);
}

static void stager_ended(struct stager *s)
{
	const struct error lost = {.code = -EIO, .text = "the process that uses this folder has exited"};

	uv_poll_stop(&s->poll);
	for (size_t i = 0; i < STAGER_SLOTS && !s->closed; i++)
		if (s->slots[i].is_ordered)
			order_done(s, &s->slots[i], -EIO, &lost);
	if (!s->closed)
		s->handler.ended(s->handler.user, &lost);
}

static void take_report(struct stager *s, struct stager_report *report)
{
	report->name[sizeof(report->name) - 1] = '\0';
	report->error.text[sizeof(report->error.text) - 1] = '\0';
	if (report->verb == STAGER_LISTED) {
		s->handler.listed(s->handler.user, report->name, report->bytes, report->written_s);
	} else if (report->verb == STAGER_OPEN && report->result < 0) {
		uv_poll_stop(&s->poll);
		s->handler.ended(s->handler.user, &report->error);
	} else if (report->verb == STAGER_OPEN) {
		s->handler.opened(s->handler.user, report->bytes);
	} else if (report->slot < STAGER_SLOTS && s->slots[report->slot].is_ordered) {
		order_done(s, &s->slots[report->slot], report->result, &report->error);
	}
}

static void on_report(uv_poll_t *poll, int status, int events)
{
	struct stager *s = poll->data;
	struct stager_report report;
	int r = message_receive(s->fd, &report, sizeof(report), MSG_DONTWAIT, NULL, 0);

	if (r == 0)
		take_report(s, &report);
	else if (r != -EAGAIN)
		stager_ended(s);
}

int stager_new(uv_loop_t *loop, const struct fork_server *fork_server, const char *folder,
	       const struct stager_handler *handler, struct stager **ret)
{
	struct stager_order order = {.verb = STAGER_OPEN};
	struct stager *s;
	int r;

	if (strlen(folder) >= sizeof(order.name))
		return -ENAMETOOLONG;
	strcpy(order.name, folder);
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->handler = *handler;
	s->fd = -EBADF;
	r = fork_server_start_with(fork_server, HELPER_STAGER, &order, sizeof(order), NULL, 0, &s->fd);
	if (r == 0)
		r = uv_poll_init(loop, &s->poll, s->fd);
	if (r < 0) {
		closep(&s->fd);
		free(s);
		return r;
	}
	s->poll.data = s;
	uv_poll_start(&s->poll, UV_READABLE, on_report);
	uv_unref((uv_handle_t *)&s->poll);
	*ret = s;
	return 0;
}

int stager_begin(struct stager *s, bool writes, struct stager_job *job)
{
	uint32_t first = writes ? 0 : STAGER_WRITE_SLOTS, end = writes ? STAGER_WRITE_SLOTS : STAGER_SLOTS;

	for (uint32_t i = first; i < end; i++) {
		if (s->slots[i].is_taken)
			continue;
		s->slots[i] = (struct stager_slot){.is_taken = true, .job = job};
		job->slot = i;
		return 0;
	}
	return -EAGAIN;
}

void stager_finish(struct stager *s, struct stager_job *job)
{
	s->slots[job->slot] = (struct stager_slot){.is_taken = false};
}

void stager_forget(struct stager *s, struct stager_job *job)
{
	struct stager_slot *slot = &s->slots[job->slot];

	slot->job = NULL;
	slot->is_taken = slot->is_ordered;
}

int stager_order(struct stager *s, struct stager_job *job, enum stager_verb verb, const char *name,
		 uint64_t bytes, int memory_fd, stager_done *done)
{
	struct stager_order order = {.verb = verb, .slot = job->slot, .bytes = bytes};
	int r;

	if (name) {
		if (strlen(name) >= STAGER_NAME_BYTES)
			return -ENAMETOOLONG;
		strcpy(order.name, name);
	}
	r = fd_message_send(s->fd, &order, sizeof(order), &memory_fd, memory_fd >= 0, MSG_DONTWAIT);
	if (r < 0)
		return r;
	job->done = done;
	s->slots[job->slot].is_ordered = true;
	return 0;
}
