/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bar.h"
#include "format.h"

#define NAME_COLS     16
#define FIGURES_COLS  30
#define PLOT_ROWS_MIN 3
#define PLOT_ROWS_MAX 18
#define TEXT_ROWS_MAX 3
#define INTERVAL_COLS 20

/* Draws a job's line: its name, a stacked bar, steps per second and their times. */
static void draw_meter(struct screen *screen, int y, const struct job_sample *job, bool selected)
{
	char rate[FORMAT_BYTES], p50[FORMAT_BYTES], p95[FORMAT_BYTES];
	int bar = screen->cols - NAME_COLS - FIGURES_COLS - 2;

	screen_text(screen, y, 0, NAME_COLS, selected ? STYLE_BOLD : STYLE_NORMAL, job->name);
	bar_draw(screen, y, NAME_COLS + 1, bar, job->share);
	screen_print(screen, y, NAME_COLS + bar + 2, FIGURES_COLS, selected ? STYLE_BOLD : STYLE_NORMAL,
		     "%6s/s p50%6s p95%6s", format_rate(rate, job->steps_per_s),
		     format_seconds(p50, job->step_p50_s), format_seconds(p95, job->step_p95_s));
}

/* Draws n jobs from the top of the table, the selected one among them. */
static void draw_meters(struct model *model, struct screen *screen, int y, int n)
{
	struct table table;
	size_t shown;

	if (model_table(model, &table))
		return;
	for (int i = 0; i < n && i < (int)table.n; i++) {
		shown = (size_t)i;
		if (i == n - 1 && table.cursor >= (size_t)n)
			shown = table.cursor;
		draw_meter(screen, y + i, table.rows[shown], shown == table.cursor);
	}
	model_table_free(&table);
}

static void draw_plot(const struct model *model, struct screen *screen, int y, int rows)
{
	const struct job_sample *job = model_selected(model);
	const struct history_series *series = history_find(&model->history, model->selected);
	char interval[FORMAT_BYTES];
	int x = NAME_COLS + 1;

	screen_text(screen, y, 0, NAME_COLS, STYLE_BOLD, job ? job->name : "");
	if (x + bar_legend_cols() <= screen->cols) {
		bar_legend(screen, y, x, NULL);
		x += bar_legend_cols() + 2;
	}
	if (screen->cols - x >= INTERVAL_COLS)
		screen_print(screen, y, x, screen->cols - x, STYLE_DIM, "a column every %s",
			     format_seconds(interval, model->interval_s));
	screen_text(screen, y + 1, 0, 4, STYLE_DIM, "100%");
	screen_text(screen, y + rows - 1, 0, 4, STYLE_DIM, "  0%");
	bar_plot(screen, y + 1, 5, rows - 1, screen->cols - 5, series);
}

/* Draws the tuner's last action for the selected job and its reason, or why the job's shares are not known.
 * Returns the lines used. */
static int draw_decision(const struct model *model, struct screen *screen, int y, int rows)
{
	const struct job_sample *job = model_selected(model);
	char age[FORMAT_BYTES], text[sizeof(job->served.decision) + sizeof(job->served.why) + 128];
	enum style style = STYLE_NORMAL;

	if (!job)
		return 0;
	if (isfinite(job->ended_s)) {
		style = STYLE_DIM;
		snprintf(text, sizeof(text), "%.60s: exited %s ago", job->name,
			 format_seconds(age, job->ended_s));
	} else if (job->served.decision[0]) {
		snprintf(text, sizeof(text), "%.60s: decision %s ago: %s: %s", job->name,
			 format_seconds(age, job->served.decision_age_s), job->served.decision,
			 job->served.why);
	} else if (job->remark[0]) {
		style = STYLE_WARNING;
		snprintf(text, sizeof(text), "%.60s: %s", job->name, job->remark);
	} else {
		style = STYLE_DIM;
		snprintf(text, sizeof(text), "%.60s: %s%sno decision of a tuner", job->name, job->verdict,
			 job->verdict[0] ? ", " : "");
	}
	if (rows > 1)
		return view_text(screen, y, 0, rows, screen->cols, style, text);
	screen_text(screen, y, 0, screen->cols, style, text);
	return 1;
}

/* Returns the rows of the plot: those that the table does not need. */
static int plot_rows(int rows, int n_jobs)
{
	int plot = rows - n_jobs - 1 - TEXT_ROWS_MAX;

	if (plot < rows / 3)
		plot = rows / 3;
	if (plot > PLOT_ROWS_MAX)
		plot = PLOT_ROWS_MAX;
	return plot < PLOT_ROWS_MIN || rows - plot - 1 < 3 ? 0 : plot;
}

void view_jobs(struct model *model, struct screen *screen, int y, int rows)
{
	int n_jobs = (int)model->sample->n_jobs;
	int meters = rows / 5 < 1 ? 1 : rows / 5;
	int plot, used = 0;

	if (meters > n_jobs)
		meters = n_jobs;
	draw_meters(model, screen, y, meters);
	y += meters;
	rows -= meters;
	plot = n_jobs ? plot_rows(rows, n_jobs) : 0;
	if (plot)
		draw_plot(model, screen, y, plot);
	y += plot;
	rows -= plot;
	if (n_jobs && rows > 3)
		used = draw_decision(model, screen, y,
				     rows - n_jobs - 1 > TEXT_ROWS_MAX ? TEXT_ROWS_MAX
				     : rows - n_jobs - 1 > 1           ? rows - n_jobs - 1
								       : 1);
	view_table(
	    model, screen, y + used, rows - used,
	    "no training job: no process here has loaded PyTorch or libdiesel (give -p PID to name one)");
}
