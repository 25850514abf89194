/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher: loads the BPF programs, records the jobs that ADD names, and answers each TICK with the shares
 * of their trainers' time since the last one. Its keeper only starts it, with rights that the daemon drops;
 * the watcher drops CAP_BPF once the programs are loaded.
 *
 * CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH are for setting probes in libraries that a job of another user has
 * mapped: they are found in /proc/PID/maps, and may lie in a home directory that no other user can enter.
 *
 * Waits and steps are known all the time, from libdiesel's marks and the backward passes. The division of the
 * remaining time (device, starved of cores, checkpoint) is recorded in slices of some seconds
 * (sensor_detail.h); between slices it is assumed to be as in the last slice.
 */

#include <errno.h>
#include <linux/capability.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/live.h"
#include "bpf/collector.h"
#include "daemon/helpers/message.h"
#include "lib/capabilities.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "sensor.h"
#include "sensor_detail.h"
#include "sensor_message.h"
#include "sensor_tally.h"

/* ---- jobs: which ones are watched, the detailed slices, and their results ---- */

#define WATCH_WINDOW_NS (DETAIL_MAX_NS + 2 * NS_PER_S)
#define WATCH_JOBS_MAX  1024

struct watched {
	uint64_t job;
	uint32_t root;
	struct wait_tally tally;
	struct writes writes;
	uint64_t tick_ns;         /* time of the last report */
	struct tally_sums ticked; /* the sums at tick_ns */
	double wait;              /* share of waiting in the last second */
	uint64_t slice_steps;     /* n_steps when the slice began */
	bool to_analyse, looked_at;
	bool has_slice;
	struct stall_shares slice;
	double slice_wait; /* share of waiting during that slice, from the marks */
	uint64_t slice_ns; /* end of that slice */
	uint64_t slice_wait_ns, last_steps, last_step_ns;
};

struct watch {
	int fd;
	bool ended;
	struct collector *collector;
	struct live *live;
	struct watched **jobs; /* indexed by their number in `live` */
	size_t n_jobs;
	struct detail_plan plan;
	uint64_t cost_ns; /* CPU time of the analyses of the last slice */
};

static struct watched *watched_of(struct watch *w, uint32_t root)
{
	for (size_t i = 0; i < w->n_jobs; i++)
		if (w->jobs[i]->root == root)
			return w->jobs[i];
	return NULL;
}

static void on_event(void *user, const struct event *event)
{
	struct watch *w = user;
	uint32_t root;

	switch ((enum event_type)event->type) {
	case EVENT_MARK:
	case EVENT_STEP:
	case EVENT_EXIT:
		root = live_root_of(w->live, event->tgid);
		if (root && watched_of(w, root))
			tally_event(&watched_of(w, root)->tally, event);
		if (event->type != EVENT_EXIT && !w->plan.on)
			return; /* between slices, marks would be kept for nothing */
		break;
	default: break;
	}
	/* Without memory, the event is dropped and counted as lost. */
	(void)live_event(w->live, event);
}

/* Ignores data that does not fit an event (paths, names of phases, probed libraries): it is of no use here.
 */
static void on_metadata(void *user, const char *kind, uint64_t key, const void *data, size_t size)
{
	(void)user;
	(void)kind;
	(void)key;
	(void)data;
	(void)size;
}

/* Takes the events that the programs recorded. */
static void watch_take_events(struct watch *w)
{
	const struct collector_sink sink = {on_event, on_metadata, w};

	(void)collector_poll(w->collector, 0, &sink);
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static bool is_process(const struct sensor_request *request)
{
	struct proc_stat stat;

	return request->root > 0 && proc_stat_read("/proc", (pid_t)request->root, &stat) == 0 &&
	       stat.start_ticks == request->start_ticks && stat.state != 'Z';
}

static void job_forget(struct watch *w, size_t at)
{
	live_remove(w->live, w->jobs[at]->root);
	free(w->jobs[at]);
	w->n_jobs--;
	memmove(&w->jobs[at], &w->jobs[at + 1], (w->n_jobs - at) * sizeof(struct watched *));
}

/* Stops watching a job. */
static void watch_remove(struct watch *w, uint64_t job)
{
	for (size_t i = 0; i < w->n_jobs; i++)
		if (w->jobs[i]->job == job) {
			job_forget(w, i);
			return;
		}
}

/* A job that cannot be watched has no reports: the daemon then relies on the reports of clients. */
static void watch_add(struct watch *w, const struct sensor_request *request)
{
	struct watched *job = w->n_jobs < WATCH_JOBS_MAX ? calloc(1, sizeof(*job)) : NULL;
	struct watched **jobs = job ? reallocarray(w->jobs, w->n_jobs + 1, sizeof(struct watched *)) : NULL;
	struct error err = ERROR_INIT;
	int r;

	if (jobs)
		w->jobs = jobs;
	if (!jobs || !is_process(request) || live_add(w->live, (uint32_t)request->root) < 0) {
		free(job);
		return;
	}
	*job = (struct watched){.job = request->job,
				.root = (uint32_t)request->root,
				.tick_ns = clock_monotonic_ns(),
				.wait = NAN};
	w->jobs[w->n_jobs++] = job;
	r = collector_attach(w->collector, (pid_t)request->root, &err);
	if (r == 0)
		watch_take_events(w); /* the threads that exist now belong to the job that was added last */
	/* The kernel may have reused the process number. */
	if (r < 0 || !is_process(request)) {
		log_debug("cannot watch job %llu: %s", (unsigned long long)request->job,
			  r < 0 ? err.text : "the job has ended");
		watch_remove(w, request->job);
	}
}

/* Stops watching all jobs. */
static void watch_remove_all(struct watch *w)
{
	while (w->n_jobs)
		job_forget(w, w->n_jobs - 1);
	free(w->jobs);
	w->jobs = NULL;
}

/* ---- slices -------------------------------------------------------------------------------------------- */

static void slice_begin(struct watch *w, uint64_t now_ns)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		struct watched *job = w->jobs[i];
		struct tally_sums sums = tally_sums(&job->tally, now_ns);
		/* Before the slice, only the start and end of the job's threads are known. */
		const struct event gap = {.type = EVENT_GAP,
					  .start_ns = now_ns > WATCH_WINDOW_NS ? now_ns - WATCH_WINDOW_NS : 0,
					  .end_ns = now_ns,
					  .tid = job->root,
					  .tgid = job->root};

		job->slice_steps = sums.n_steps;
		job->slice_wait_ns = sums.wait_ns;
		(void)live_event(w->live, &gap);
	}
	collector_detail(w->collector, true);
}

static void slice_end(struct watch *w, uint64_t now_ns)
{
	collector_detail(w->collector, false);
	watch_take_events(w);
	w->cost_ns = 0;
	for (size_t i = 0; i < w->n_jobs; i++) {
		struct watched *job = w->jobs[i];
		struct tally_sums sums = tally_sums(&job->tally, now_ns);

		job->to_analyse = true;
		job->slice_wait = NAN;
		if (sums.n_trainers && sums.wait_ns >= job->slice_wait_ns && now_ns > w->plan.begin_ns)
			job->slice_wait =
			    (double)(sums.wait_ns - job->slice_wait_ns) / (double)(now_ns - w->plan.begin_ns);
	}
}

/* Computes the shares of an analysed slice; gpu_wait is NAN if not known. Returns false if it has too few
 * steps. */
static bool shares_of(const struct analysis *a, struct stall_shares *ret)
{
	if (a->n_steps < ANALYSIS_STEPS_MIN || !a->window.observed_ns)
		return false;
	*ret = (struct stall_shares){
	    .device = analysis_share_ratio(a, SHARE_DEVICE),
	    .gpu_wait =
		a->parts.gpu_wait_known ? (double)a->parts.gpu_wait_ns / (double)a->window.observed_ns : NAN,
	    .fetch_stall = analysis_share_ratio(a, SHARE_FETCH_STALL),
	    .prep_stall = analysis_share_ratio(a, SHARE_PREP_STALL),
	    .checkpoint_stall = analysis_share_ratio(a, SHARE_CHECKPOINT_STALL),
	    .cpu_starved = analysis_share_ratio(a, SHARE_CPU_STARVED),
	    /* Tuning cannot change how long compiling takes. */
	    .other = analysis_share_ratio(a, SHARE_OTHER) + analysis_share_ratio(a, SHARE_COMPILING),
	};
	return true;
}

static void analyse(struct watch *w, struct watched *job)
{
	uint64_t begin_ns = clock_process_ns();
	struct analysis *analysis = NULL;
	struct error err = ERROR_INIT;

	job->to_analyse = false;
	job->looked_at = true;
	if (live_analyze(w->live, job->root, w->plan.end_ns, &analysis, &err) == 0) {
		if (shares_of(analysis, &job->slice)) {
			job->has_slice = true;
			job->slice_ns = w->plan.end_ns;
		}
		analysis_free(analysis);
	}
	w->cost_ns += clock_process_ns() - begin_ns;
}

/* Analyses one job that was in the last slice, so that ticks are answered in between. Returns true if there
 * was one. */
static bool watch_analyse_next(struct watch *w)
{
	for (size_t i = 0; i < w->n_jobs; i++)
		if (w->jobs[i]->to_analyse) {
			analyse(w, w->jobs[i]);
			return true;
		}
	return false;
}

/* Begins and ends slices. */
static void watch_plan(struct watch *w)
{
	struct detail_job *jobs = calloc(w->n_jobs + 1, sizeof(*jobs));
	uint64_t now_ns = clock_monotonic_ns();

	if (!jobs)
		return;
	for (size_t i = 0; i < w->n_jobs; i++) {
		struct watched *job = w->jobs[i];
		struct tally_sums sums = tally_sums(&job->tally, now_ns);

		if (sums.n_steps != job->last_steps)
			job->last_step_ns = now_ns;
		job->last_steps = sums.n_steps;
		jobs[i] = (struct detail_job){
		    .seen = job->looked_at,
		    .seen_wait = job->slice_wait,
		    .wait = job->wait,
		    .slice_steps = sums.n_steps - job->slice_steps,
		    .last_step_age_ns = job->last_step_ns ? now_ns - job->last_step_ns : UINT64_MAX};
	}
	switch (detail_step(&w->plan, jobs, (uint32_t)w->n_jobs, w->cost_ns, now_ns)) {
	case DETAIL_AS_BEFORE: break;
	case DETAIL_BEGIN: slice_begin(w, now_ns); break;
	case DETAIL_END: slice_end(w, now_ns); break;
	}
	free(jobs);
}

/* ---- reports ------------------------------------------------------------------------------------------- */

/* Reports where the job's time went since its last report. */
static void watch_report(struct watched *job, uint64_t now_ns, struct sensor_report *ret)
{
	struct tally_sums sums = tally_sums(&job->tally, now_ns);
	double covered_s = (double)(now_ns - job->tick_ns) / (double)NS_PER_S;
	double wait = NAN;

	*ret = (struct sensor_report){.job = job->job,
				      .at_ns = now_ns,
				      .covered_s = covered_s,
				      .detail_age_s = NAN,
				      .n_trainers = sums.n_trainers};
	if (sums.n_trainers && sums.wait_ns >= job->ticked.wait_ns && covered_s > 0)
		wait = fmin(1, (double)(sums.wait_ns - job->ticked.wait_ns) / (covered_s * (double)NS_PER_S));
	/* If the sum fell, a trainer has ended, and the sum lacks its steps. */
	if (covered_s > 0 && sums.n_steps >= job->ticked.n_steps)
		ret->steps_per_s = (double)(sums.n_steps - job->ticked.n_steps) / covered_s;
	ret->step_p50_s = tally_step_s(&job->tally, 0.5);
	ret->step_p95_s = tally_step_s(&job->tally, 0.95);
	if (job->has_slice) {
		ret->detail_age_s = (double)(now_ns - job->slice_ns) / (double)NS_PER_S;
		if (!sums.n_trainers) /* the job marks no waits, but the slice shows that it trains */
			ret->n_trainers = 1;
	}
	writes_sample(&job->writes, "/proc", (pid_t)job->root, &ret->writes);
	detail_shares(job->has_slice ? &job->slice : NULL, wait, &ret->shares);
	ret->wait = wait;
	job->wait = wait;
	job->ticked = sums;
	job->tick_ns = now_ns;
}

/* ---- the watcher ---- */

#define RING_BYTES (UINT64_C(4) << 20)
#define EVENTS_MAX (UINT64_C(1) << 17) /* per job: 8 MiB; if the job makes more, a slice covers less time */
#define POLL_MS    100

static void reply(struct watch *w, const struct sensor_reply *message)
{
	if (send(w->fd, message, sizeof(*message), MSG_NOSIGNAL) < 0)
		w->ended = true;
}

static uint64_t resident_bytes(void)
{
	struct proc_status status;

	return proc_status_read("/proc", getpid(), &status) == 0 ? status.resident_bytes : 0;
}

static void on_tick(struct watch *w)
{
	struct sensor_reply message = {.type = SENSOR_REPORTS};
	uint64_t now_ns = clock_monotonic_ns();
	struct collector_stats stats;
	size_t i = 0;

	while (i < w->n_jobs) {
		for (message.code = 0; i < w->n_jobs && message.code < SENSOR_REPORTS_MAX; i++)
			watch_report(w->jobs[i], now_ns, &message.reports[message.code++]);
		reply(w, &message);
	}
	collector_stats_get(w->collector, &stats);
	message = (struct sensor_reply){.type = SENSOR_TICKED};
	for (size_t k = 0; k < COLLECTOR_EVENT_TYPES; k++)
		message.ticked.n_lost += stats.lost[k];
	message.ticked.cpu_ns = clock_process_ns();
	message.ticked.bpf_run_ns = stats.sampled_ns ? stats.bpf_run_ns : 0;
	message.ticked.resident_bytes = resident_bytes();
	message.ticked.active_ns = stats.elapsed_ns;
	message.ticked.n_jobs = (uint32_t)w->n_jobs;
	reply(w, &message);
}

static void take_requests(struct watch *w)
{
	struct sensor_request request;

	while (!w->ended) {
		int r = message_receive(w->fd, &request, sizeof(request), MSG_DONTWAIT, NULL, 0);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			w->ended = true;
			return;
		}
		switch ((enum sensor_request_type)request.type) {
		case SENSOR_ADD: watch_add(w, &request); break;
		case SENSOR_REMOVE: watch_remove(w, request.job); break;
		case SENSOR_TICK:
			watch_take_events(w);
			on_tick(w);
			break;
		}
	}
}

static int watch_open(struct watch *w)
{
	const struct collector_options options = {.ring_bytes = RING_BYTES};
	struct error err = ERROR_INIT;
	struct sensor_reply message = {.type = SENSOR_READY};
	cpu_set_t cpus;
	int r;

	w->live = live_new(&(struct live_config){
	    .window_ns = WATCH_WINDOW_NS,
	    .n_events_max = EVENTS_MAX,
	    .n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1});
	r = w->live ? collector_open(&options, &w->collector, &err) : -ENOMEM;
	if (r == 0) {
		collector_detail(w->collector, false);
		r = helper_settle(HELPER_SENSOR);
	}
	if (r < 0) {
		message = (struct sensor_reply){.type = SENSOR_REFUSED, .code = r};
		snprintf(message.why, sizeof(message.why), "%s", err.text[0] ? err.text : strerror(-r));
	}
	reply(w, &message);
	return r;
}

/* Runs until its socket ends. */
static int watcher_run(const struct kept_helper *self)
{
	struct watch w = {.fd = self->fd};

	if (watch_open(&w) == 0) {
		while (!w.ended) {
			struct pollfd fds[] = {{.fd = self->fd, .events = POLLIN},
					       {.fd = collector_fd(w.collector), .events = POLLIN}};

			atomic_fetch_add_explicit(self->beat, 1, memory_order_relaxed);
			(void)poll(fds, 2, watch_analyse_next(&w) ? 0 : POLL_MS);
			watch_take_events(&w);
			take_requests(&w);
			watch_plan(&w);
		}
	}
	watch_remove_all(&w);
	collector_close(w.collector);
	live_free(w.live);
	return 0;
}

int sensor_fork(struct fork_server *ret_keeper, struct error *err)
{
	static const struct fork_server_program program = {.kind = HELPER_SENSOR_KEEPER,
							   .keeps = HELPER_SENSOR,
							   .run = watcher_run,
							   .on_demand = true,
							   .beats = true};

	return fork_server_spawn(&program, ret_keeper, err);
}

int sensor_drop_privileges(struct error *err)
{
	/* CAP_DAC_OVERRIDE and CAP_FOWNER: socket, lock and history may be in another user's directory. A
	 * service unit can take them away. */
	uint64_t keep =
	    CAPABILITY(CAP_DAC_READ_SEARCH) | CAPABILITY(CAP_DAC_OVERRIDE) | CAPABILITY(CAP_FOWNER);
	int r = capabilities_keep(keep);

	return r < 0 ? error_errno(err, r, "cannot drop privileges") : 0;
}
