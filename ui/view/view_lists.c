/* SPDX-License-Identifier: Apache-2.0 */
/* The views that are tables: workers, files and devices, GPUs, the daemon. */
#include "views.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/diesel.h"
#include "columns.h"
#include "format.h"

#define WORDS_ROWS 4

void view_workers(struct model *model, struct screen *screen, int y, int rows)
{
	view_table(model, screen, y, rows,
		   model->sample->n_jobs ? "no process of any job can be observed"
					 : "no training job, so no workers");
}

void view_storage(struct model *model, struct screen *screen, int y, int rows)
{
	const struct top_sample *s = model->sample;
	int devices = (int)s->n_devices + 1;

	if (devices > rows / 2)
		devices = rows / 2;
	view_list(screen, y, devices, &columns_devices, s->devices, s->n_devices);
	y += devices + 1;
	rows -= devices + 1;
	view_table(model, screen, y, rows,
		   "file names are shown only with BPF and a single watched job (-p PID)");
}

static bool gpu_waits_known(const struct top_sample *sample)
{
	for (size_t i = 0; i < sample->n_jobs; i++)
		if (isfinite(sample->jobs[i].gpu_wait))
			return true;
	return false;
}

void view_gpu(struct model *model, struct screen *screen, int y, int rows)
{
	const struct top_sample *s = model->sample;
	int gpus = (int)s->n_gpus + 1;

	if (s->n_gpus) {
		if (gpus > rows / 2)
			gpus = rows / 2;
		view_list(screen, y, gpus, &columns_gpus, s->gpus, s->n_gpus);
	} else {
		screen_print(screen, y, 0, screen->cols, STYLE_DIM, "no GPU is known%s%s",
			     s->host.gpus[0] ? ": " : "", s->host.gpus);
		gpus = 1;
	}
	y += gpus + 1;
	rows -= gpus + 1;
	view_table(model, screen, y, rows, "no training job");
	if (rows > 6 && !gpu_waits_known(s) && s->n_jobs)
		screen_text(screen, y + rows - 1, 0, screen->cols, STYLE_DIM,
			    "GPU waits are shown only with BPF and a job that opened libcuda.so.1");
}

const char *view_daemon_place(const struct daemon_sample *d)
{
	return strcmp(d->state, "up") != 0 || !strcmp(d->socket, DIESEL_DEFAULT_SOCKET) ? "" : d->socket;
}

static int draw_daemon(const struct daemon_sample *d, struct screen *screen, int y)
{
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], e[FORMAT_BYTES], f[FORMAT_BYTES],
	    g[FORMAT_BYTES];
	char text[sizeof(d->tuner) + 16];
	int cols = screen->cols, begin = y;

	screen_print(screen, y++, 0, cols, STYLE_BOLD, "dieseld %s  process %s  up %s  %s", d->version,
		     format_count(a, d->pid), format_seconds(b, d->uptime_s), d->socket);
	screen_print(
	    screen, y++, 0, cols, STYLE_NORMAL,
	    "cache %s of %s, %s borrowed   prefetch %s chunks   %s workers   %s sessions   reads by %s",
	    format_bytes(a, d->cache_used_bytes), format_bytes(b, d->cache_budget_bytes),
	    format_bytes(g, d->cache_borrowed_bytes), format_count(c, d->prefetch_chunks),
	    format_count(e, d->workers), format_count(f, d->n_sessions), d->io[0] ? d->io : "N/A");
	screen_print(screen, y++, 0, cols, d->n_bad && d->n_bad != SAMPLE_UNKNOWN ? STYLE_BAD : STYLE_NORMAL,
		     "read %s (%s/s) in %s reads   evictions %s   damaged chunks %s",
		     format_bytes(a, d->read_bytes), format_bytes(b, d->read_bytes_per_s),
		     format_rate(c, d->reads), format_rate(e, d->evictions), format_count(f, d->n_bad));
	if (d->sensing[0]) {
		snprintf(text, sizeof(text), "sensing: %s", d->sensing);
		y += view_text(screen, y, 0, WORDS_ROWS, cols, STYLE_NORMAL, text);
	}
	if (d->tuner[0]) {
		snprintf(text, sizeof(text), "tuner: %s", d->tuner);
		y += view_text(screen, y, 0, WORDS_ROWS, cols, STYLE_NORMAL, text);
	}
	return y - begin;
}

/* Draws the full text of the decision under the cursor, which is cut in the columns. */
static void draw_words(struct model *model, struct screen *screen, int y, int rows)
{
	const struct decision_sample *d;
	char text[3 * SAMPLE_TEXT_BYTES], age[FORMAT_BYTES];
	struct table table;

	if (model_table(model, &table))
		return;
	if (table.cursor < table.n) {
		d = table.rows[table.cursor];
		snprintf(text, sizeof(text), "%s ago, %s: %s %s -> %s: %s%s%s", format_seconds(age, d->age_s),
			 d->job, d->knob, d->from, d->to, d->why, d->effect[0] ? "; effect: " : "",
			 d->effect);
		view_text(screen, y, 0, rows, screen->cols, STYLE_NORMAL, text);
	}
	model_table_free(&table);
}

void view_daemon(struct model *model, struct screen *screen, int y, int rows)
{
	const struct top_sample *s = model->sample;
	const struct daemon_sample *d = &s->daemon;
	int used, words, datasets = (int)s->n_datasets + 1;

	if (strcmp(d->state, "up")) {
		used = 1 + view_text(screen, y, 0, WORDS_ROWS, screen->cols, STYLE_WARNING,
				     d->problem[0] ? d->problem : "diesel-top did not ask dieseld");
		y += used;
		rows -= used;
	}
	if (d->version[0]) {
		used = draw_daemon(d, screen, y) + 1;
		y += used;
		rows -= used;
	}
	if (s->n_datasets) {
		if (datasets > rows / 2)
			datasets = rows / 2;
		view_list(screen, y, datasets, &columns_datasets, s->datasets, s->n_datasets);
		y += datasets + 1;
		rows -= datasets + 1;
	}
	words = rows > WORDS_ROWS + 5 && s->n_decisions ? WORDS_ROWS : 0;
	view_table(model, screen, y, rows - words, "no decision yet");
	if (words)
		draw_words(model, screen, y + rows - words, words);
}
