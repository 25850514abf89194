/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "ui/feed/feed.h"
#include "lib/cleanup.h"
#include "tree.h"

void model_init(struct model *model, struct charset charset, double interval_s)
{
	*model = (struct model){.charset = charset, .interval_s = interval_s};
	model_sort_by(model, VIEW_JOBS, "stall");
	model_sort_by(model, VIEW_WORKERS, "cpu");
	model_sort_by(model, VIEW_STORAGE, "cold");
	model_sort_by(model, VIEW_GPU, "gpu");
	model_sort_by(model, VIEW_DAEMON, "age");
	model->invert[VIEW_DAEMON] = true; /* shows the newest decisions first */
}

void model_destroy(struct model *model)
{
	sample_free(model->sample);
	history_clear(&model->history);
	model->sample = NULL;
}

/* Keeps jobs for a while after they disappear, and has them drawn dimmed. */
static int keep_exited(const struct top_sample *before, struct top_sample *now)
{
	double s = isfinite(now->interval_s) ? now->interval_s : now->time_s - before->time_s;

	for (size_t i = 0; i < before->n_jobs; i++) {
		const struct job_sample *gone = &before->jobs[i];
		double ended_s = isfinite(gone->ended_s) ? gone->ended_s + s : 0;
		struct job_sample *kept;

		if (sample_job(now, gone->id) || ended_s > MODEL_EXITED_S)
			continue;
		kept = sample_add(now, SAMPLE_JOBS);
		if (!kept)
			return -ENOMEM;
		*kept = *gone;
		snprintf(kept->state, sizeof(kept->state), "exited");
		kept->ended_s = ended_s;
	}
	return 0;
}

int model_take(struct model *model, struct top_sample *sample)
{
	struct top_sample *before = model->sample;
	int r = history_add(&model->history, sample);

	if (before && before->time_s <= sample->time_s)
		r = keep_exited(before, sample) ? -ENOMEM : r;
	model->sample = sample;
	if (sample->n_nodes && !model->is_fleet) /* the recording is of many nodes (--nodes) */
		model_set_fleet(model);
	sample_free(before);
	return r;
}

unsigned int model_wants(const struct model *model)
{
	unsigned int wants = model->overlay == OVERLAY_DETAIL ? FEED_WANT_HOPS | FEED_WANT_WORKERS : 0;

	if (model->is_recording)
		return FEED_WANT_ALL;
	if (model->view == VIEW_WORKERS)
		wants |= FEED_WANT_WORKERS;
	if (model->view == VIEW_STORAGE)
		wants |= FEED_WANT_DEVICES;
	if (model->view == VIEW_GPU)
		wants |= FEED_WANT_GPUS;
	if (model->view == VIEW_DAEMON)
		wants |= FEED_WANT_DECISIONS;
	if (model->threads)
		wants |= FEED_WANT_THREADS;
	return wants;
}

const struct columns *model_job_columns(const struct model *model)
{
	return model->is_fleet ? &columns_fleet : &columns_jobs;
}

void model_set_fleet(struct model *model)
{
	model->is_fleet = true;
	model_sort_by(model, VIEW_JOBS, "waited");
}

static const struct columns *columns_of(const struct model *model, enum view view)
{
	switch (view) {
	case VIEW_JOBS: return model_job_columns(model);
	case VIEW_WORKERS: return &columns_workers;
	case VIEW_STORAGE: return &columns_places;
	case VIEW_GPU: return &columns_gpu_jobs;
	case VIEW_DAEMON: return &columns_decisions;
	case VIEW_SELF:
	case VIEW_COUNT: break;
	}
	return NULL;
}

int model_sort_by(struct model *model, enum view view, const char *key)
{
	const struct columns *columns = columns_of(model, view);
	int column = columns ? columns_find(columns, key) : -1;

	if (column < 0)
		return -1;
	model->sort[view] = (size_t)column;
	return 0;
}

const struct job_sample *model_selected(const struct model *model)
{
	return model->sample && model->selected[0] ? sample_job(model->sample, model->selected) : NULL;
}

const char *model_item_job(enum view view, const void *item)
{
	switch (view) {
	case VIEW_JOBS:
	case VIEW_GPU: return ((const struct job_sample *)item)->id;
	case VIEW_WORKERS: return ((const struct worker_sample *)item)->job;
	case VIEW_STORAGE: return ((const struct place_sample *)item)->job;
	case VIEW_DAEMON: return ((const struct decision_sample *)item)->job;
	case VIEW_SELF:
	case VIEW_COUNT: break;
	}
	return "";
}

static bool contains(const char *text, const char *wanted)
{
	return strcasestr(text, wanted) != NULL;
}

/* Returns true if a text of the item contains `wanted`. */
static bool matches(const struct columns *columns, const void *item, const char *wanted)
{
	for (size_t i = 0; i < columns->n; i++) {
		char text[512];

		if (columns->items[i].kind != COLUMN_TEXT && columns->items[i].kind != COLUMN_COUNT)
			continue;
		column_text(&columns->items[i], item, text, sizeof(text));
		if (contains(text, wanted))
			return true;
	}
	return false;
}

static bool is_exited(const void *item)
{
	return !strcmp(((const struct job_sample *)item)->state, "exited");
}

static size_t list_of(const struct model *model, const char **ret_items)
{
	const struct top_sample *sample = model->sample;

	switch (model->view) {
	case VIEW_JOBS:
	case VIEW_GPU: *ret_items = (const char *)sample->jobs; return sample->n_jobs;
	case VIEW_WORKERS: *ret_items = (const char *)sample->workers; return sample->n_workers;
	case VIEW_STORAGE: *ret_items = (const char *)sample->places; return sample->n_places;
	case VIEW_DAEMON: *ret_items = (const char *)sample->decisions; return sample->n_decisions;
	case VIEW_SELF:
	case VIEW_COUNT: break;
	}
	return 0;
}

static bool shows_jobs(const struct model *model)
{
	return model->view == VIEW_JOBS || model->view == VIEW_GPU;
}

/* Sets the row of the cursor, which follows its job: jobs move as their values change. */
static void place_cursor(struct model *model, struct table *table)
{
	table->cursor = model->cursor[model->view];
	if (shows_jobs(model) && model->is_chosen)
		for (size_t i = 0; i < table->n; i++)
			if (!strcmp(model_item_job(VIEW_JOBS, table->rows[i]), model->selected))
				table->cursor = i;
	if (table->cursor >= table->n)
		table->cursor = table->n ? table->n - 1 : 0;
	model->cursor[model->view] = table->cursor;
	if (table->n)
		snprintf(model->selected, sizeof(model->selected), "%s",
			 model_item_job(model->view, table->rows[table->cursor]));
}

int model_table(struct model *model, struct table *ret_table)
{
	const struct columns *columns = columns_of(model, model->view);
	struct table table = {.columns = columns};
	const char *items = NULL;
	size_t n;

	if (!columns || !model->sample) {
		*ret_table = table;
		return 0;
	}
	n = list_of(model, &items);
	table.rows = calloc(n + 1, sizeof(*table.rows));
	if (!table.rows)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const void *item = items + i * columns->item_size;

		if (!model->filter[0] || matches(columns, item, model->filter))
			table.rows[table.n++] = item;
	}
	table.sort = model->sort[model->view];
	table.invert = model->invert[model->view];
	table.top = model->top[model->view];
	table.is_dim = shows_jobs(model) ? is_exited : NULL;
	table_sort(&table);
	if (model->view == VIEW_WORKERS && model->tree && tree_make(&table) < 0) {
		model_table_free(&table);
		return -ENOMEM;
	}
	place_cursor(model, &table);
	*ret_table = table;
	return 0;
}

void model_table_free(struct table *table)
{
	free(table->rows);
	free(table->depths);
	table->rows = NULL;
	table->depths = NULL;
}
