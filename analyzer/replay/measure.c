/* SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/roles/batches.h"
#include "analyzer/shares/checkpoint.h"
#include "analyzer/shares/collectives.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "analyzer/roles/roles_feeders.h"
#include "analyzer/waits/waits_seen.h"

#define SEEN_BY_CALLS 0.8 /* minimum fraction of the time in stack samples that calls must show */
#define DEVIATIONS    2   /* of a number of samples: a difference below is chance */
#define SAMPLES_MIN   20  /* minimum samples of the stack: fewer do not represent the rest */

static int times_find(struct measurement *m)
{
	const struct timeline_thread *trainer = m->roles.trainer;

	m->times = trainer->steps;
	m->n_times = trainer->n_steps;
	m->counted = m->roles.step_mark ? COUNTED_BATCHES : COUNTED_BACKWARD;
	if (!m->roles.step_mark)
		return 0;
	m->mark_times = calloc(trainer->n_marks + 1, sizeof(*m->mark_times));
	if (!m->mark_times)
		return -ENOMEM;
	m->times = m->mark_times;
	if (m->roles.step_mark == MARK_BATCH_END)
		return batches_times(m->timeline, &m->roles, m->mark_times, &m->n_times);
	m->n_times = 0;
	for (size_t i = 0; i < trainer->n_marks; i++)
		if (trainer->marks[i].kind == MARK_NEXT_END)
			m->mark_times[m->n_times++] = trainer->marks[i].at_ns;
	return 0;
}

/* Counts each wait as a step, because it is for a batch, if only the trainer's loading shows steps. */
static int times_of_waits(struct measurement *m)
{
	m->counted = COUNTED_WAITS;
	free(m->mark_times);
	m->mark_times = calloc(m->waits.n + 1, sizeof(*m->mark_times));
	if (!m->mark_times)
		return -ENOMEM;
	m->times = m->mark_times;
	if (m->waits.loader == LOADER_THREADS) {
		m->n_times = data_waits_handovers(&m->waits, m->mark_times);
		return 0;
	}
	for (size_t i = 0; i < m->waits.n; i++)
		m->mark_times[i] = m->waits.items[i].end_ns;
	m->n_times = m->waits.n;
	return 0;
}

/* Counts each burst of launches for which the trainer then waits as a step, if only the device shows
 * steps. */
static int times_of_launches(struct measurement *m)
{
	const struct timeline_thread *trainer = m->roles.trainer;
	uint64_t n_launches = 0;

	m->counted = COUNTED_LAUNCHES;
	free(m->mark_times);
	m->mark_times = calloc(trainer->n_gpu_waits + 1, sizeof(*m->mark_times));
	if (!m->mark_times)
		return -ENOMEM;
	m->times = m->mark_times;
	for (size_t i = 0; i < trainer->n_gpu_waits; i++) {
		if (trainer->gpu_waits[i].n_launches <= n_launches)
			continue;
		n_launches = trainer->gpu_waits[i].n_launches;
		m->mark_times[m->n_times++] = trainer->gpu_waits[i].end_ns;
	}
	return 0;
}

static struct checkpoint_input checkpoint_input(const struct measurement *m)
{
	return (struct checkpoint_input){
	    .steps = m->times, .n_steps = m->n_times, .samples = &m->samples, .compiling = &m->compiling};
}

/* Finds checkpoints by write calls and by samples of the stack. */
static int checkpoints_collect(struct measurement *m)
{
	const struct checkpoint_input from = checkpoint_input(m);
	int r = 0;

	m->saves = calloc(m->timeline->n_threads + 1, sizeof(*m->saves));
	if (!m->saves)
		return -ENOMEM;
	for (size_t i = 0; i < m->timeline->n_threads; i++) {
		bool trains = m->roles.of[i] == ROLE_TRAINER;
		struct interval_list *list = trains ? &m->checkpoints : &m->helper_checkpoints;
		size_t n_before = list->n;

		if (!trains && m->roles.of[i] != ROLE_HELPER)
			continue;
		r = checkpoints_find(&from, &m->timeline->threads[i], !trains, list);
		if (r < 0)
			return r;
		m->saves[i] = !trains && list->n > n_before;
	}
	interval_list_tidy(&m->checkpoints);
	interval_list_tidy(&m->helper_checkpoints);
	r = checkpoints_of_children(&from, m->timeline, &m->roles, m->saves, &m->child_checkpoints);
	if (r == 0)
		checkpoint_savers_add(m->timeline, &m->roles,
				      &(struct saves_found){&m->helper_checkpoints, &m->child_checkpoints},
				      m->saves);
	return r;
}

/* Finds the work that stack samples show, and the checkpoints. */
static int works_find(struct measurement *m, const struct analysis_input *input)
{
	int r = stack_samples_find(m->timeline, input, &m->samples);

	if (r == 0)
		r = compiling_find(m->timeline, &m->roles, &m->samples, m->times, m->n_times, &m->compiling);
	return r == 0 ? checkpoints_collect(m) : r;
}

static uint64_t waits_from(const struct data_waits *waits, uint64_t begin_ns)
{
	uint64_t sum_ns = 0;

	for (size_t i = data_waits_from(waits, begin_ns); i < waits->n; i++)
		sum_ns += waits->items[i].end_ns - waits->items[i].begin_ns;
	return sum_ns;
}

static bool in_wait(const struct data_waits *waits, uint64_t at_ns)
{
	size_t i = data_waits_from(waits, at_ns);

	return i < waits->n && waits->items[i].begin_ns <= at_ns;
}

/* Samples of the trainer's loading, from the first step on. */
struct loading_samples {
	size_t n, n_inside; /* n_inside: in waits that calls show */
};

static struct loading_samples loading_samples(const struct measurement *m, uint64_t first_ns)
{
	struct loading_samples count = {0};

	for (size_t i = 0; i < m->samples.n; i++) {
		const struct work_sample *sample = &m->samples.items[i];

		if (sample->thread != m->roles.trainer || sample->work != STACK_NEXT ||
		    sample->at_ns < first_ns)
			continue;
		count.n++;
		count.n_inside += in_wait(&m->waits, sample->at_ns);
	}
	return count;
}

/* A sample represents half a period on either side. If this overlaps a wait, the sample's time begins
 * after the wait. */
static void spans_leave_waits(const struct measurement *m, struct interval_list *spans)
{
	const struct timeline_thread *trainer = m->roles.trainer;

	for (size_t i = 0; i < spans->n; i++) {
		struct interval *span = &spans->items[i];
		size_t k = data_waits_from(&m->waits, span->begin_ns);
		size_t step = sorted_count(trainer->n_steps, s, trainer->steps[s] <= span->end_ns);
		uint64_t limit_ns = step < trainer->n_steps ? trainer->steps[step] : trainer->last_ns, by_ns;

		if (k == m->waits.n || m->waits.items[k].begin_ns > span->begin_ns ||
		    m->waits.items[k].end_ns >= span->end_ns)
			continue;
		by_ns = m->waits.items[k].end_ns - span->begin_ns;
		if (by_ns > m->samples.period_ns / 2)
			continue;
		span->begin_ns += by_ns;
		span->end_ns = span->end_ns + by_ns < limit_ns ? span->end_ns + by_ns : limit_ns;
	}
	interval_list_tidy(spans);
}

/* Returns true if calls show the loading as well as samples do. They do not if samples show more of it than
 * chance can, or if the trainer waits for helper threads, and then continues to prepare by itself: most
 * samples are outside of the waits then. */
static bool calls_show_it(const struct measurement *m, const struct interval_list *sampled)
{
	uint64_t first_ns = m->n_times ? m->times[0] : 0;
	const struct loading_samples count = loading_samples(m, first_ns);
	double chance_ns = DEVIATIONS * sqrt((double)count.n) * (double)m->samples.period_ns;

	return SEEN_BY_CALLS * ((double)interval_list_cover(sampled, first_ns, UINT64_MAX) - chance_ns) <
		   (double)waits_from(&m->waits, first_ns) &&
	       2 * count.n_inside >= count.n;
}

/* Appends waits that stack samples show. Ignores them if calls already show enough: calls have better edges,
 * and both together would be too wide. */
static int stacks_see(const struct measurement *m, struct interval_list *seen)
{
	_cleanup_(interval_list_free) struct interval_list list = {0};
	int r = waits_of_stacks(m->roles.trainer, &m->samples, &list);

	interval_list_tidy(&list);
	if (r < 0 || calls_show_it(m, &list))
		return r;
	spans_leave_waits(m, &list);
	return interval_list_append(seen, &list);
}

/* Adds the waits that the trainer's naps and stack samples show. */
static int waits_see(struct measurement *m, const struct interval_list *busy)
{
	_cleanup_(interval_list_free) struct interval_list seen = {0};
	int r = waits_of_polls(m->roles.trainer, &seen);
	bool polls = seen.n > 0;

	if (r == 0)
		r = stacks_see(m, &seen);
	m->waits_sampled = seen.n > 0;
	interval_list_tidy(&seen);
	if (r == 0)
		r = interval_list_subtract(&seen, busy);
	if (r == 0 && seen.n) {
		if (m->waits.loader == LOADER_NONE)
			m->waits.loader = polls ? LOADER_THREADS : LOADER_INLINE;
		r = waits_merge(&m->waits, &seen);
	}
	return r;
}

/* Finds the waits. Files that the trainer reads while it compiles or writes a checkpoint are not data. */
static int waits_find(struct measurement *m)
{
	struct interval_list busy = {0};
	int r = interval_list_append(&busy, &m->checkpoints);

	if (r == 0)
		r = interval_list_append(&busy, &m->compiling.trainer);
	interval_list_tidy(&busy);
	if (r == 0)
		r = roles_find_feeders(m->timeline, &m->samples, m->saves, &m->roles);
	if (r == 0)
		r = data_waits_find(m->timeline, &m->roles, &busy, &m->waits);
	if (r == 0 && !m->waits.marked && m->waits.loader != LOADER_WORKERS)
		r = waits_see(m, &busy);
	interval_list_free(&busy);
	return r;
}

static int collectives_take(struct measurement *m)
{
	_cleanup_(interval_list_free) struct interval_list collectives = {0};
	int r = collectives_find(m->timeline, &m->roles, &collectives);

	return r == 0 ? partition_collectives_take(&m->partition, &collectives) : r;
}

/* Returns the part of the trainer's samples on its CPU, outside of data waits, that show the model. */
static double computing_part(const struct measurement *m)
{
	size_t n = 0, n_computing = 0;

	for (size_t i = 0; i < m->samples.n; i++) {
		const struct work_sample *sample = &m->samples.items[i];

		if (sample->thread != m->roles.trainer || !sample->python || sample->work == STACK_CUT ||
		    sample->at_ns < m->window.begin_ns || sample->at_ns >= m->window.end_ns ||
		    in_wait(&m->waits, sample->at_ns))
			continue;
		n++;
		n_computing += sample->work == STACK_STEP || sample->work == STACK_MODEL ||
			       sample->work == STACK_COMPILE;
	}
	return n < SAMPLES_MIN ? NAN : (double)n_computing / (double)n;
}

static int naps_find(struct measurement *m)
{
	_cleanup_(interval_list_free) struct interval_list naps = {0}, waits = {0};
	const struct timeline_thread *trainer = m->roles.trainer;
	int r = data_waits_intervals(&m->waits, &waits);

	for (size_t i = 0; r == 0 && i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];
		const struct timeline_call *call =
		    off->state ? timeline_call_at(trainer, off->begin_ns) : NULL;

		if (call && call->kind == CALL_NAP)
			r = interval_list_add(&naps, off->begin_ns, off->waking_ns);
	}
	interval_list_tidy(&naps);
	if (r == 0)
		r = interval_list_subtract(&naps, &waits);
	for (size_t i = 0; r == 0 && i < m->window.n_steps; i++)
		m->asleep_ns +=
		    interval_list_cover(&naps, m->window.steps[i].begin_ns, m->window.steps[i].end_ns);
	return r;
}

/* Finds the trainer's activities outside of its waits, for the replay. All waits count as preparing for
 * now. */
static int rest_find(struct measurement *m, bool several)
{
	int r = partition_init(&m->partition, m->timeline, &m->roles, &m->waits, &m->compiling,
			       &m->checkpoints, &m->helper_checkpoints);

	if (r == 0 && several)
		r = collectives_take(m);
	if (r < 0)
		return r;
	m->partition.child_checkpoints = m->child_checkpoints;
	m->child_checkpoints = (struct interval_list){0};
	m->partition.saves = m->saves;
	m->split.fetch_ns = calloc(m->waits.n + 1, sizeof(*m->split.fetch_ns));
	if (!m->split.fetch_ns)
		return -ENOMEM;
	m->partition.fetch_ns = m->split.fetch_ns;
	m->partition.helped_ns = &m->helped_ns;
	for (size_t i = 0; i < m->window.n_steps; i++)
		partition_interval(&m->partition, m->window.steps[i].begin_ns, m->window.steps[i].end_ns,
				   m->window.steps[i].share_ns);
	m->partition.helped_ns = NULL;
	m->computing_part = computing_part(m);
	return naps_find(m);
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

/* Finds steps by waits or launches if nothing else shows steps, then the window that they form. */
static int window_make(struct measurement *m)
{
	int r = 0;

	if (!m->n_times)
		r = times_of_waits(m);
	if (r == 0 && !m->n_times)
		r = times_of_launches(m);
	if (r < 0)
		return r;
	data_waits_leave_gaps(&m->waits, &m->timeline->gaps);
	r = window_find(m->times, m->n_times, &m->waits, &m->checkpoints, m->roles.trainer, &m->window);
	if (r < 0)
		return r;
	window_leave_gaps(&m->window, &m->timeline->gaps);
	m->run = window_longest_run(&m->window);
	return 0;
}

struct study measurement_study(const struct measurement *m, const struct analysis_input *input)
{
	return (struct study){.input = input,
			      .timeline = m->timeline,
			      .roles = &m->roles,
			      .waits = &m->waits,
			      .window = &m->window,
			      .run = &m->run,
			      .service = &m->service,
			      .split = &m->split,
			      .partition = &m->partition,
			      .samples = &m->samples};
}

int measure(const struct timeline *timeline, const struct analysis_input *input, uint32_t trainer_tid,
	    uint32_t n_cpus, bool several, struct measurement *m)
{
	struct study study;
	int r;

	*m = (struct measurement){.timeline = timeline};
	r = roles_find(timeline, input->root_tgid, trainer_tid, &m->roles);
	if (r < 0 || !m->roles.trainer)
		return r;
	r = times_find(m);
	if (r == 0)
		r = works_find(m, input);
	if (r == 0)
		r = waits_find(m);
	if (r == 0)
		r = window_make(m);
	if (r == 0)
		r = rest_find(m, several);
	study = measurement_study(m, input);
	if (r == 0)
		r = service_extract(&study, n_cpus, &m->service);
	if (r == 0)
		r = split_waits(&study, &m->split);
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
	interval_list_free(&m->child_checkpoints);
	stack_samples_free(&m->samples);
	compiling_free(&m->compiling);
	free(m->saves);
	free(m->mark_times);
	roles_free(&m->roles);
	*m = (struct measurement){0};
}
