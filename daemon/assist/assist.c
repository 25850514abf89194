/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of assist. Only the keeper process (helpers/spawn.h) has privileges, and it reads no data
 * of jobs. */
#include "assist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <poll.h>

#include "assist_message.h"
#include "daemon/helpers/keeper.h"
#include "daemon/helpers/message.h"
#include "daemon/node/admin.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/proc.h"

static helper_run *const runs[HELPER_N_KINDS] = {[HELPER_AHEAD] = assist_reader_run};

#define POLL_MS 50 /* polling interval: opens of files do not wake the watcher */
#define IDLE_MS 250

/*
 * The search for trainers costs time in each system call of the machine. So the watcher searches only for a
 * while (a window) after an unknown process has forked a lasting child that executes no program of its own,
 * like DataLoader's workers. As workers may be started otherwise, it also searches briefly from time to time
 * (a glance).
 */
#define FORK_LASTS_NS  (200 * NS_PER_MS)
#define WINDOW_NS      (2 * NS_PER_S)
#define WINDOW_EACH_NS (10 * NS_PER_S)   /* minimum time between two windows */
#define GLANCE_NS      (200 * NS_PER_MS) /* length of a glance */
#define GLANCE_EACH_NS (15 * NS_PER_S)
#define RECORD_SPACE   (sizeof(struct index_record) + INDEX_MESSAGE_BYTES)

struct watched_job {
	struct assist_job told; /* last report about the job; pid 0: this entry is unused */
	int fd, pidfd;          /* fd: socket of the job's reader; pidfd: of the job */
	uint64_t said_ns;
	bool changed;
	char *feed; /* records to send to the reader */
	uint32_t n_feed;
};

struct suspect {
	uint32_t child; /* 0: unused */
	uint64_t forked_ns;
};

struct watcher {
	int daemon_fd;
	struct fork_server keeper;
	struct index_watch *watch;
	enum index_attention attention;
	struct suspect suspects[INDEX_FORKS]; /* a ring */
	uint32_t n_suspects;
	bool suspected;                          /* a suspect was found since the last window */
	uint64_t until_ns, window_ns, glance_ns; /* end of either; start of the last window and glance */
	struct watched_job jobs[ASSIST_JOBS_MAX];
	uint32_t n_jobs;
};

const char *assist_state_name(enum assist_state state)
{
	static const char *const names[ASSIST_N_STATES] = {
	    [ASSIST_LOOKS] = "looks", [ASSIST_LEARNS] = "learns", [ASSIST_TRIES] = "tries",
	    [ASSIST_HELPS] = "helps", [ASSIST_RESTS] = "rests",   [ASSIST_STOPPED] = "stopped"};

	return state < ASSIST_N_STATES ? names[state] : "?";
}

static void tell(struct watcher *w, struct watched_job *j)
{
	j->told.lost = index_watch_lost(w->watch);
	(void)send(w->daemon_fd, &j->told, sizeof(j->told), MSG_DONTWAIT | MSG_NOSIGNAL);
	j->said_ns = clock_monotonic_ns();
	j->changed = false;
}

static struct watched_job *job_of(struct watcher *w, uint32_t pid)
{
	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++)
		if (w->jobs[i].told.pid == (int64_t)pid)
			return &w->jobs[i];
	return NULL;
}

static void job_leave(struct watched_job *j)
{
	closep(&j->fd);
	closep(&j->pidfd);
	free(j->feed);
	*j = (struct watched_job){.fd = -EBADF, .pidfd = -EBADF};
}

static void job_end(struct watcher *w, struct watched_job *j)
{
	(void)index_watch_trainer(w->watch, (uint32_t)j->told.pid, false);
	j->told.ended = 1;
	tell(w, j);
	job_leave(j);
	w->n_jobs--;
}

static bool may_begin(const struct watcher *w, uint32_t uid)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++)
		n += w->jobs[i].told.pid && w->jobs[i].told.uid == uid;
	return w->n_jobs < ASSIST_JOBS_MAX && (admin_is(uid) || n < ASSIST_A_USER_MAX);
}

static void job_begin(struct watcher *w, const struct index_record *r)
{
	pid_t pid = (pid_t)r->trainer;
	struct assist_order order = {.pid = pid, .uid = r->uid, .gid = r->gid};
	struct watched_job *j = job_of(w, 0);
	struct proc_stat process;
	int pidfd;

	if (!j || job_of(w, r->trainer) || !may_begin(w, r->uid))
		return;
	pidfd = kernel_pidfd_open(pid);
	if (pidfd < 0)
		return;
	*j = (struct watched_job){.told = {.uid = r->uid}, .fd = -EBADF, .pidfd = pidfd};
	j->feed = malloc(ASSIST_FEED_BYTES);
	if (!j->feed || proc_stat_read("/proc", pid, &process) < 0 ||
	    proc_comm_read("/proc", pid, j->told.name, sizeof(j->told.name)) < 0) {
		job_leave(j);
		return;
	}
	order.start_ticks = process.start_ticks;
	if (fork_server_start_with(&w->keeper, HELPER_AHEAD, &order, sizeof(order), NULL, 0, &j->fd) < 0) {
		job_leave(j);
		return;
	}
	j->told.pid = pid;
	w->n_jobs++;
	(void)index_watch_trainer(w->watch, r->trainer, true);
	tell(w, j);
}

static void flush(struct watched_job *j)
{
	/* If the reader cannot keep up, drops records: it recovers from the loss. */
	if (j->n_feed)
		(void)send(j->fd, j->feed, j->n_feed, MSG_DONTWAIT | MSG_NOSIGNAL);
	j->n_feed = 0;
}

static void on_record(void *user, const struct index_record *r, const void *bytes)
{
	struct watcher *w = user;
	struct watched_job *j = job_of(w, r->trainer);

	if (r->type == INDEX_FOUND) {
		job_begin(w, r);
		return;
	}
	if (!r->trainer || !j || j->fd < 0)
		return;
	if (j->n_feed + RECORD_SPACE > ASSIST_FEED_BYTES)
		flush(j);
	memcpy(j->feed + j->n_feed, r, sizeof(*r));
	memcpy(j->feed + j->n_feed + sizeof(*r), bytes, r->bytes);
	j->n_feed += (uint32_t)sizeof(*r) + r->bytes;
}

static void stop(struct watcher *w, struct watched_job *j, const char *why)
{
	(void)index_watch_trainer(w->watch, (uint32_t)j->told.pid, false);
	closep(&j->fd);
	j->fd = -EBADF;
	if (j->told.state != ASSIST_STOPPED)
		snprintf(j->told.why, sizeof(j->told.why), "%s", why);
	j->told.state = ASSIST_STOPPED;
	tell(w, j);
}

static bool has_ended(const struct watched_job *j)
{
	struct pollfd fd = {.fd = j->pidfd, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

static void on_told(struct watcher *w, struct watched_job *j)
{
	struct assist_told told;
	ssize_t n = recv(j->fd, &told, sizeof(told), MSG_DONTWAIT);

	/* If the reader ended with unread records, ECONNRESET is returned once, before its last messages. */
	if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
		return;
	if (n <= 0 && has_ended(j))
		return; /* the job has ended, too, and job_end() follows */
	if (n != sizeof(told) || told.state >= ASSIST_N_STATES) {
		stop(w, j, "the process that prefetched its files has ended");
		return;
	}
	told.why[sizeof(told.why) - 1] = '\0';
	j->changed = true;
	j->told.figures = told.figures;
	j->told.charged = told.charged != 0;
	snprintf(j->told.why, sizeof(j->told.why), "%s", told.why);
	if (told.state != j->told.state) {
		(void)index_watch_trainer(w->watch, (uint32_t)j->told.pid, told.state != ASSIST_RESTS);
		j->told.state = told.state;
		tell(w, j);
	}
	if (told.state == ASSIST_STOPPED)
		stop(w, j, "");
}

/* ---- when to sample ------------------------------------------------------------------------------------ */

static void on_fork(void *user, uint32_t parent, uint32_t child)
{
	struct watcher *w = user;

	if (!job_of(w, parent))
		w->suspects[w->n_suspects++ % INDEX_FORKS] = (struct suspect){child, clock_monotonic_ns()};
}

/* Checks whether children that were forked a while ago still exist, and have executed no program of their
 * own. */
static void check_suspects(struct watcher *w, uint64_t now_ns)
{
	index_watch_forks(w->watch, on_fork, w);
	for (size_t i = 0; i < INDEX_FORKS; i++) {
		struct suspect *s = &w->suspects[i];
		struct proc_stat process;

		if (!s->child || now_ns - s->forked_ns < FORK_LASTS_NS)
			continue;
		if (!w->suspected && proc_stat_read("/proc", (pid_t)s->child, &process) == 0)
			w->suspected = process.forked_only;
		s->child = 0;
	}
}

static bool some_job_is_active(const struct watcher *w)
{
	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++)
		if (w->jobs[i].told.pid && w->jobs[i].told.state != ASSIST_RESTS &&
		    w->jobs[i].told.state != ASSIST_STOPPED)
			return true;
	return false;
}

static void attend(struct watcher *w, uint64_t now_ns)
{
	enum index_attention wanted = INDEX_FORKS_ONLY;

	if (w->suspected && now_ns >= w->window_ns + WINDOW_EACH_NS) {
		w->suspected = false;
		w->window_ns = now_ns;
		w->until_ns = now_ns + WINDOW_NS;
	} else if (now_ns >= w->glance_ns + GLANCE_EACH_NS) {
		w->glance_ns = now_ns;
		if (w->until_ns < now_ns + GLANCE_NS)
			w->until_ns = now_ns + GLANCE_NS;
	}
	if (some_job_is_active(w))
		wanted = INDEX_ALL;
	else if (now_ns < w->until_ns)
		wanted = INDEX_TRAINERS;
	if (wanted != w->attention && index_watch_attend(w->watch, wanted) == 0)
		w->attention = wanted;
}

static void watch_once(struct watcher *w)
{
	struct pollfd fds[3 + 2 * ASSIST_JOBS_MAX] = {{.fd = w->daemon_fd, .events = POLLIN},
						      {.fd = w->keeper.fd, .events = POLLIN},
						      {.fd = index_watch_fd(w->watch), .events = POLLIN}};

	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++) {
		fds[3 + 2 * i] = (struct pollfd){.fd = w->jobs[i].fd, .events = POLLIN};
		fds[4 + 2 * i] = (struct pollfd){.fd = w->jobs[i].pidfd, .events = POLLIN};
	}
	(void)poll(fds, sizeof(fds) / sizeof(fds[0]), w->attention == INDEX_FORKS_ONLY ? IDLE_MS : POLL_MS);
	if (fds[0].revents || fds[1].revents)
		_exit(0);
	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++) {
		struct watched_job *j = &w->jobs[i];

		if (fds[3 + 2 * i].revents && j->fd >= 0)
			on_told(w, j);
		if (fds[4 + 2 * i].revents && j->told.pid)
			job_end(w, j);
		else if (j->changed && clock_monotonic_ns() - j->said_ns > NS_PER_S)
			tell(w, j);
	}
	(void)index_watch_take(w->watch, on_record, w);
	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++)
		flush(&w->jobs[i]);
	check_suspects(w, clock_monotonic_ns());
	attend(w, clock_monotonic_ns());
}

static int assist_watch_run(const struct kept_helper *self)
{
	static struct watcher w;
	struct error err = ERROR_INIT;
	struct assist_job none = {.pid = 0};
	int r;

	w.daemon_fd = self->fd;
	w.keeper = self->fork_server;
	for (size_t i = 0; i < ASSIST_JOBS_MAX; i++)
		w.jobs[i].fd = w.jobs[i].pidfd = -EBADF;
	r = index_watch_open(&w.watch, &err);
	if (r == 0)
		r = helper_settle(HELPER_ASSIST);
	if (r < 0) {
		snprintf(none.why, sizeof(none.why), "%.230s", err.text[0] ? err.text : strerror(-r));
		none.ended = 1;
		(void)send(w.daemon_fd, &none, sizeof(none), MSG_NOSIGNAL);
		return 1;
	}
	(void)send(w.daemon_fd, &none, sizeof(none), MSG_NOSIGNAL);
	for (;;)
		watch_once(&w);
}

int assist_fork(bool observe, struct fork_server *ret_keeper, struct error *err)
{
	static const struct fork_server_program program = {
	    .kind = HELPER_ASSIST_KEEPER, .runs = runs, .keeps = HELPER_ASSIST, .run = assist_watch_run};

	if (geteuid() != 0)
		return error_set(
		    err, -EPERM,
		    "--assist requires root, to use the rights of each job's user: run dieseld as root");
	assist_only_observes = observe;
	return fork_server_spawn(&program, ret_keeper, err);
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

struct assist {
	struct keeper keeper;
	char problem[240];
	struct assist_job jobs[ASSIST_JOBS_MAX];
	uint32_t n_jobs;
	uint64_t files, bytes; /* totals that were read ahead for all jobs */
	bool closed;
};

static void forget(struct assist *a, uint32_t i)
{
	a->jobs[i] = a->jobs[--a->n_jobs];
}

/* Adds to the totals what a job's reader has done since its last report. The reader's figures cannot be
 * trusted. */
static void count(struct assist *a, const struct assist_figures *before, const struct assist_figures *now)
{
	if (now->files > before->files)
		a->files += now->files - before->files;
	if (now->bytes > before->bytes)
		a->bytes += now->bytes - before->bytes;
}

static void on_job(struct assist *a, const struct assist_job *job)
{
	const struct assist_figures none = {0};
	uint32_t i = 0;

	while (i < a->n_jobs && a->jobs[i].pid != job->pid)
		i++;
	if (i == ASSIST_JOBS_MAX)
		return;
	count(a, i < a->n_jobs ? &a->jobs[i].figures : &none, &job->figures);
	if (i == a->n_jobs)
		a->n_jobs++;
	else if (a->jobs[i].state != job->state)
		log_info("assist: process %lld (%s): %s: %s", (long long)job->pid, job->name,
			 assist_job_state(job), job->why);
	a->jobs[i] = *job;
	if (job->ended)
		forget(a, i);
}

static void lose(struct assist *a, const char *why)
{
	snprintf(a->problem, sizeof(a->problem), "%s", why);
	log_warning("--assist: no files are prefetched: %s", why);
	a->n_jobs = 0;
}

/* Handles a message about all jobs: see struct assist_job. */
static void on_word(struct assist *a, const struct assist_job *word)
{
	if (*word->why)
		lose(a, word->why);
	else
		a->problem[0] = '\0';
	if (word->ended)
		assist_stop(a);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	const struct keeper_link *link = poll->data;
	struct assist *a = link->user;
	struct assist_job job;
	int r = message_receive(link->fd, &job, sizeof(job), MSG_DONTWAIT, NULL, 0);

	if (r == -EAGAIN)
		return;
	if (r < 0 || job.state >= ASSIST_N_STATES) {
		keeper_drop(&a->keeper);
		lose(a, "the process that watches jobs has ended; dieseld will restart it");
		return;
	}
	job.why[sizeof(job.why) - 1] = job.name[sizeof(job.name) - 1] = '\0';
	if (!job.pid)
		on_word(a, &job);
	else
		on_job(a, &job);
}

static void on_started(void *user)
{
	struct assist *a = user;

	uv_poll_start(&a->keeper.link->poll, UV_READABLE, on_readable);
}

static void on_ended(void *user, const struct fork_server_news *news, const char *how)
{
	/* Called when the watcher has ended. Does nothing: the end of its socket reports this, after all of
	 * its messages. */
}

static void on_lost(void *user)
{
	lose(user, "the process that starts the assist process has ended; restart dieseld");
	assist_stop(user);
}

int assist_start(uv_loop_t *loop, struct fork_server *keeper, struct assist **ret)
{
	struct keeper_handler handler = {.started = on_started, .ended = on_ended, .lost = on_lost};
	struct assist *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	handler.user = a;
	r = keeper_init(&a->keeper, loop, keeper, &handler);
	if (r < 0) {
		free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void assist_stop(struct assist *a)
{
	if (!a || a->closed)
		return;
	a->closed = true;
	keeper_close(&a->keeper, NULL);
}

void assist_free(struct assist *a)
{
	free(a);
}

const char *assist_problem(const struct assist *a)
{
	return a->problem;
}

const struct assist_job *assist_job_at(const struct assist *a, uint32_t i)
{
	return i < a->n_jobs ? &a->jobs[i] : NULL;
}

void assist_totals(const struct assist *a, uint64_t *ret_files, uint64_t *ret_bytes)
{
	*ret_files = a->files;
	*ret_bytes = a->bytes;
}

const char *assist_job_state(const struct assist_job *job)
{
	return assist_state_name((enum assist_state)job->state);
}
