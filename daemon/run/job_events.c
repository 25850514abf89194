/* SPDX-License-Identifier: Apache-2.0 */
#include "job_events.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "daemon/server/server.h"

void job_events_program(const struct job *job, char *text, size_t size)
{
	const char *at = job->name, *best = NULL;
	size_t length = 0;

	while (*at) {
		size_t word = strcspn(at, " ");
		bool script = word > 3 && !strncmp(at + word - 3, ".py", 3);

		if (!best || script) {
			best = at;
			length = word;
		}
		if (script)
			break;
		at += word + strspn(at + word, " ");
	}
	for (size_t i = length; i > 0; i--) {
		if (best[i - 1] == '/') {
			best += i;
			length -= i;
			break;
		}
	}
	snprintf(text, size, "%.*s", (int)length, best ? best : "");
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~')
			*c = '?';
}

/* Returns the job's counters as amounts, without the job itself, which was counted when it began. */
static struct usage_amounts amounts_of(const struct job_events *events, const struct job *job)
{
	struct job_counters n;

	serving_job_counters(&events->server->serving, job, &n);
	return (struct usage_amounts){.samples = n.samples,
				      .bytes = n.bytes,
				      .read_bytes = n.read_bytes,
				      .node_bytes = n.peer_bytes,
				      .cache_kib_s =
					  (uint64_t)(job_cache_byte_s(job, clock_monotonic_ns()) / 1024),
				      .cpu_ns = n.cpu_ns,
				      .wait_fetch_ns = n.wait_fetch_ns,
				      .wait_prep_ns = n.wait_prep_ns};
}

void job_events_usage(const struct job_events *events, struct usage_totals *ret)
{
	*ret = events->usage;
	for (const struct job *j = events->server->serving.jobs.first; j; j = j->next) {
		struct usage_amounts amounts = amounts_of(events, j);

		amounts.cache_bytes = j->cache_use.bytes;
		usage_add(ret, j->uid, j->origin.account, j->origin.pod_namespace, &amounts);
	}
}

#define MAX_FIELDS 24
/* Interval in ms at which each user's part of the cache is measured, while there are jobs. */
#define COUNT_MS 1000

struct job_facts {
	struct log_field fields[MAX_FIELDS];
	size_t n;
};

__attribute__((format(printf, 3, 4))) static void tell(struct job_facts *facts, const char *name,
						       const char *format, ...)
{
	struct log_field *field = &facts->fields[facts->n++];
	va_list arguments;

	field->name = name;
	va_start(arguments, format);
	vsnprintf(field->value, sizeof(field->value), format, arguments);
	va_end(arguments);
}

static void tell_whose(struct job_facts *facts, const struct job *job)
{
	const struct job_origin *o = &job->origin;
	char program[64];

	job_events_program(job, program, sizeof(program));
	tell(facts, "job", "%" PRIu64, job->id);
	tell(facts, "uid", "%" PRIu32, job->uid);
	tell(facts, "client_pid", "%" PRId64, job->pid);
	tell(facts, "rank", "%" PRIu32, job->rank);
	tell(facts, "world", "%" PRIu32, job->world);
	tell(facts, "program", "%s", program);
	tell(facts, "slurm_job", "%s", o->slurm_job);
	tell(facts, "account", "%s", o->account);
	tell(facts, "pod", "%s", o->pod);
	tell(facts, "pod_uid", "%s", o->pod_uid);
	tell(facts, "namespace", "%s", o->pod_namespace);
}

static void tell_used(struct job_facts *facts, const struct job_events *events, const struct job *job)
{
	struct usage_amounts n = amounts_of(events, job);

	tell(facts, "seconds", "%.3f", (double)(clock_monotonic_ns() - job->begin_ns) / 1e9);
	tell(facts, "samples", "%" PRIu64, n.samples);
	tell(facts, "bytes", "%" PRIu64, n.bytes);
	tell(facts, "read_bytes", "%" PRIu64, n.read_bytes);
	tell(facts, "cpu_seconds", "%.3f", (double)n.cpu_ns / 1e9);
	tell(facts, "node_bytes", "%" PRIu64, n.node_bytes);
	tell(facts, "cache_gib_seconds", "%.3f", (double)n.cache_kib_s / 0x1p20);
	tell(facts, "wait_fetch_seconds", "%.3f", (double)n.wait_fetch_ns / 1e9);
	tell(facts, "wait_preprocess_seconds", "%.3f", (double)n.wait_prep_ns / 1e9);
}

/* Logs the start or end of a job. Limits the lines, because a client can begin as many jobs as it likes. */
static void write_event(const struct job_events *events, const struct job *job, bool begins)
{
	struct job_facts facts = {.n = 0};
	uint64_t left_out;

	if (!log_limit_take(server_lines_of(events->server, job->uid), clock_monotonic_ns(), &left_out))
		return;
	tell_whose(&facts, job);
	if (!begins)
		tell_used(&facts, events, job);
	if (left_out)
		tell(&facts, "lines_left_out", "%" PRIu64, left_out);
	log_event(begins ? "job_begin" : "job_end", begins ? "job begins:" : "job ends:", facts.fields,
		  facts.n);
}

static void on_count(uv_timer_t *timer)
{
	struct job_events *events = timer->data;

	serving_count_cache(&events->server->serving, clock_monotonic_ns());
	if (!events->server->serving.jobs.first)
		uv_timer_stop(timer);
}

static void on_begin(void *user, struct job *job)
{
	struct job_events *events = user;

	if (!uv_is_active((uv_handle_t *)&events->count) && !uv_is_closing((uv_handle_t *)&events->count))
		uv_timer_start(&events->count, on_count, COUNT_MS, COUNT_MS);

	events->inner.begin(events->inner.user, job); /* restores the job's number from before a restart */
	usage_add(&events->usage, job->uid, job->origin.account, job->origin.pod_namespace,
		  &(struct usage_amounts){.jobs = 1});
	write_event(events, job, true);
}

/* The job is no longer in the list of jobs. */
static void on_end(void *user, struct job *job)
{
	struct job_events *events = user;
	struct usage_amounts amounts = amounts_of(events, job);

	usage_add(&events->usage, job->uid, job->origin.account, job->origin.pod_namespace, &amounts);
	write_event(events, job, false);
	events->inner.end(events->inner.user, job);
}

void job_events_start(struct job_events *events, struct server *server)
{
	*events = (struct job_events){.inner = server->serving.jobs.handler, .server = server};
	server->serving.jobs.handler = (struct job_handler){.begin = on_begin, .end = on_end, .user = events};
	uv_timer_init(server->loop, &events->count);
	events->count.data = events;
	uv_unref((uv_handle_t *)&events->count);
}

void job_events_stop(struct job_events *events)
{
	uv_close((uv_handle_t *)&events->count, NULL);
}
