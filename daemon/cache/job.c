/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/kernel_calls.h"
#include "lib/list.h"
#include "lib/proc.h"
#include "daemon/cache/peers/memberships.h"

/* Maximum number of generations between a worker and its trainer: a fork server or a wrapper script may be
 * between them. */
#define MAX_ANCESTORS 8

static int64_t parent_of(const struct jobs *jobs, int64_t pid)
{
	struct proc_stat stat;

	return pid > 1 && proc_stat_read(jobs->proc_root, (pid_t)pid, &stat) == 0 ? stat.parent : 0;
}

static struct job *find_job(const struct jobs *jobs, int64_t pid, const struct job_member *m, bool any_rank)
{
	for (struct job *j = jobs->first; j; j = j->next) {
		if (j->pid == pid && j->uid == m->uid && !j->process_ended &&
		    (any_rank || (j->rank == m->rank && j->world == m->world)))
			return j;
	}
	return NULL;
}

/* Returns the process that the member's job is named after: pid itself, or the trainer that pid works for. 0:
 * unknown. */
static int64_t job_root(const struct jobs *jobs, const struct job_member *m)
{
	int64_t parent, ancestor;

	if (m->pid <= 0)
		return 0;
	if (find_job(jobs, m->pid, m, true))
		return m->pid;
	parent = ancestor = parent_of(jobs, m->pid);
	for (int i = 0; i < MAX_ANCESTORS && ancestor > 1; i++) {
		if (find_job(jobs, ancestor, m, false))
			return ancestor;
		ancestor = parent_of(jobs, ancestor);
	}
	return m->stride > 1 && parent > 1 ? parent : m->pid;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct job *j = handle->data;

	j->n_handles--;
	job_unref(j);
}

static void close_handle(struct job *j, uv_handle_t *handle)
{
	handle->data = j;
	uv_close(handle, on_handle_closed);
}

/* Removes the job from the list; its memory is freed with the last reference. */
static void job_end(struct job *j)
{
	if (j->ended)
		return;
	j->ended = true;
	LL_DELETE(j->owner->first, j);
	memberships_end_job(j);
	if (j->owner->handler.end && !j->owner->closing)
		j->owner->handler.end(j->owner->handler.user, j);
	close_handle(j, (uv_handle_t *)&j->linger);
	if (j->pidfd >= 0)
		close_handle(j, (uv_handle_t *)&j->process);
	job_unref(j);
}

static void on_linger(uv_timer_t *timer)
{
	job_end(timer->data);
}

static void on_process(uv_poll_t *poll, int status, int events)
{
	struct job *j = poll->data;

	uv_poll_stop(poll);
	j->process_ended = true;
	if (j->n_sessions == 0)
		job_end(j);
}

/* Watches for the end of the process, so that its pid is not mistaken for another process's. */
static void watch_process(struct job *j)
{
	j->pidfd = j->pid > 0 ? kernel_pidfd_open((pid_t)j->pid) : -1;
	if (j->pidfd < 0 || uv_poll_init(j->owner->loop, &j->process, j->pidfd) < 0) {
		closep(&j->pidfd);
		j->pidfd = -1;
		j->unwatched = true;
		return;
	}
	j->process.data = j;
	uv_unref((uv_handle_t *)&j->process);
	j->n_handles++;
	j->refs++;
	uv_poll_start(&j->process, UV_READABLE, on_process);
}

static struct job *job_begin(struct jobs *jobs, int64_t root, const struct job_member *m)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	*j = (struct job){.next = jobs->first,
			  .owner = jobs,
			  .id = ++jobs->n_begun,
			  .pid = root,
			  .uid = m->uid,
			  .rank = m->rank,
			  .world = m->world,
			  .begin_ns = clock_monotonic_ns(),
			  .cache_use = {.at_ns = clock_monotonic_ns()},
			  .knobs = tuner_knobs_free(),
			  .read_weight = TURN_WEIGHT,
			  .refs = 2, /* references of the list and the timer */
			  .pidfd = -1,
			  .n_handles = 1};
	pool_lane_init(&j->lane, j->uid);
	if (root > 0 && proc_cmdline_read(jobs->proc_root, (pid_t)root, j->name, sizeof(j->name)) < 0)
		j->name[0] = '\0';
	j->origin = job_origin_find(m->origin, jobs->proc_root, (pid_t)root);
	uv_timer_init(jobs->loop, &j->linger);
	j->linger.data = j;
	uv_unref((uv_handle_t *)&j->linger);
	watch_process(j);
	jobs->first = j;
	return j;
}

struct job *jobs_join(struct jobs *jobs, const struct job_member *m)
{
	int64_t root = job_root(jobs, m);
	struct job *j = root > 0 ? find_job(jobs, root, m, root == m->pid) : NULL;
	bool begins = !j;

	if (!j)
		j = job_begin(jobs, root, m);
	if (!j)
		return NULL;
	j->n_sessions++;
	j->refs++;
	uv_timer_stop(&j->linger);
	if (begins && jobs->handler.begin)
		jobs->handler.begin(jobs->handler.user, j);
	return j;
}

/* Ends the oldest of a user's jobs without a session if there are too many: one process can begin many, one
 * after the other. */
static void end_many_lingering(const struct jobs *jobs, uint32_t uid)
{
	struct job *oldest = NULL;
	uint32_t n = 0;

	for (struct job *j = jobs->first; j; j = j->next) {
		if (j->uid != uid || j->n_sessions > 0)
			continue;
		oldest = j;
		n++;
	}
	if (n > JOB_MAX_LINGERING)
		job_end(oldest);
}

void jobs_leave(struct job *j)
{
	struct jobs *jobs = j->owner;

	j->n_sessions--;
	if (j->n_sessions == 0 && !j->ended) {
		if (j->process_ended || j->unwatched)
			job_end(j);
		else
			uv_timer_start(&j->linger, on_linger, JOB_LINGER_MS, 0);
		end_many_lingering(jobs, j->uid);
	}
	job_unref(j);
}

struct job *jobs_find(const struct jobs *jobs, uint64_t id)
{
	struct job *j = jobs->first;

	while (j && j->id != id)
		j = j->next;
	return j;
}

void jobs_close(struct jobs *jobs)
{
	jobs->closing = true;
	while (jobs->first)
		job_end(jobs->first);
}

struct job *job_ref(struct job *j)
{
	if (j)
		j->refs++;
	return j;
}

void job_unref(struct job *j)
{
	if (!j || --j->refs > 0)
		return;
	closep(&j->pidfd);
	read_lanes_free(&j->read_lanes);
	free(j);
}

static void come_begin(struct job *j, uint64_t now_ns)
{
	if (j->n_coming++ == 0)
		j->coming_since_ns = now_ns;
}

static void come_end(struct job *j, uint64_t now_ns)
{
	if (--j->n_coming == 0)
		j->counters.coming_ns += now_ns - j->coming_since_ns;
}

void job_read_begin(struct job *j, uint64_t now_ns)
{
	come_begin(j, now_ns);
	if (j->n_reading++ == 0)
		j->reading_since_ns = now_ns;
	j->counters.chunk_reads++;
}

void job_read_end(struct job *j, uint64_t begin_ns, uint64_t now_ns, uint64_t bytes)
{
	j->counters.read_bytes += bytes;
	j->counters.n_read++;
	j->counters.read_ns += now_ns - begin_ns;
	read_latency_add(&j->counters.latency, now_ns - begin_ns);
	read_latency_add(&j->counters.came, now_ns - begin_ns);
	if (--j->n_reading == 0)
		j->counters.reading_ns += now_ns - j->reading_since_ns;
	come_end(j, now_ns);
}

void job_ask_begin(struct job *j, uint64_t now_ns)
{
	come_begin(j, now_ns);
}

void job_ask_end(struct job *j, uint64_t begin_ns, uint64_t now_ns, int result, uint64_t bytes)
{
	if (result == 0) {
		j->counters.peer_chunks++;
		j->counters.peer_bytes += bytes;
		j->counters.peer_ns += now_ns - begin_ns;
		read_latency_add(&j->counters.came, now_ns - begin_ns);
	} else {
		j->counters.peer_failed++;
	}
	come_end(j, now_ns);
}

bool job_is_held(const struct job *job, uint64_t now_ns)
{
	return now_ns < job->held.until_ns;
}

void job_hold(struct job *job, uint64_t writer, uint64_t now_ns, uint64_t until_ns)
{
	struct job_held *held = &job->held;

	if (!job_is_held(job, now_ns)) {
		held->ns = job_held_ns(job, now_ns);
		held->since_ns = now_ns;
		held->n++;
	}
	held->until_ns = until_ns;
	held->writer = writer;
}

uint64_t job_held_ns(const struct job *job, uint64_t now_ns)
{
	const struct job_held *held = &job->held;

	return held->ns + (job_is_held(job, now_ns) ? now_ns : held->until_ns) - held->since_ns;
}
