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

#include "assist_message.h"
#include "daemon/helpers/keeper.h"
#include "daemon/helpers/message.h"
#include "judge_ahead.h"
#include "lib/error.h"
#include "lib/log.h"

static helper_run *const runs[HELPER_N_KINDS] = {[HELPER_AHEAD] = assist_reader_run};

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
