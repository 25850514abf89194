/* SPDX-License-Identifier: Apache-2.0 */
/* The reader, which prefetches files: one process per job, with the job's rights. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ahead.h"
#include "assist_message.h"
#include "batch_log.h"
#include "daemon/helpers/message.h"
#include "identity.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/kernel_calls.h"

#define REST_MIN_NS (60 * NS_PER_S)
#define REST_MAX_NS (3600 * NS_PER_S)

struct message_reader {
	int fd, pidfd;
	struct ahead *ahead;
	struct batch_log log;
	bool charged;
	uint64_t said_ns, rest_ns, rest_until_ns;
	struct assist_told said;
};

static void on_ahead(void *user, uint64_t batch, const char *names, uint32_t n)
{
	struct message_reader *r = user;

	for (uint32_t i = 0; i < n; i++, names += strlen(names) + 1)
		ahead_add(r->ahead, batch, names);
}

static void on_done(void *user, uint64_t batch)
{
	ahead_done(((struct message_reader *)user)->ahead, batch);
}

/* Sends a report if it has changed. Returns false if the receiver is gone. */
static bool say(struct message_reader *r, uint64_t now_ns)
{
	struct ahead_counters done = ahead_count(r->ahead);
	struct assist_told told = {.state = r->log.judge.state, .charged = r->charged};

	told.figures = (struct assist_figures){.batches = r->log.n_batches,
					       .samples = r->log.n_samples,
					       .known = file_table_known(&r->log.sets.table),
					       .hits = r->log.n_hits,
					       .misses = r->log.n_misses,
					       .files = done.files,
					       .bytes = done.bytes,
					       .failed = done.failed};
	snprintf(told.why, sizeof(told.why), "%s", r->log.judge.why);
	r->said_ns = now_ns;
	if (!memcmp(&told, &r->said, sizeof(told)))
		return true;
	r->said = told;
	return send(r->fd, &told, sizeof(told), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN;
}

/* Ends a job's rest after a while, because the job may have changed. A job that rests is not watched. */
static void rest(struct message_reader *r, uint64_t now_ns)
{
	if (r->log.judge.state == ASSIST_HELPS)
		r->rest_ns = 0;
	if (r->log.judge.state != ASSIST_RESTS) {
		r->rest_until_ns = 0;
	} else if (!r->rest_until_ns) {
		r->rest_ns = r->rest_ns ? 2 * r->rest_ns : REST_MIN_NS;
		if (r->rest_ns > REST_MAX_NS)
			r->rest_ns = REST_MAX_NS;
		r->rest_until_ns = now_ns + r->rest_ns;
	} else if (now_ns >= r->rest_until_ns) {
		judge_ahead_again(&r->log.judge);
	}
}

static void take(struct message_reader *r, const char *bytes, size_t n)
{
	struct index_record record;

	while (n >= sizeof(record)) {
		memcpy(&record, bytes, sizeof(record));
		bytes += sizeof(record);
		n -= sizeof(record);
		if (record.bytes > n)
			return;
		batch_log_record(&r->log, &record, bytes);
		bytes += record.bytes;
		n -= record.bytes;
	}
}

static void serve(struct message_reader *r)
{
	static char bytes[ASSIST_FEED_BYTES];

	for (;;) {
		struct pollfd fds[2] = {{.fd = r->fd, .events = POLLIN}, {.fd = r->pidfd, .events = POLLIN}};
		int n = poll(fds, 2, 1000);
		uint64_t now_ns = clock_monotonic_ns();
		struct ahead_counters done;
		ssize_t got;

		if (fds[1].revents || (n < 0 && errno != EINTR))
			return;
		if (fds[0].revents) {
			got = recv(r->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
			if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
				return;
			if (got > 0)
				take(r, bytes, (size_t)got);
			done = ahead_count(r->ahead);
			judge_ahead_files(&r->log.judge, done.files, done.resident);
		}
		if (now_ns - r->said_ns < NS_PER_S)
			continue;
		rest(r, now_ns);
		if (!say(r, now_ns))
			return;
	}
}

bool assist_only_observes;

int assist_reader_run(int fd)
{
	static struct message_reader r;
	struct error err = ERROR_INIT;
	struct assist_order order;
	int code, null_fd;

	if (message_receive(fd, &order, sizeof(order), 0, NULL, 0) < 0)
		return 1;
	helper_title(HELPER_AHEAD, order.uid);
	r.fd = fd;
	/* Opens /dev/null before the change of root, because the job's root may have none. */
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	r.pidfd = kernel_pidfd_open((pid_t)order.pid);
	code = null_fd < 0   ? error_errno(&err, -errno, "cannot open /dev/null")
	       : r.pidfd < 0 ? error_errno(&err, -errno, "process %lld is gone", (long long)order.pid)
			     : identity_take((pid_t)order.pid, order.start_ticks, order.uid, order.gid,
					     &r.charged, &err);
	if (helper_settle(HELPER_AHEAD) < 0)
		return 1;
	if (code == 0)
		code = ahead_new(null_fd, &r.ahead);
	if (code < 0) {
		struct assist_told told = {.state = ASSIST_STOPPED};

		snprintf(told.why, sizeof(told.why), "%.190s", err.text);
		(void)send(fd, &told, sizeof(told), MSG_DONTWAIT | MSG_NOSIGNAL);
		return 1;
	}
	r.log.judge.observe = assist_only_observes;
	r.log.handler = (struct batch_log_handler){.ahead = on_ahead, .done = on_done, .user = &r};
	serve(&r);
	return 0;
}
