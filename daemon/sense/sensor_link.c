/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of the messages with the sensor process. Nothing here waits: orders that cannot be sent
 * now are sent at the next tick. */
#include "sensor_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/helpers/message.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/log.h"

#define REFUSED_NS (60 * NS_PER_S) /* pause before trying again if the child was refused */
/* Loading the programs takes 0.1 to 0.2 s of CPU time, which a job's first chunks and batches need more
 * urgently. A job that ends within two ticks has no use for them. */
#define START_DELAY_NS (3 * NS_PER_S / 2)
/* Time without an answer, in seconds, after which a watcher counts as impossible to kill. The keeper kills
 * a hanging watcher earlier. */
#define UNANSWERED_MAX 20

/* Sends a datagram, whole or not at all. Returns true if it was sent. */
static bool send_request(struct sensor *s, const struct sensor_request *request)
{
	return s->keeper.link &&
	       fd_message_send(s->keeper.link->fd, request, sizeof(*request), NULL, 0, MSG_DONTWAIT) == 0;
}

static void why(struct sensor *s, const char *text)
{
	snprintf(s->told.why, sizeof(s->told.why), "%s", text);
}

static void take_replies(struct sensor *s);

/* From now on, samples have the clients' own wait times. Logs the reason once. */
static void lose(struct sensor *s, const char *text)
{
	if (strcmp(s->told.why, text))
		log_warning("%s; stalls are measured by the clients' own wait times", text);
	why(s, text);
	s->told.active = false;
	for (struct sensed_job *j = s->jobs; j; j = j->next)
		j->told = j->has_report = false;
}

bool link_tick(struct sensor *s, uint64_t now_ns)
{
	bool may_start = now_ns >= s->woken_ns + START_DELAY_NS && now_ns >= s->retry_ns;

	if (s->state == CHILD_IDLE && may_start && keeper_tell(&s->keeper, FORK_SERVER_KEEP, 0))
		s->state = CHILD_STARTING;
	if (s->state != CHILD_WATCHING)
		return false;
	for (struct sensed_job *j = s->jobs; j; j = j->next) {
		if (!j->told && j->root > 0)
			j->told = send_request(s, &(struct sensor_request){.type = SENSOR_ADD,
									   .job = j->id,
									   .root = j->root,
									   .start_ticks = j->start_ticks});
	}
	if (++s->n_unanswered > UNANSWERED_MAX) {
		lose(s, "the sensor process does not answer");
		return false;
	}
	return send_request(s, &(struct sensor_request){.type = SENSOR_TICK});
}

void link_remove(struct sensor *s, const struct sensed_job *job)
{
	if (s->state == CHILD_WATCHING && job->told)
		(void)send_request(s, &(struct sensor_request){.type = SENSOR_REMOVE, .job = job->id});
}

void link_stop(struct sensor *s)
{
	if (s->state == CHILD_WATCHING && keeper_tell(&s->keeper, FORK_SERVER_REST, 0)) {
		keeper_drop(&s->keeper);
		s->state = CHILD_IDLE;
	}
	s->told.active = false;
}

static void on_ready(struct sensor *s)
{
	s->state = CHILD_WATCHING;
	s->n_unanswered = 0;
	s->told.active = true;
	s->told.source = STALL_SOURCE_BPF;
	if (s->told.why[0])
		log_info("stalls are measured by BPF again");
	why(s, "");
	for (struct sensed_job *j = s->jobs; j; j = j->next)
		j->told = false;
}

static void on_refused(struct sensor *s, const struct sensor_reply *reply)
{
	char text[sizeof(s->told.why)];

	s->told.source = STALL_SOURCE_CLIENT;
	snprintf(text, sizeof(text), "cannot measure stalls by BPF: %.*s", (int)sizeof(text) - 32,
		 reply->why);
	lose(s, text);
	/* A missing permission, or missing support in the kernel, is permanent. */
	if (reply->code == -EPERM || reply->code == -ENOENT || reply->code == -ENOSYS)
		s->retry_ns = UINT64_MAX;
}

static void on_ended(void *user, const struct fork_server_news *news, const char *how)
{
	struct sensor *s = user;
	bool died;
	char text[160];

	if (!s->keeper.link) /* the process was told to end */
		return;
	take_replies(s);
	if (!s->keeper.link)
		return;
	keeper_drop(&s->keeper);
	died = s->state == CHILD_WATCHING || news->status != 0;
	s->told.active = false;
	if (!died) {
		s->state = CHILD_IDLE;
		if (s->retry_ns != UINT64_MAX && s->told.why[0]) /* refused, but perhaps only for now */
			s->retry_ns = clock_monotonic_ns() + REFUSED_NS;
		return;
	}
	s->state = news->status != 0 ? CHILD_STARTING : CHILD_IDLE;
	s->told.n_restarts++;
	s->told.source = STALL_SOURCE_CLIENT;
	snprintf(text, sizeof(text), "the sensor process %s: dieseld is starting another one", how);
	lose(s, text);
}

/* Without the keeper, no process has the privilege to start another child. */
static void on_lost(void *user)
{
	struct sensor *s = user;

	s->told.source = STALL_SOURCE_CLIENT;
	lose(s, "the process that starts the sensor process has exited: restart dieseld to measure stalls by "
		"BPF again");
	keeper_drop(&s->keeper);
	s->state = CHILD_NONE;
}

static void on_reports(struct sensor *s, const struct sensor_reply *reply)
{
	for (int i = 0; i < reply->code && i < SENSOR_REPORTS_MAX; i++) {
		struct sensed_job *j = s->jobs;

		while (j && j->id != reply->reports[i].job)
			j = j->next;
		if (!j)
			continue;
		j->report = reply->reports[i];
		j->has_report = true;
	}
}

static void on_ticked(struct sensor *s, const struct sensor_reply *reply)
{
	struct sensor_status *told = &s->told;

	if (s->n_unanswered > UNANSWERED_MAX)
		on_ready(s); /* the child answers after all */
	s->n_unanswered = 0;
	told->n_jobs = reply->ticked.n_jobs;
	told->n_lost = reply->ticked.n_lost;
	told->cpu_ns = reply->ticked.cpu_ns;
	told->bpf_run_ns = reply->ticked.bpf_run_ns;
	told->resident_bytes = reply->ticked.resident_bytes;
	told->active_ns = reply->ticked.active_ns;
	if (s->awaits_reports)
		sensor_second_done(s);
}

static void on_message(struct sensor *s, const struct sensor_reply *reply)
{
	switch ((enum sensor_reply_type)reply->type) {
	case SENSOR_READY:
		if (s->state == CHILD_STARTING)
			on_ready(s);
		if (!s->running) /* the last job ended while the programs were loaded */
			link_stop(s);
		break;
	case SENSOR_REFUSED: on_refused(s, reply); break;
	case SENSOR_REPORTS: on_reports(s, reply); break;
	case SENSOR_TICKED: on_ticked(s, reply); break;
	}
}

static void take_replies(struct sensor *s)
{
	struct sensor_reply reply;

	/* Receives a bounded number of messages, because serving is more urgent. */
	for (int i = 0; i < 64 && s->keeper.link; i++) {
		int r = message_receive(s->keeper.link->fd, &reply, sizeof(reply), MSG_DONTWAIT, NULL, 0);

		if (r == -EAGAIN)
			return;
		if (r < 0) { /* the child has ended: the keeper reports how */
			uv_poll_stop(&s->keeper.link->poll);
			return;
		}
		reply.why[sizeof(reply.why) - 1] =
		    reply.type == SENSOR_REFUSED ? '\0' : reply.why[sizeof(reply.why) - 1];
		on_message(s, &reply);
	}
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	const struct keeper_link *link = poll->data;

	take_replies(link->user);
}

static void on_started(void *user)
{
	struct sensor *s = user;

	if (s->state == CHILD_STARTING)
		uv_poll_start(&s->keeper.link->poll, UV_READABLE, on_readable);
	else
		keeper_drop(&s->keeper);
}

const struct keeper_handler link_handler = {.started = on_started, .ended = on_ended, .lost = on_lost};
