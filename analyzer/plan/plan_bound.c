/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/plan.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/library.h"
#include "plan_options.h"

/* COIN-OR's solver of linear programmes. It is loaded when needed, and not linked, because few users of the
 * program need it, and it brings a BLAS with it. */
#define LIBRARY "libClp.so.1"

#define CLP_OPTIMAL  0
#define CLP_MAXIMIZE (-1.0)

/* The part of Clp_C_Interface.h that is used. CoinBigIndex is int, as Clp is packaged. */
struct clp {
	void *(*new_model)(void);
	void (*delete_model)(void *model);
	void (*set_log_level)(void *model, int level);
	void (*set_direction)(void *model, double value);
	void (*load)(void *model, int n_columns, int n_rows, const int *start, const int *row,
		     const double *value, const double *column_low, const double *column_high,
		     const double *objective, const double *row_low, const double *row_high);
	int (*solve)(void *model);
	int (*status)(void *model);
	double (*objective_value)(void *model);
};

static int clp_load(struct clp *clp, struct error *err)
{
	const struct library_function functions[] = {
	    {"Clp_newModel", &clp->new_model, true},
	    {"Clp_deleteModel", &clp->delete_model, true},
	    {"Clp_setLogLevel", &clp->set_log_level, true},
	    {"Clp_setOptimizationDirection", &clp->set_direction, true},
	    {"Clp_loadProblem", &clp->load, true},
	    {"Clp_initialSolve", &clp->solve, true},
	    {"Clp_status", &clp->status, true},
	    {"Clp_objectiveValue", &clp->objective_value, true},
	};

	return library_load(LIBRARY, "coinor-libclp1", functions, sizeof(functions) / sizeof(functions[0]),
			    err);
}

/*
 * One column per job, kind of nodes and option: the part of the job that runs so, 0 to 1. Rows: the parts of
 * each job sum to 1; each kind's accelerators, cores and memory suffice.
 */
#define ENTRIES       4 /* of a column */
#define ROWS_PER_KIND 3

struct programme {
	int n_columns, n_rows;
	int *start, *row;
	double *value, *column_high, *objective, *row_low, *row_high;
};

static void programme_free(struct programme *lp)
{
	free(lp->start);
	free(lp->row);
	free(lp->value);
	free(lp->column_high);
	free(lp->objective);
	free(lp->row_low);
	free(lp->row_high);
}

static int programme_init(struct programme *lp, const struct plan_table *table)
{
	size_t n = 0, n_rows = table->n_jobs + ROWS_PER_KIND * table->cluster->n_kinds;

	for (size_t i = 0; i < table->n_jobs * table->cluster->n_kinds; i++)
		n += table->options[i].n;
	lp->n_rows = (int)n_rows;
	lp->start = calloc(n + 1, sizeof(*lp->start));
	lp->row = calloc(ENTRIES * n + 1, sizeof(*lp->row));
	lp->value = calloc(ENTRIES * n + 1, sizeof(*lp->value));
	lp->column_high = calloc(n + 1, sizeof(*lp->column_high));
	lp->objective = calloc(n + 1, sizeof(*lp->objective));
	lp->row_low = calloc(n_rows, sizeof(*lp->row_low));
	lp->row_high = calloc(n_rows, sizeof(*lp->row_high));
	return lp->start && lp->row && lp->value && lp->column_high && lp->objective && lp->row_low &&
		       lp->row_high
		   ? 0
		   : -ENOMEM;
}

static void rows_set(struct programme *lp, const struct plan_table *table, const struct plan *plan)
{
	for (size_t job = 0; job < table->n_jobs; job++)
		lp->row_low[job] = lp->row_high[job] = plan->shares[job].node != PLAN_WAITS;
	for (size_t kind = 0; kind < table->cluster->n_kinds; kind++) {
		const struct plan_nodes *nodes = &table->cluster->kinds[kind];
		size_t row = table->n_jobs + ROWS_PER_KIND * kind;

		for (size_t i = 0; i < ROWS_PER_KIND; i++)
			lp->row_low[row + i] = -INFINITY;
		/* In parts of all nodes of the kind, so that cores and bytes have the same scale. */
		lp->row_high[row] = (double)nodes->accelerators * nodes->n;
		lp->row_high[row + 1] = lp->row_high[row + 2] = nodes->n;
	}
}

static void column_add(struct programme *lp, const struct plan_table *table, size_t job, size_t kind,
		       const struct plan_option *option)
{
	const struct plan_nodes *nodes = &table->cluster->kinds[kind];
	int row = (int)(table->n_jobs + ROWS_PER_KIND * kind), at = lp->start[lp->n_columns];
	const int rows[ENTRIES] = {(int)job, row, row + 1, row + 2};
	const struct plan_shape shape = plan_shape_of(nodes, &table->jobs[job]);
	/* Nobody else can use what is left of a node without accelerators. */
	bool alone = shape.home == nodes->accelerators;
	double further = shape.n_further;
	const double values[ENTRIES] = {1, table->jobs[job].accelerators,
					further + (alone ? 1 : option->cores / nodes->cores),
					further + (alone ? 1 : option->memory_bytes / nodes->memory_bytes)};

	for (int i = 0; i < ENTRIES; i++) {
		lp->row[at + i] = rows[i];
		lp->value[at + i] = values[i];
	}
	lp->column_high[lp->n_columns] = 1;
	lp->objective[lp->n_columns] = option->relative;
	lp->start[++lp->n_columns] = at + ENTRIES;
}

static int solve(const struct clp *clp, const struct programme *lp, double *ret_total, struct error *err)
{
	double *zeros = calloc((size_t)lp->n_columns + 1, sizeof(*zeros));
	void *model = zeros ? clp->new_model() : NULL;
	int r = 0;

	if (!model) {
		free(zeros);
		return error_set(err, -ENOMEM, "out of memory");
	}
	clp->set_log_level(model, 0);
	clp->load(model, lp->n_columns, lp->n_rows, lp->start, lp->row, lp->value, zeros, lp->column_high,
		  lp->objective, lp->row_low, lp->row_high);
	clp->set_direction(model, CLP_MAXIMIZE);
	clp->solve(model);
	if (clp->status(model) == CLP_OPTIMAL)
		*ret_total = clp->objective_value(model);
	else
		r = error_set(err, -EIO, LIBRARY " found no optimum (status %d)", clp->status(model));
	clp->delete_model(model);
	free(zeros);
	return r;
}

int plan_bound(const struct plan_cluster *cluster, const struct plan_job *jobs, size_t n_jobs,
	       const struct plan *plan, double *ret_total, struct error *err)
{
	_cleanup_(programme_free) struct programme lp = {0};
	struct clp clp;
	struct plan_table table;
	int r = clp_load(&clp, err);

	if (r < 0)
		return r;
	r = plan_table_make(cluster, jobs, n_jobs, &table);
	if (r < 0)
		return error_set(err, r, "out of memory");
	r = programme_init(&lp, &table);
	if (r == 0) {
		rows_set(&lp, &table, plan);
		for (size_t job = 0; job < n_jobs; job++)
			for (size_t kind = 0; kind < cluster->n_kinds; kind++) {
				if (!plan_nodes_of(cluster, kind, &jobs[job]))
					continue;
				for (size_t i = 0; i < table.options[job * cluster->n_kinds + kind].n; i++)
					column_add(&lp, &table, job, kind,
						   &table.options[job * cluster->n_kinds + kind].items[i]);
			}
		r = solve(&clp, &lp, ret_total, err);
	} else {
		error_set(err, r, "out of memory");
	}
	plan_table_free(&table);
	return r;
}
