/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of what is read ahead for jobs that know nothing of dieseld. */
#include "control_private.h"
#include "json_text.h"

void control_assist(struct control *c, const struct assist *assist)
{
	c->assist = assist;
}

static json_t *job_json(const struct assist_job *j)
{
	const struct assist_figures *f = &j->figures;

	return json_pack("{s:o, s:o, s:o, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid",
			 json_u64((uint64_t)j->pid), "uid", json_u64(j->uid), "name", json_text(j->name),
			 "state", assist_job_state(j), "why", json_text(j->why), "charged_to_job",
			 j->charged != 0, "batches", json_u64(f->batches), "samples", json_u64(f->samples),
			 "known_samples", json_u64(f->known), "hits", json_u64(f->hits), "misses",
			 json_u64(f->misses), "files_read_ahead", json_u64(f->files), "bytes_read_ahead",
			 json_u64(f->bytes), "failed", json_u64(f->failed), "lost_records",
			 json_u64(j->lost));
}

json_t *control_assist_json(const struct control *c, const struct control_viewer *viewer)
{
	const struct assist_job *job;
	json_t *jobs;

	if (!c->assist)
		return json_null();
	jobs = json_array();
	for (uint32_t i = 0; (job = assist_job_at(c->assist, i)); i++)
		if (viewer->all || viewer->uid == job->uid)
			json_array_append_new(jobs, job_json(job));
	return json_pack("{s:o, s:o}", "problem",
			 *assist_problem(c->assist) ? json_text(assist_problem(c->assist)) : json_null(),
			 "jobs", jobs);
}
