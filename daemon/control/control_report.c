/* SPDX-License-Identifier: Apache-2.0 */
/* What this node tells people at other places of its jobs (diesel-top --nodes): short, and the worst first
 * where there is not room for all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/cached_dataset.h"
#include "control_private.h"
#include "json_text.h"
#include "lib/clock.h"
#include "daemon/serve/session.h"

#define MAX_JOBS   64
#define TEXT_BYTES 160

/* With room for the rest of the report. */
#define RESERVED 256

static json_t *short_text(const char *text)
{
	char cut[TEXT_BYTES];
	size_t n = strnlen(text, sizeof(cut));

	if (n == sizeof(cut)) /* between characters */
		for (n--; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
			n--;
	memcpy(cut, text, n);
	cut[n] = '\0';
	return json_text(cut);
}

static const struct session *newest_session(const struct control *c, const struct job *job)
{
	for (const struct session *s = c->serving->sessions; s; s = s->next)
		if (s->job == job)
			return s;
	return NULL;
}

static json_t *job_json(const struct control *c, const struct job *job)
{
	const struct control_job *known = control_find_job(c, job->id);
	const struct session *session = newest_session(c, job);
	const struct stall_sample *s = known && known->has_sample ? &known->sample : NULL;
	json_t *root = json_pack(
	    "{s:o, s:o, s:o, s:o, s:o, s:o}", "id", json_u64(job->id), "pid", json_u64((uint64_t)job->pid),
	    "uid", json_u64(job->uid), "name", short_text(job->name), "age_s",
	    json_real((double)(clock_monotonic_ns() - job->begin_ns) / 1e9), "job",
	    session && session->request.cluster[0] ? short_text(session->request.cluster) : json_null());

	json_object_set_new(root, "dataset", session ? short_text(session->dataset->path) : json_null());
	json_object_set_new(root, "measured_s", json_real(known ? known->measured_s : 0));
	json_object_set_new(root, "stall_s",
			    known && known->measured_s > 0 ? json_real(known->stall_s) : json_null());
	if (s) {
		json_object_set_new(root, "source", json_string(control_source_name(s->source)));
		json_object_set_new(root, "samples_per_s", json_known(s->samples_per_s));
		json_object_set_new(root, "steps_per_s", json_known(s->steps_per_s));
		json_object_set_new(root, "shares", control_shares_json(&s->shares));
	}
	return root;
}

static double stall_of(const struct control *c, const struct job *job)
{
	const struct control_job *known = control_find_job(c, job->id);

	return known ? known->stall_s : 0;
}

/* Those that waited the longest, in this order; `jobs` has room for MAX_JOBS. Returns how many there are in
 * all. */
static size_t worst_jobs(const struct control *c, const struct job **jobs, size_t *ret_n)
{
	size_t n = 0, n_all = 0;

	for (const struct job *j = c->serving->jobs.first; j; j = j->next, n_all++) {
		size_t at = n < MAX_JOBS ? n++ : MAX_JOBS;

		for (; at > 0 && stall_of(c, jobs[at - 1]) < stall_of(c, j); at--)
			if (at < MAX_JOBS)
				jobs[at] = jobs[at - 1];
		if (at < MAX_JOBS)
			jobs[at] = j;
	}
	*ret_n = n;
	return n_all;
}

char *control_report(const struct control *c, double uptime_s, size_t max_bytes)
{
	const struct job *jobs[MAX_JOBS];
	json_t *list = json_array(), *root;
	size_t n = 0, n_all = c->serving ? worst_jobs(c, jobs, &n) : 0, n_told = 0, bytes = RESERVED;
	char *text;

	for (; n_told < n; n_told++) {
		json_t *job = job_json(c, jobs[n_told]);

		text = json_dumps(job, JSON_COMPACT);
		bytes += text ? strlen(text) + 1 : max_bytes;
		free(text);
		if (bytes > max_bytes) {
			json_decref(job);
			break;
		}
		json_array_append_new(list, job);
	}
	root = json_pack("{s:s, s:s, s:o, s:o, s:o}", "schema", "diesel.node/1", "version", DIESEL_VERSION,
			 "uptime_s", json_real(uptime_s), "omitted", json_u64(n_all - n_told), "jobs", list);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}
