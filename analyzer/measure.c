/* SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <errno.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "collectives.h"
#include "page_cache.h"

static int times_find(struct measurement *m)
{
	const struct timeline_thread *trainer = m->roles.trainer;

	m->times = trainer->steps;
	m->n_times = trainer->n_steps;
	if (!m->roles.steps_are_marks)
		return 0;
	m->mark_times = calloc(trainer->n_marks + 1, sizeof(*m->mark_times));
	if (!m->mark_times)
		return -ENOMEM;
	m->n_times = 0;
	for (size_t i = 0; i < trainer->n_marks; i++)
		if (trainer->marks[i].kind == MARK_NEXT_END)
			m->mark_times[m->n_times++] = trainer->marks[i].at_ns;
	m->times = m->mark_times;
	return 0;
}

static int checkpoints_collect(struct measurement *m)
{
	for (size_t i = 0; i < m->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &m->timeline->threads[i];
		enum role role = (enum role)m->roles.of[i];
		int r = 0;

		if (role == ROLE_TRAINER)
			r = checkpoints_find(thread, false, m->times, m->n_times, &m->checkpoints);
		else if (role == ROLE_HELPER)
			r = checkpoints_find(thread, true, m->times, m->n_times, &m->helper_checkpoints);
		if (r < 0)
			return r;
	}
	interval_list_tidy(&m->checkpoints);
	interval_list_tidy(&m->helper_checkpoints);
	return 0;
}

/* With all waits as preparing: what the trainer did outside of them, which the replay needs. */
static int rest_find(struct measurement *m, bool several)
{
	int r = partition_init(&m->partition, m->timeline, &m->roles, &m->waits, &m->checkpoints,
			       &m->helper_checkpoints);

	if (r == 0 && several)
		r = collectives_find(m->timeline, &m->roles, &m->partition.collectives);
	if (r == 0)
		r = checkpoints_of_children(m->timeline, &m->roles, m->times, m->n_times,
					    &m->partition.child_checkpoints);
	if (r < 0)
		return r;
	m->split.fetch_ns = calloc(m->waits.n + 1, sizeof(*m->split.fetch_ns));
	if (!m->split.fetch_ns)
		return -ENOMEM;
	m->partition.fetch_ns = m->split.fetch_ns;
	for (size_t i = 0; i < m->window.n_steps; i++)
		partition_interval(&m->partition, m->window.steps[i].begin_ns, m->window.steps[i].end_ns,
				   m->window.steps[i].share_ns);
	return 0;
}

static void shares_find(struct measurement *m)
{
	for (size_t i = 0; i < m->window.n_steps; i++) {
		struct analysis_step *step = &m->window.steps[i];

		partition_fetch(&m->partition, step->begin_ns, step->end_ns, step->share_ns);
		m->gil_starved_ns += partition_gil_ns(&m->partition, step->begin_ns, step->end_ns);
		m->collective_ns += partition_collective_ns(&m->partition, step->begin_ns, step->end_ns);
		for (size_t k = 0; k < SHARE_COUNT; k++)
			m->share_ns[k] += step->share_ns[k];
	}
}

int measure(const struct timeline *timeline, const struct analysis_input *input, uint32_t trainer_tid,
	    uint32_t n_cpus, bool several, struct measurement *ret_measurement)
{
	struct measurement *m = ret_measurement;
	int r;

	*m = (struct measurement){.timeline = timeline};
	r = roles_find(timeline, input->root_tgid, trainer_tid, &m->roles);
	if (r < 0 || !m->roles.trainer)
		return r;
	r = times_find(m);
	if (r == 0)
		r = checkpoints_collect(m);
	if (r == 0)
		r = data_waits_find(timeline, &m->roles, &m->checkpoints, &m->waits);
	data_waits_leave_gaps(&m->waits, &timeline->gaps);
	if (r == 0)
		r = window_find(m->times, m->n_times, &m->waits, &m->checkpoints, m->roles.trainer,
				&m->window);
	window_leave_gaps(&m->window, &timeline->gaps);
	if (r == 0)
		r = rest_find(m, several);
	m->run = window_longest_run(&m->window);
	if (r == 0)
		r = service_extract(
		    &(struct service_input){.timeline = timeline,
					    .roles = &m->roles,
					    .waits = &m->waits,
					    .window = &m->run,
					    .partition = &m->partition,
					    .n_cpus = n_cpus,
					    .cold_bytes = page_cache_cold_bytes(input, &m->run)},
		    &m->service);
	if (r == 0)
		r = split_waits(timeline, &m->roles, &m->waits, &m->window, &m->run, &m->service, &m->split);
	if (r == 0)
		shares_find(m);
	return r;
}

void measurement_free(struct measurement *m)
{
	partition_free(&m->partition);
	split_free(&m->split);
	service_free(&m->service);
	window_free(&m->window);
	data_waits_free(&m->waits);
	interval_list_free(&m->checkpoints);
	interval_list_free(&m->helper_checkpoints);
	free(m->mark_times);
	roles_free(&m->roles);
	*m = (struct measurement){0};
}
