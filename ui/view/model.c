/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "ui/feed/feed.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "table.h"
#include "ui/state/sample.h"

/* Sorts processes below their parents. */

#define NO_ROW SIZE_MAX

/* The rows as a tree: indexes into the sorted table. */
struct job_tree {
	struct tree_pid {
		uint64_t pid;
		size_t row;
	} * pids;                /* sorted by pid */
	size_t *child, *sibling; /* child: the last child; sibling: the previous sibling */
	bool *is_root, *placed;
	size_t *open; /* stack of the rows to place next */
	size_t n;
};

static void tree_free(struct job_tree *tree)
{
	free(tree->pids);
	free(tree->child);
	free(tree->sibling);
	free(tree->is_root);
	free(tree->placed);
	free(tree->open);
}

static int tree_pid_compare(const void *left, const void *right)
{
	const struct tree_pid *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

/* Returns the first row of this process. */
static size_t row_of(const struct job_tree *tree, uint64_t pid)
{
	size_t at = sorted_count(tree->n, i, tree->pids[i].pid < pid);

	return at < tree->n && tree->pids[at].pid == pid ? tree->pids[at].row : NO_ROW;
}

static int tree_init(struct job_tree *tree, const void *const *workers, size_t n)
{
	*tree = (struct job_tree){.pids = calloc(n + 1, sizeof(*tree->pids)),
				  .child = calloc(n + 1, sizeof(*tree->child)),
				  .sibling = calloc(n + 1, sizeof(*tree->sibling)),
				  .is_root = calloc(n + 1, sizeof(*tree->is_root)),
				  .placed = calloc(n + 1, sizeof(*tree->placed)),
				  .open = calloc(n + 1, sizeof(*tree->open)),
				  .n = n};
	if (!tree->pids || !tree->child || !tree->sibling || !tree->is_root || !tree->placed || !tree->open)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		tree->pids[i] = (struct tree_pid){((const struct worker_sample *)workers[i])->pid, i};
		tree->child[i] = NO_ROW;
	}
	qsort(tree->pids, n, sizeof(*tree->pids), tree_pid_compare);
	for (size_t i = 0; i < n; i++) {
		size_t parent = row_of(tree, ((const struct worker_sample *)workers[i])->parent_pid);

		tree->is_root[i] = parent == NO_ROW || parent == i;
		if (tree->is_root[i])
			continue;
		tree->sibling[i] = tree->child[parent];
		tree->child[parent] = i;
	}
	return 0;
}

/* Places a root and all rows below it. depth_of[root] must be set. */
static void place(struct job_tree *tree, struct table *table, const void **ret_rows, size_t *n, int *depth_of,
		  size_t root)
{
	size_t n_open = 0;

	tree->open[n_open++] = root;
	tree->placed[root] = true;
	while (n_open) {
		size_t row = tree->open[--n_open];

		ret_rows[*n] = table->rows[row];
		table->depths[(*n)++] = depth_of[row];
		for (size_t child = tree->child[row]; child != NO_ROW; child = tree->sibling[child]) {
			if (tree->placed[child])
				continue;
			tree->placed[child] = true;
			depth_of[child] = depth_of[row] + 1;
			tree->open[n_open++] = child;
		}
	}
}

/* Sorts the rows of a table of worker samples, each below its parent, and fills in depths. Siblings keep
 * their order. -ENOMEM: the rows stay unchanged. */
static int tree_make(struct table *table)
{
	_cleanup_(tree_free) struct job_tree tree = {0};
	_cleanup_(freep) int *depth_of = calloc(table->n + 1, sizeof(*depth_of));
	const void **rows = calloc(table->n + 1, sizeof(*rows));
	size_t n = 0;

	table->depths = calloc(table->n + 1, sizeof(*table->depths));
	if (!rows || !table->depths || !depth_of || tree_init(&tree, table->rows, table->n) < 0) {
		free(rows);
		return -ENOMEM;
	}
	for (size_t i = 0; i < table->n; i++)
		if (tree.is_root[i])
			place(&tree, table, rows, &n, depth_of, i);
	for (size_t i = 0; i < table->n; i++)
		if (!tree.placed[i]) /* a row in a circle of parents, which data of a recording may have */
			place(&tree, table, rows, &n, depth_of, i);
	free(table->rows);
	table->rows = rows;
	return 0;
}

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

const struct table_columns *model_job_columns(const struct model *model)
{
	return model->is_fleet ? &columns_fleet : &columns_jobs;
}

void model_set_fleet(struct model *model)
{
	model->is_fleet = true;
	model_sort_by(model, VIEW_JOBS, "waited");
}

static const struct table_columns *columns_of(const struct model *model, enum view view)
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
	const struct table_columns *columns = columns_of(model, view);
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
static bool matches(const struct table_columns *columns, const void *item, const char *wanted)
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
	const struct table_columns *columns = columns_of(model, model->view);
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
