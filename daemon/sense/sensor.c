/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_private.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"

#define SECOND_MS   1000
#define DEADLINE_MS 300             /* time limit for the child's reports of this second */
#define LINGER_NS   (10 * NS_PER_S) /* time for which idle BPF programs stay loaded for the next job */

/* Maximum number of jobs whose threads' queue times are read per second, because these reads are
 * expensive. */
#define QUEUE_SAMPLES_MAX 16

static void on_second_timer(uv_timer_t *timer);

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static struct sensed_job *sensed_find(struct sensor *s, uint64_t id)
{
	struct sensed_job *j = s->jobs;

	while (j && j->id != id)
		j = j->next;
	return j;
}

static void sensed_add(struct sensor *s, const struct job *job)
{
	struct sensed_job *sensed = calloc(1, sizeof(*sensed));
	struct proc_stat stat;
	char proc[256];

	if (!sensed)
		return; /* the next second tries again */
	*sensed = (struct sensed_job){.next = s->jobs, .id = job->id, .present = true, .queue_ratio = NAN};
	snprintf(proc, sizeof(proc), "%s/proc", s->options.root);
	if (job->pid > 0 && !job->process_ended && proc_stat_read(proc, (pid_t)job->pid, &stat) == 0) {
		sensed->root = (pid_t)job->pid;
		sensed->start_ticks = stat.start_ticks;
	}
	s->jobs = sensed;
}

/* Adds jobs that began, and drops those that ended. */
static void sync_jobs(struct sensor *s)
{
	for (struct sensed_job *j = s->jobs; j; j = j->next)
		j->present = false;
	for (const struct job *job = s->serving->jobs.first; job; job = job->next) {
		struct sensed_job *sensed = sensed_find(s, job->id);

		if (sensed)
			sensed->present = true;
		else
			sensed_add(s, job);
	}
	for (struct sensed_job **link = &s->jobs; *link;) {
		struct sensed_job *j = *link;

		if (j->present) {
			link = &j->next;
			continue;
		}
		link_remove(s, j);
		*link = j->next;
		free(j);
	}
}

static void sample_queue(struct sensor *s, struct sensed_job *j, uint64_t now_ns)
{
	uint64_t queue_ns;

	if (!j->root || node_queue_ns(s->options.root, j->root, &queue_ns) < 0) {
		j->queue_ratio = NAN;
		j->queue_at_ns = 0;
		return;
	}
	/* If the total fell, threads have ended, and the sum lacks their times. */
	j->queue_ratio = j->queue_at_ns && queue_ns >= j->queue_ns
			     ? (double)(queue_ns - j->queue_ns) / (double)(now_ns - j->queue_at_ns)
			     : NAN;
	j->queue_ns = queue_ns;
	j->queue_at_ns = now_ns;
}

/* Reads the queue times of all jobs if there are few, else of those whose last reading is oldest. */
static void sample_queues(struct sensor *s, uint64_t now_ns)
{
	uint32_t n = 0, n_left = QUEUE_SAMPLES_MAX;
	uint64_t age_ns;

	for (struct sensed_job *j = s->jobs; j; j = j->next)
		n++;
	age_ns = (uint64_t)(n / QUEUE_SAMPLES_MAX) * NS_PER_S;
	for (struct sensed_job *j = s->jobs; j && n_left; j = j->next) {
		if (now_ns - j->queue_at_ns < age_ns)
			continue;
		sample_queue(s, j, now_ns);
		n_left--;
	}
}

/* Reports what the job writes, so that prefetching makes way for it. The child may inspect any process, this
 * process only those of its own user. */
static void note_writes(struct sensor *s, struct sensed_job *j, const struct job *job, uint64_t now_ns)
{
	struct cache *cache = &s->serving->cache;
	struct writes_seen seen;
	char proc[256];

	if (j->has_report && j->report.writes.known) {
		seen = j->report.writes;
	} else {
		snprintf(proc, sizeof(proc), "%s/proc", s->options.root);
		writes_sample(&j->writes, proc, j->root, &seen);
	}
	for (uint32_t i = 0; i < seen.n_devices && i < PROC_WRITE_DEVICES; i++)
		read_holds_note(&cache->holds, job->uid, (dev_t)seen.devices[i], job->id, now_ns);
}

/* ---- seconds ------------------------------------------------------------------------------------------- */

static void stop_running(struct sensor *s)
{
	uv_timer_stop(&s->second);
	s->running = false;
	link_stop(s);
}

static void tell(const struct stall_sample *sample)
{
	static const char *const sources[] = {"none", "bpf", "client", "process"};
	const struct stall_shares *share = &sample->shares;

	log_debug(
	    "job %llu: by %s: device %.3f fetch %.3f prep %.3f checkpoint %.3f starved %.3f other %.3f, "
	    "%.1f samples/s, %.2f steps/s, rates: fetch %.0f prep %.0f device %.0f, memory hits %.2f, chunk "
	    "latency %.4f s, storage %.1f MB/s",
	    (unsigned long long)sample->job, sources[sample->source], share->device, share->fetch_stall,
	    share->prep_stall, share->checkpoint_stall, share->cpu_starved, share->other,
	    sample->samples_per_s, sample->steps_per_s, sample->fetch_rate, sample->prep_rate,
	    sample->device_rate, sample->memory_hit_ratio, sample->chunk_latency_s,
	    sample->source_bytes_per_s / 1e6);
}

/* Reads the job's counters. */
static void sensed_read(struct sensed_job *sensed, const struct serving *serving, struct job *job,
			uint64_t now_ns)
{
	struct sensed_reading reading = {.at_ns = now_ns};

	serving_job_counters(serving, job, &reading.counters);
	for (struct session *q = serving->sessions; q; q = q->next) {
		if (q->job == job)
			session_count_taken(q, now_ns);
	}
	reading.taken = job->taken;
	sensed->readings[sensed->n_readings++ % SENSED_READINGS] = reading;
}

void sensor_second_done(struct sensor *s)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct stall_node node = node_watch_sample(&s->node, now_ns);
	struct stall_sample *samples;
	size_t n = 0;

	s->awaits_reports = false;
	uv_timer_stop(&s->deadline);
	for (const struct sensed_job *j = s->jobs; j; j = j->next)
		n++;
	samples = calloc(n + 1, sizeof(*samples));
	if (!samples)
		return;
	sample_queues(s, now_ns);
	n = 0;
	for (struct sensed_job *j = s->jobs; j; j = j->next) {
		struct job *job = jobs_find(&s->serving->jobs, j->id);

		if (!job)
			continue;
		sensed_read(j, s->serving, job, now_ns);
		samples[n] = sensed_sample(j, s->serving, job);
		tell(&samples[n++]);
		note_writes(s, j, job, now_ns);
		j->has_report = false;
	}
	if (s->options.handler.second)
		s->options.handler.second(s->options.handler.user, &node, samples, n, now_ns);
	free(samples);
}

static void on_deadline(uv_timer_t *timer)
{
	struct sensor *s = timer->data;

	if (s->awaits_reports)
		sensor_second_done(s);
}

static void on_second_timer(uv_timer_t *timer)
{
	struct sensor *s = timer->data;
	uint64_t now_ns = clock_monotonic_ns();

	if (s->awaits_reports) /* the last second's reports are still missing, because the loop was delayed */
		sensor_second_done(s);
	sync_jobs(s);
	if (s->jobs)
		s->idle_since_ns = now_ns;
	else if (now_ns - s->idle_since_ns >= LINGER_NS) {
		stop_running(s);
		return;
	}
	if (link_tick(s, now_ns)) {
		s->awaits_reports = true;
		uv_timer_start(&s->deadline, on_deadline, DEADLINE_MS, 0);
	} else if (s->jobs) {
		sensor_second_done(s);
	}
}

void sensor_wake(struct sensor *s)
{
	if (!s || s->running || s->stopping)
		return;
	s->running = true;
	s->idle_since_ns = s->woken_ns = clock_monotonic_ns();
	node_watch_sample(&s->node, s->idle_since_ns);
	uv_timer_start(&s->second, on_second_timer, 0, SECOND_MS);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

int sensor_new(uv_loop_t *loop, struct serving *serving, struct fork_server *keeper,
	       const struct sensor_options *options, struct sensor **ret_sensor)
{
	struct sensor *s = calloc(1, sizeof(*s));
	struct keeper_handler handler = link_handler;

	if (!s)
		return -ENOMEM;
	handler.user = s;
	*s = (struct sensor){.loop = loop,
			     .serving = serving,
			     .options = *options,
			     .state = CHILD_NONE,
			     .told = {.source = STALL_SOURCE_CLIENT}};
	if (!s->options.root)
		s->options.root = "";
	if (options->no_child)
		snprintf(s->told.why, sizeof(s->told.why), "%s", options->no_child);
	node_watch_init(&s->node, s->options.root);
	uv_timer_init(loop, &s->second);
	uv_timer_init(loop, &s->deadline);
	s->second.data = s->deadline.data = s;
	uv_unref((uv_handle_t *)&s->second);
	uv_unref((uv_handle_t *)&s->deadline);
	if (keeper->fd >= 0 && keeper_init(&s->keeper, loop, keeper, &handler) == 0) {
		s->has_keeper = true;
		s->state = CHILD_IDLE;
		s->told.source = STALL_SOURCE_BPF;
	}
	*ret_sensor = s;
	return 0;
}

void sensor_stop(struct sensor *s)
{
	if (!s || s->stopping)
		return;
	s->stopping = true;
	s->awaits_reports = false;
	uv_close((uv_handle_t *)&s->second, NULL);
	uv_close((uv_handle_t *)&s->deadline, NULL);
	if (s->has_keeper)
		keeper_close(&s->keeper, NULL);
	s->state = CHILD_NONE;
}

void sensor_free(struct sensor *s)
{
	if (!s)
		return;
	while (s->jobs) {
		struct sensed_job *next = s->jobs->next;

		free(s->jobs);
		s->jobs = next;
	}
	free(s);
}

void sensor_status_get(const struct sensor *s, struct sensor_status *ret_status)
{
	*ret_status = s->told;
}
