/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "columns.h"
#include "format.h"

static int draw_head(const struct job_sample *job, struct screen *screen, int y)
{
	char pid[FORMAT_BYTES], a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], d[FORMAT_BYTES];
	int begin = y;

	screen_print(screen, y++, 0, screen->cols, STYLE_BOLD, "%s  process %s of %s  %s%s%s", job->name,
		     format_count(pid, job->pid), job->user[0] ? job->user : "N/A",
		     job->verdict[0] ? job->verdict : job->state, job->method[0] ? ", by " : "", job->method);
	bar_draw(screen, y++, 0, screen->cols, job->share);
	bar_legend(screen, y++, 0, job->share);
	screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL,
		     "steps/s %s  p50 %s  p95 %s  wait/step %s  within +-%s %%",
		     format_rate(a, job->steps_per_s), format_seconds(b, job->step_p50_s),
		     format_seconds(c, job->step_p95_s), format_seconds(d, job->wait_mean_s),
		     format_percent(pid, job->share_error));
	if (isfinite(job->gpu_wait))
		screen_print(
		    screen, y++, 0, screen->cols, STYLE_NORMAL,
		    "of device %s waits for the GPU (%s on a core)  GPU without work at least %s  %s",
		    format_percent(a, job->gpu_wait), format_percent(b, job->gpu_spin),
		    format_percent(c, job->gpu_starved), job->gpu_call);
	screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL,
		     "loader %s  workers %s  processes %s  CPU %s %%  read %s/s",
		     job->loader[0] ? job->loader : "N/A", format_count(a, job->n_workers),
		     format_count(b, job->n_processes), format_percent(c, job->cpu_ratio),
		     format_bytes(d, job->read_bytes_per_s));
	screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL,
		     "cache %s of %s  prefetch %s  dieseld workers %s  ready %s",
		     format_bytes(a, job->cache_bytes), format_bytes(b, job->cache_limit_bytes),
		     format_count(c, job->prefetch_chunks), format_count(d, job->daemon_workers),
		     format_count(pid, job->n_ready));
	return y - begin;
}

static int draw_decision(const struct job_sample *job, struct screen *screen, int y, int rows)
{
	char text[640], age[FORMAT_BYTES];

	if (!job->decision[0])
		return view_text(screen, y, 0, rows, screen->cols, job->remark[0] ? STYLE_WARNING : STYLE_DIM,
				 job->remark[0] ? job->remark : "no decision of a tuner");
	snprintf(text, sizeof(text), "decision %s ago: %s: %s", format_seconds(age, job->decision_age_s),
		 job->decision, job->why);
	return view_text(screen, y, 0, rows, screen->cols, STYLE_NORMAL, text);
}

/* The chain of the last slow step's wait, its end first. */
static void draw_chain(const struct sample *sample, const char *job, struct screen *screen, int y, int rows)
{
	struct hop_sample *hops = calloc(sample->n_hops + 1, sizeof(*hops));
	size_t n = 0;

	if (!hops || rows < 2) {
		free(hops);
		return;
	}
	for (size_t i = 0; i < sample->n_hops; i++)
		if (!strcmp(sample->hops[i].job, job))
			hops[n++] = sample->hops[i];
	screen_text(screen, y++, 0, screen->cols, STYLE_BOLD,
		    n ? "the wait of the last slow step, from its end back to what held it up"
		      : "no wait of a slow step is known: it takes BPF and a step that waited");
	if (n)
		view_list(screen, y, rows - 1, &columns_hops, hops, n);
	free(hops);
}

void view_detail(struct model *model, struct screen *screen, int y, int rows)
{
	const struct job_sample *job = model_selected(model);
	int used;

	if (!job) {
		screen_text(screen, y, 0, screen->cols, STYLE_DIM, "the job is gone");
		return;
	}
	if (rows < 8)
		return;
	used = draw_head(job, screen, y);
	used += draw_decision(job, screen, y + used, 3) + 1;
	draw_chain(model->sample, job->id, screen, y + used, rows - used);
}
