/* SPDX-License-Identifier: Apache-2.0 */
/* A job's figures, collected from its sessions and the pool. */
#include "serving.h"

#include "lib/clock.h"

void serving_job_counters(const struct serving *s, const struct job *job, struct job_counters *ret)
{
	uint64_t now_ns = clock_monotonic_ns();

	*ret = job->counters;
	ret->cpu_ns = pool_lane_cpu_ns(&job->lane);
	if (job->n_reading > 0)
		ret->reading_ns += now_ns - job->reading_since_ns;
	if (job->n_coming > 0)
		ret->coming_ns += now_ns - job->coming_since_ns;
	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->job == job)
			session_add_waits(q, now_ns, ret);
	}
}

bool serving_job_decodes(const struct serving *s, const struct job *job)
{
	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->job == job && q->codecs)
			return true;
	}
	return false;
}

uint32_t serving_job_client_workers(const struct serving *s, const struct job *job)
{
	uint32_t most = 0;

	/* Each session of the job reports all of its workers. */
	for (const struct session *q = s->sessions; q; q = q->next) {
		uint32_t said = q->job == job ? atomic_load(&q->control->work.n_workers) : 0;

		if (said > most)
			most = said;
	}
	return most;
}
