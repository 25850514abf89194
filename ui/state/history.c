/* SPDX-License-Identifier: Apache-2.0 */
#include "history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct history_series *find(const struct top_history *history, const char *job)
{
	for (size_t i = 0; i < history->n_series; i++)
		if (!strcmp(history->series[i]->job, job))
			return history->series[i];
	return NULL;
}

const struct history_series *history_find(const struct top_history *history, const char *job)
{
	return find(history, job);
}

static struct history_series *add(struct top_history *history, const char *job)
{
	struct history_series **grown =
	    reallocarray(history->series, history->n_series + 1, sizeof(struct history_series *));
	struct history_series *series = calloc(1, sizeof(*series));

	if (grown)
		history->series = grown;
	if (!grown || !series) {
		free(series);
		return NULL;
	}
	snprintf(series->job, sizeof(series->job), "%s", job);
	history->series[history->n_series++] = series;
	return series;
}

static void forget(struct top_history *history)
{
	size_t n_kept = 0;

	for (size_t i = 0; i < history->n_series; i++) {
		if (history->n_samples - history->series[i]->last_used > HISTORY_POINTS)
			free(history->series[i]);
		else
			history->series[n_kept++] = history->series[i];
	}
	history->n_series = n_kept;
}

int history_add(struct top_history *history, const struct top_sample *sample)
{
	history->n_samples++;
	for (size_t i = 0; i < sample->n_jobs; i++) {
		const struct job_sample *job = &sample->jobs[i];
		struct history_series *series = find(history, job->id);
		struct top_history_point *point;

		if (!strcmp(job->state, "exited"))
			continue;
		if (!series && !(series = add(history, job->id)))
			return -ENOMEM;
		series->last_used = history->n_samples;
		point = &series->points[series->n++ % HISTORY_POINTS];
		for (size_t k = 0; k < SHARE_COUNT; k++)
			point->share[k] = (float)job->share[k];
		point->steps_per_s = (float)job->steps_per_s;
	}
	forget(history);
	return 0;
}

void history_clear(struct top_history *history)
{
	for (size_t i = 0; i < history->n_series; i++)
		free(history->series[i]);
	free(history->series);
	*history = (struct top_history){0};
}

const struct top_history_point *history_point(const struct history_series *series, size_t ago)
{
	if (ago >= series->n || ago >= HISTORY_POINTS)
		return NULL;
	return &series->points[(series->n - 1 - ago) % HISTORY_POINTS];
}
