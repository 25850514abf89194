/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of reader.h. */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/helpers/message.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/list.h"
#include "lib/log.h"

#define IDLE_MS 10000
#define NOBODY  UINT32_MAX /* uid of the spare reader */

struct reader_process {
	struct reader_process *next;
	struct readers *readers;
	struct reader_process **slot; /* NULL: a spare reader, or one asked to end */
	struct reader_job *jobs;
	uint64_t n_orders;
	uint32_t uid;
	int fd;
	uv_poll_t poll;
	uv_timer_t timer;  /* expires when a reader with orders becomes late, or an idle one is to end */
	uint64_t since_ms; /* with orders: loop time of its last report, or of the first order */
	bool is_late;
	uint32_t n_handles;
};

static void on_closed(uv_handle_t *handle)
{
	struct reader_process *r = handle->data;

	if (--r->n_handles > 0)
		return;
	closep(&r->fd);
	free(r);
}

/* Removes the reader from the list; its memory is freed when the handles are closed. */
static void reader_remove(struct reader_process *r)
{
	LL_DELETE(r->readers->first, r);
	r->readers->n--;
	if (r->slot)
		*r->slot = NULL;
	uv_close((uv_handle_t *)&r->poll, on_closed);
	uv_close((uv_handle_t *)&r->timer, on_closed);
}

/* Shuts the socket down to ask the process to end. Our end of the socket then shows when it has ended. */
static void ask_to_end(struct reader_process *r)
{
	if (r->slot)
		*r->slot = NULL;
	r->slot = NULL;
	shutdown(r->fd, SHUT_WR);
}

static void on_idle(uv_timer_t *timer)
{
	ask_to_end(timer->data);
}

static void on_late(uv_timer_t *timer)
{
	struct reader_process *r = timer->data;

	r->is_late = true;
	log_warning("%s: storage has not answered for %llu s. Jobs that read from it are waiting",
		    r->jobs->order.origin,
		    (unsigned long long)(uv_now(r->readers->loop) - r->since_ms) / 1000);
}

/* Restarts the reader's time limit: an order was answered, or the first one is sent. */
static void note_life(struct reader_process *r, const struct reader_job *job)
{
	uint64_t now_ms = uv_now(r->readers->loop);

	if (r->is_late)
		log_info("%s: storage answers again, after %llu s", job->order.origin,
			 (unsigned long long)(now_ms - r->since_ms) / 1000);
	r->is_late = false;
	r->since_ms = now_ms;
	uv_timer_start(&r->timer, on_late, r->readers->late_ms ? r->readers->late_ms : READER_LATE_MS, 0);
}

static void job_done(struct reader_process *r, struct reader_job *job)
{
	LL_DELETE(r->jobs, job);
	if (!r->jobs)
		uv_timer_stop(&r->timer);
	if (!r->jobs && r->slot)
		uv_timer_start(&r->timer, on_idle, IDLE_MS, 0);
	job->done(job);
}

/* Fails all jobs of a reader that has ended. */
static void reader_ended(struct reader_process *r)
{
	struct readers *readers = r->readers;

	uv_poll_stop(&r->poll);
	if (r->slot)
		*r->slot = NULL; /* makes the next attempt use another reader */
	r->slot = NULL;
	while (r->jobs) {
		struct reader_job *job = r->jobs;

		job->result =
		    error_set(&job->error, -EIO, "%s: the process that was reading this file has exited",
			      job->order.origin);
		job_done(r, job);
	}
	reader_remove(r);
	readers->on_end(readers->user);
}

/* Starts a process that decompresses for the reader. A failed send is ignored: the reader is about to end. */
static void give_unpacker(const struct reader_process *r)
{
	static const struct reader_order order = {.id = READER_UNPACKER};
	int fd = -EBADF, result = fork_server_start(r->readers->fork_server, HELPER_UNPACKER, &fd);

	if (result < 0)
		log_debug("cannot start a decompression process: %s", strerror(-result));
	(void)fd_message_send(r->fd, &order, sizeof(order), &fd, result == 0 ? 1 : 0, MSG_DONTWAIT);
	closep(&fd);
}

static void on_report(uv_poll_t *poll, int status, int events)
{
	struct reader_process *r = poll->data;
	struct reader_report report;
	struct reader_job *job;
	int n = message_receive(r->fd, &report, sizeof(report), MSG_DONTWAIT, NULL, 0);

	if (n == -EAGAIN)
		return;
	if (n < 0) {
		reader_ended(r);
		return;
	}
	if (report.id == READER_UNPACKER) {
		give_unpacker(r);
		return;
	}
	for (job = r->jobs; job && job->order.id != report.id;)
		job = job->next;
	if (!job)
		return;
	job->result = report.result;
	job->buffered = report.buffered;
	job->unchanged = report.unchanged;
	job->stamp = report.stamp;
	job->read_bytes = report.read_bytes;
	job->cpu_ns = report.cpu_ns;
	job->error = report.error;
	job->error.text[sizeof(job->error.text) - 1] = '\0';
	note_life(r, job);
	job_done(r, job);
}

bool readers_have_space(const struct readers *rs)
{
	return rs->spare || rs->n < rs->max;
}

static int reader_new(struct readers *rs, struct reader_process **slot, uint32_t uid)
{
	struct reader_process *r;
	int result;

	if (rs->n >= rs->max)
		return -EAGAIN;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->fd = -EBADF;
	result = fork_server_start_with(rs->fork_server, HELPER_READER, &rs->use_uring, sizeof(rs->use_uring),
					NULL, 0, &r->fd);
	if (result == 0)
		result = uv_poll_init(rs->loop, &r->poll, r->fd);
	if (result < 0) {
		closep(&r->fd);
		free(r);
		return result;
	}
	uv_timer_init(rs->loop, &r->timer);
	uv_unref((uv_handle_t *)&r->timer);
	r->poll.data = r->timer.data = r;
	r->n_handles = 2;
	r->readers = rs;
	r->slot = slot;
	r->uid = uid;
	LL_PREPEND(rs->first, r);
	rs->n++;
	uv_poll_start(&r->poll, UV_READABLE, on_report);
	uv_unref((uv_handle_t *)&r->poll);
	*slot = r;
	return 0;
}

void readers_prepare(struct readers *rs)
{
	if (rs->spare || reader_new(rs, &rs->spare, NOBODY) < 0)
		return;
	uv_timer_start(&rs->spare->timer, on_idle, IDLE_MS, 0);
}

/* Uses the spare reader if there is one, else starts a reader. */
static int reader_get(struct readers *rs, struct reader_process **slot, uint32_t uid)
{
	struct reader_process *r = rs->spare;

	if (!r)
		return reader_new(rs, slot, uid);
	rs->spare = NULL;
	r->slot = slot;
	r->uid = uid;
	*slot = r;
	return 0;
}

int readers_submit(struct readers *rs, struct reader_process **slot, uint32_t uid, struct reader_job *job,
		   int folder_fd, int memory_fd)
{
	struct reader_process *r;
	int result = *slot ? 0 : reader_get(rs, slot, uid);

	if (result < 0)
		return result;
	r = *slot;
	job->order.id = ++r->n_orders;
	job->order.uid = r->uid;
	result = fd_message_send(r->fd, &job->order, sizeof(job->order), (int[]){folder_fd, memory_fd}, 2,
				 MSG_DONTWAIT);
	if (result < 0)
		return result == -EPIPE ? -EAGAIN : result; /* on_report() notices the reader's end */
	if (!r->jobs)
		note_life(r, job);
	LL_PREPEND(r->jobs, job);
	return 0;
}

void reader_let_go(struct reader_process **slot)
{
	if (*slot)
		ask_to_end(*slot);
}

uint32_t readers_of(const struct readers *rs, uint32_t uid)
{
	uint32_t n = 0;

	for (const struct reader_process *r = rs->first; r; r = r->next)
		n += r->uid == uid;
	return n;
}

void readers_close(struct readers *rs)
{
	while (rs->first) {
		rs->first->jobs = NULL;
		reader_remove(rs->first);
	}
}
