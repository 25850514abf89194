/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"
#include "analyzer/analysis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRAGGLER_RATIO 0.05 /* minimum excess of others' wait ratio over the straggler's; less is chance */

/* Finds the thread with the most steps in each process that trains. A process with less than half the steps
 * of the busiest does something else (an evaluation with gradients, a warm-up). */
static size_t trainers_find(const struct timeline *timeline, const struct timeline_thread **trainers)
{
	size_t n = 0, n_steps_best = 0, n_kept = 0;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		size_t k = 0;

		if (!thread->n_steps)
			continue;
		if (thread->n_steps > n_steps_best)
			n_steps_best = thread->n_steps;
		while (k < n && !timeline_same_process(trainers[k], thread))
			k++;
		if (k == n)
			trainers[n++] = thread;
		else if (thread->n_steps > trainers[k]->n_steps)
			trainers[k] = thread;
	}
	for (size_t k = 0; k < n; k++)
		if (2 * trainers[k]->n_steps >= n_steps_best)
			trainers[n_kept++] = trainers[k];
	return n_kept;
}

static double collective_ratio(const struct measurement *m)
{
	return m->window.observed_ns ? (double)m->collective_ns / (double)m->window.observed_ns : 0;
}

static void shown_choose(struct ranks *ranks)
{
	double sum = 0, least = 0;
	size_t straggler = 0, most_steps = 0;

	for (size_t i = 0; i < ranks->n; i++) {
		double ratio = collective_ratio(&ranks->items[i]);

		sum += ratio;
		if (!i || ratio < least) {
			least = ratio;
			straggler = i;
		}
		if (ranks->items[i].window.n_steps > ranks->items[most_steps].window.n_steps)
			most_steps = i;
	}
	ranks->shown = most_steps;
	if (ranks->n < 2)
		return;
	ranks->waits_ratio = (sum - least) / (double)(ranks->n - 1);
	ranks->straggles = ranks->waits_ratio - least > STRAGGLER_RATIO;
	if (ranks->straggles)
		ranks->shown = straggler;
}

int ranks_measure(const struct timeline *timeline, const struct analysis_input *input, struct ranks *ranks)
{
	uint32_t trainer_tid = input->trainer_tid, n_cpus = input->n_cpus;
	const struct timeline_thread **trainers = calloc(timeline->n_threads + 1, sizeof(*trainers));
	size_t n = trainers ? trainers_find(timeline, trainers) : 0;
	int r = 0;

	*ranks = (struct ranks){.n = n && !trainer_tid ? n : 1};
	ranks->items = calloc(ranks->n, sizeof(*ranks->items));
	if (!trainers || !ranks->items) {
		free(trainers);
		return -ENOMEM;
	}
	if (n > 1 && n_cpus)
		n_cpus = n_cpus < n ? 1 : n_cpus / (uint32_t)n;
	for (size_t i = 0; r == 0 && i < ranks->n; i++)
		r = measure(timeline, input, n && !trainer_tid ? trainers[i]->tid : trainer_tid, n_cpus,
			    n > 1 || input->several, &ranks->items[i]);
	free(trainers);
	if (r == 0)
		shown_choose(ranks);
	return r;
}

void ranks_free(struct ranks *ranks)
{
	for (size_t i = 0; ranks->items && i < ranks->n; i++)
		measurement_free(&ranks->items[i]);
	free(ranks->items);
	*ranks = (struct ranks){0};
}

int ranks_fill(const struct ranks *ranks, bool several, struct analysis *analysis)
{
	if ((ranks->n < 2 && !several) || !ranks->items[0].roles.trainer)
		return 0;
	analysis->ranks = calloc(ranks->n, sizeof(*analysis->ranks));
	if (!analysis->ranks)
		return -ENOMEM;
	analysis->n_ranks = ranks->n;
	for (size_t i = 0; i < ranks->n; i++) {
		const struct measurement *m = &ranks->items[i];
		struct analysis_rank *rank = &analysis->ranks[i];

		*rank = (struct analysis_rank){.tgid = m->roles.trainer->tgid,
					       .tid = m->roles.trainer->tid,
					       .window_ns = m->window.observed_ns,
					       .collective_ns = m->collective_ns,
					       .n_steps = m->window.n_steps,
					       .straggler = ranks->straggles && i == ranks->shown};
		memcpy(rank->share_ns, m->share_ns, sizeof(rank->share_ns));
	}
	return 0;
}

void ranks_note(const struct ranks *ranks, struct analysis *analysis)
{
	char text[160], rest[sizeof(analysis->note)];

	if (ranks->n < 2)
		return;
	if (ranks->straggles)
		snprintf(text, sizeof(text),
			 "%zu ranks; this report shows process %u, the straggler, for which the others wait "
			 "%.0f %% of their time",
			 ranks->n, analysis->job.trainer_tgid, 100 * ranks->waits_ratio);
	else
		snprintf(text, sizeof(text),
			 "%zu ranks, and none holds up the others; this report shows process %u", ranks->n,
			 analysis->job.trainer_tgid);
	/* The note names the shown rank first, because the rest is about this rank. */
	snprintf(rest, sizeof(rest), "%s", analysis->note);
	snprintf(analysis->note, sizeof(analysis->note), "%s", text);
	if (rest[0] && strlen(text) + 2 + strlen(rest) < sizeof(analysis->note))
		snprintf(analysis->note, sizeof(analysis->note), "%s; %s", text, rest);
}
