/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "ui/state/sample.h"

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

int tree_make(struct table *table)
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
