/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "views.h"
#include "columns.h"
#include "client/diesel.h"
#include "bar.h"

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
static int draw_newest_decision(const struct model *model, struct screen *screen, int y, int rows)
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

static void view_jobs(struct model *model, struct screen *screen, int y, int rows)
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
		used = draw_newest_decision(model, screen, y,
					    rows - n_jobs - 1 > TEXT_ROWS_MAX ? TEXT_ROWS_MAX
					    : rows - n_jobs - 1 > 1           ? rows - n_jobs - 1
									      : 1);
	view_table(
	    model, screen, y + used, rows - used,
	    "no training job: no process here has loaded PyTorch or libdiesel (give -p PID to name one)");
}

#define SHORT_RATIO 0.01
#define TIER_ROWS   6 /* maximum number of rows */

static void draw_tier(struct screen *screen, int y, const char *name, double chunks_per_s, double bytes_per_s,
		      double latency_s)
{
	char chunks[FORMAT_BYTES], bytes[FORMAT_BYTES], mean[FORMAT_BYTES] = "";

	if (strcmp(name, "memory") != 0)
		format_seconds(mean, latency_s);
	screen_print(screen, y, 0, screen->cols, STYLE_NORMAL, "%-12s%10s%10s%10s", name,
		     format_rate(chunks, chunks_per_s), format_bytes(bytes, bytes_per_s), mean);
}

/* Draws the tiers that chunks come from, for a job on several nodes that share its dataset. */
static int draw_tiers(const struct job_sample *job, struct screen *screen, int y)
{
	char text[sizeof(job->served.troubled) + 64], reached[FORMAT_BYTES], all[FORMAT_BYTES];
	int begin = y;

	if (job->served.n_reached == SAMPLE_UNKNOWN)
		return 0;
	screen_print(screen, y++, 0, screen->cols, STYLE_DIM, "%-12s%10s%10s%10s", "from", "chunks/s",
		     "bytes/s", "a chunk");
	draw_tier(screen, y++, "memory", job->served.memory_chunks_per_s, job->served.memory_bytes_per_s,
		  NAN);
	draw_tier(screen, y++, "other nodes", job->served.node_chunks_per_s, job->served.node_bytes_per_s,
		  job->served.node_latency_s);
	draw_tier(screen, y++, "storage", job->served.storage_chunks_per_s, job->served.storage_bytes_per_s,
		  job->served.storage_latency_s);
	snprintf(text, sizeof(text), "%s of %s nodes reached%s%s",
		 format_count(reached, job->served.n_reached), format_count(all, job->served.n_members),
		 job->served.troubled[0] ? ": " : "", job->served.troubled);
	y += view_text(screen, y, 0, 2, screen->cols,
		       job->served.n_troubled && job->served.n_troubled != SAMPLE_UNKNOWN ? STYLE_WARNING
											  : STYLE_NORMAL,
		       text);
	return y - begin;
}

static int draw_checkpoints(const struct job_sample *job, struct screen *screen, int y)
{
	const struct served_sample *s = &job->served;
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], d[FORMAT_BYTES], e[FORMAT_BYTES],
	    f[FORMAT_BYTES];

	if (s->n_checkpoints == SAMPLE_UNKNOWN)
		return 0;
	screen_print(
	    screen, y, 0, screen->cols, s->n_checkpoints_failed ? STYLE_WARNING : STYLE_NORMAL,
	    "checkpoints %s  failed %s  each %s steps  cost %s%%  snapshot %s  newest on disk %s old",
	    format_count(a, s->n_checkpoints), format_count(b, s->n_checkpoints_failed),
	    format_count(c, s->checkpoint_steps), format_percent(d, s->checkpoint_overhead),
	    format_seconds(e, s->snapshot_s), format_seconds(f, s->checkpoint_age_s));
	return 1;
}

static int draw_head(const struct job_sample *job, struct screen *screen, int y)
{
	char pid[FORMAT_BYTES], a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], d[FORMAT_BYTES];
	bool is_exact = job->share_error == 0;
	int begin = y;

	screen_print(screen, y++, 0, screen->cols, STYLE_BOLD, "%s  process %s of %s  %s%s%s", job->name,
		     format_count(pid, job->pid), job->user[0] ? job->user : "N/A",
		     job->verdict[0] ? job->verdict : job->state, job->method[0] ? ", by " : "", job->method);
	bar_draw(screen, y++, 0, screen->cols, job->share);
	bar_legend(screen, y++, 0, job->share);
	screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL,
		     "steps/s %s  p50 %s  p95 %s  wait/step %s  shares %s%s%s",
		     format_rate(a, job->steps_per_s), format_seconds(b, job->step_p50_s),
		     format_seconds(c, job->step_p95_s), format_seconds(d, job->wait_mean_s),
		     is_exact ? "exact" : "within +-", is_exact ? "" : format_percent(pid, job->share_error),
		     is_exact ? "" : " %");
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
		     format_bytes(a, job->served.cache_bytes), format_bytes(b, job->served.cache_limit_bytes),
		     format_count(c, job->served.prefetch_chunks),
		     format_count(d, job->served.daemon_workers), format_count(pid, job->served.n_ready));
	if (job->served.n_decoded != SAMPLE_UNKNOWN)
		screen_print(
		    screen, y++, 0, screen->cols, job->served.n_damaged ? STYLE_WARNING : STYLE_NORMAL,
		    "decoded by dieseld %s  damaged %s  CPU %s  decoders replaced %s",
		    format_count(a, job->served.n_decoded), format_count(b, job->served.n_damaged),
		    format_seconds(c, job->served.decoder_cpu_s), format_count(d, job->served.n_replaced));
	if (job->served.n_decoded_copies != SAMPLE_UNKNOWN && job->served.n_decoded_copies > 0)
		screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL,
			     "decoded copies kept %s of %s samples  used %s times",
			     format_bytes(a, job->served.decoded_bytes),
			     format_count(b, job->served.n_decoded_copies),
			     format_count(c, job->served.n_from_decoded_copies));
	if (job->served.n_shared != SAMPLE_UNKNOWN && job->served.n_shared > 0)
		screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL,
			     "batches %s  decoded for another session %s  newest of these by job %s",
			     format_count(a, job->served.n_batches), format_count(b, job->served.n_shared),
			     format_count(c, job->served.shared_from));
	y += draw_checkpoints(job, screen, y);
	return y - begin;
}

static int draw_decision(const struct job_sample *job, struct screen *screen, int y, int rows)
{
	char text[sizeof(job->served.decision) + sizeof(job->served.why) + 64], age[FORMAT_BYTES];

	if (!job->served.decision[0])
		return view_text(screen, y, 0, rows, screen->cols, job->remark[0] ? STYLE_WARNING : STYLE_DIM,
				 job->remark[0] ? job->remark : "the tuner has not decided anything yet");
	snprintf(text, sizeof(text), "decision %s ago: %s: %s",
		 format_seconds(age, job->served.decision_age_s), job->served.decision, job->served.why);
	return view_text(screen, y, 0, rows, screen->cols, STYLE_NORMAL, text);
}

/* Writes the job's hops to `to`, and returns their number. Consecutive hops that are each shorter than a
 * hundredth of the wait become one, so that short hand-overs do not hide the cause of the delay. */
static size_t chain_collect(const struct top_sample *sample, const char *job, struct hop_sample *to)
{
	double total_s = 0;
	size_t n = 0, run = 0;

	for (size_t i = 0; i < sample->n_hops; i++)
		if (!strcmp(sample->hops[i].job, job))
			total_s = fmax(total_s, sample->hops[i].begin_s + sample->hops[i].length_s);
	for (size_t i = 0; i < sample->n_hops; i++) {
		const struct hop_sample *hop = &sample->hops[i];
		bool is_short = hop->length_s < SHORT_RATIO * total_s;

		if (strcmp(hop->job, job))
			continue;
		run = is_short ? run + 1 : 0;
		if (run < 2) {
			to[n++] = *hop;
			continue;
		}
		to[n - 1].begin_s = fmin(to[n - 1].begin_s, hop->begin_s);
		to[n - 1].length_s += hop->length_s;
		to[n - 1].tid = SAMPLE_UNKNOWN;
		memcpy(to[n - 1].edge, hop->edge, sizeof(hop->edge));
		snprintf(to[n - 1].role, sizeof(to[n - 1].role), "%zu short pieces", run);
		snprintf(to[n - 1].what, sizeof(to[n - 1].what), "handing over, waiting for cores");
	}
	return n;
}

/* Draws the chain of the last slow step's wait, its end first. Keys scroll it. */
static void draw_chain(struct model *model, const char *job, struct screen *screen, int y, int rows)
{
	struct hop_sample *hops = calloc(model->sample->n_hops + 1, sizeof(*hops));
	size_t n, space;

	if (!hops || rows < 3) {
		free(hops);
		return;
	}
	n = chain_collect(model->sample, job, hops);
	space = (size_t)rows - 2;
	if (model->overlay_top + space > n)
		model->overlay_top = n > space ? n - space : 0;
	model->page = space;
	screen_text(screen, y++, 0, screen->cols, STYLE_BOLD,
		    n ? "the wait of the last slow step, from its end back to its cause"
		      : "no wait of a slow step was recorded: this needs BPF and a step that waited");
	if (n)
		view_list(screen, y, rows - 1, &columns_hops, hops + model->overlay_top,
			  n - model->overlay_top);
	free(hops);
}

static void view_detail(struct model *model, struct screen *screen, int y, int rows)
{
	const struct job_sample *job = model_selected(model);
	int used;

	if (!job) {
		screen_text(screen, y, 0, screen->cols, STYLE_DIM, "the job has ended");
		return;
	}
	if (rows < 8)
		return;
	used = draw_head(job, screen, y);
	if (used + TIER_ROWS < rows)
		used += draw_tiers(job, screen, y + used);
	used += draw_decision(job, screen, y + used, 3) + 1;
	draw_chain(model, job->id, screen, y + used, rows - used);
}

#define WORDS_ROWS 4

/* The views that are tables: workers, files and devices, GPUs, the daemon. */

static void view_workers(struct model *model, struct screen *screen, int y, int rows)
{
	view_table(model, screen, y, rows,
		   model->sample->n_jobs ? "no process of any job can be observed"
					 : "no training job, so no workers");
}

static void view_storage(struct model *model, struct screen *screen, int y, int rows)
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

static void view_gpu(struct model *model, struct screen *screen, int y, int rows)
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

static void view_daemon(struct model *model, struct screen *screen, int y, int rows)
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

#define SEEN_ROWS 6

struct self_line {
	const char *name;
	double value;
	char *(*format)(char *buffer, double value);
	const char *unit, *meaning;
};

static char *format_thousandth(char *buffer, double ratio)
{
	if (!isfinite(ratio))
		return format_percent(buffer, ratio);
	snprintf(buffer, FORMAT_BYTES, "%.2f", 100 * ratio);
	return buffer;
}

static void view_self(struct model *model, struct screen *screen, int y, int rows)
{
	const struct self_sample *s = &model->sample->self;
	const struct self_line lines[] = {
	    {"CPU", s->cpu_ratio, format_thousandth, "%", "of one core, used by diesel-top in total"},
	    {"  events", s->poll_ratio, format_thousandth, "%", "reading events of BPF or /proc"},
	    {"  analysis", s->analysis_ratio, format_thousandth, "%",
	     "analysing the last seconds of each job"},
	    {"  processes", s->scan_ratio, format_thousandth, "%", "looking for new and ended jobs"},
	    {"  drawing", s->draw_ratio, format_thousandth, "%", "drawing, and writing to the terminal"},
	    {"BPF programs", s->bpf_ratio, format_thousandth, "%",
	     "of one core, taken from the jobs' CPU time"},
	    {"memory", s->memory_bytes, format_bytes, "", "resident"},
	    {"events", s->events_per_s, format_rate, "/s", "recorded events of the jobs"},
	    {"oldest shares", s->oldest_s, format_seconds, "",
	     "age: analysis is delayed to limit its CPU use"},
	    {"cells", s->cells_per_s, format_rate, "/s", "screen cells that changed"},
	};
	char text[FORMAT_BYTES], seen[sizeof(s->source) + 24];

	snprintf(seen, sizeof(seen), "jobs are observed by %s", s->source[0] ? s->source : "N/A");
	y += view_text(screen, y, 0, SEEN_ROWS, screen->cols, STYLE_BOLD, seen) + 1;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && (int)i < rows - 4; i++, y++) {
		screen_text(screen, y, 0, 16, STYLE_NORMAL, lines[i].name);
		lines[i].format(text, lines[i].value);
		screen_text_right(screen, y, 16, 7, STYLE_BOLD, text);
		screen_text(screen, y, 23, 3, STYLE_BOLD, strcmp(text, "N/A") ? lines[i].unit : "");
		screen_text(screen, y, 27, screen->cols - 27, STYLE_DIM, lines[i].meaning);
	}
	screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL, "%-16s%7s", "tasks watched",
		     format_count(text, s->n_tasks));
	screen_print(screen, y, 0, screen->cols,
		     s->n_lost && s->n_lost != SAMPLE_UNKNOWN ? STYLE_BAD : STYLE_NORMAL, "%-16s%7s    %s",
		     "events lost", format_count(text, s->n_lost), "only details are lost, never totals");
}

struct help_line {
	const char *keys, *what; /* keys is NULL for a heading */
};

static const struct help_line help[] = {
    {NULL, "Keys"},
    {"Up Down j k PgUp PgDn g G", "move the cursor"},
    {"Tab, Shift-Tab, 1 to 6", "jobs, workers, storage, GPUs, daemon, own cost"},
    {"Enter", "a job's detail: shares, decision, last slow step"},
    {"F3 /, n", "search; go to the next match"},
    {"F4 \\", "show only rows with this text; empty or Esc: all rows"},
    {"F5 t", "tree of processes: job, ranks, workers"},
    {"F6 > <, I", "sort by the next or previous column; reverse the order"},
    {"H", "also show the trainer's threads in the workers view"},
    {"Space z", "pause and continue"},
    {"+ -", "more or less time between samples"},
    {"F2", "setup: colours, characters"},
    {"F10 q, Esc", "quit, or close the open window"},
    {NULL, "Replay (-r FILE)"},
    {"Right t, Left T", "one sample forward or back"},
    {"b", "jump to a time of day, or by +SECONDS, -SECONDS"},
    {"r, Z", "go to the first or last sample"},
    {NULL, "Shares of the trainer's wall time"},
    {"device (d)", "computing, launching work, waiting for the device"},
    {"fetch (F)", "waiting for data, because of storage or network"},
    {"prep (P)", "waiting for data for another reason: decoding, ..."},
    {"checkpoint (C)", "writing or syncing a checkpoint"},
    {"compiling (K)", "compiling by torch.compile or JAX, once; N/A with BPF"},
    {"starved (S)", "ready to run, but without a core"},
    {"other (o)", "none of these"},
    {NULL, "N/A means not known, rather than 0. Sampled shares (BY sampled) are approximate."},
    {NULL, "Columns of the jobs (-s COLUMN sorts by one)"},
};
#define N_HELP (sizeof(help) / sizeof(help[0]))

static void draw_line(struct screen *screen, int y, const struct help_line *line)
{
	if (!line->keys) {
		screen_text(screen, y, 0, screen->cols, STYLE_BOLD, line->what);
		return;
	}
	screen_text(screen, y, 2, 25, STYLE_GOOD, line->keys);
	screen_text(screen, y, 28, screen->cols - 28, STYLE_NORMAL, line->what);
}

static void view_help(struct model *model, struct screen *screen, int y, int rows)
{
	const struct table_columns *columns = model_job_columns(model);
	size_t n = N_HELP + columns->n, shown = (size_t)rows;

	if (shown < n && rows > 1)
		shown--; /* reserves the last line, which says that there is more */
	if (model->overlay_top + shown > n)
		model->overlay_top = n > shown ? n - shown : 0;
	model->page = shown;
	for (size_t i = 0; i < shown && model->overlay_top + i < n; i++) {
		size_t at = model->overlay_top + i;
		struct help_line line;

		if (at < N_HELP)
			line = help[at];
		else
			line = (struct help_line){columns->items[at - N_HELP].title,
						  columns->items[at - N_HELP].meaning};
		draw_line(screen, y + (int)i, &line);
	}
	if (shown < n)
		screen_text(screen, y + (int)shown, 0, screen->cols, STYLE_DIM,
			    model->overlay_top + shown < n ? "more: Down, PgDn" : "the end; back: Up, PgUp");
}

static void view_setup(struct model *model, struct screen *screen, int y, int rows)
{
	char interval[FORMAT_BYTES];

	if (rows < 6)
		return;
	screen_text(screen, y, 0, screen->cols, STYLE_BOLD, "Setup");
	screen_print(screen, y + 2, 2, screen->cols - 2, STYLE_NORMAL, "c    [%c] colours",
		     model->charset.colour ? 'x' : ' ');
	screen_print(screen, y + 3, 2, screen->cols - 2, STYLE_NORMAL, "u    [%c] characters beyond ASCII",
		     model->charset.unicode ? 'x' : ' ');
	screen_print(screen, y + 4, 2, screen->cols - 2, STYLE_NORMAL,
		     "i d  a sample every %s: longer, shorter", format_seconds(interval, model->interval_s));
	screen_text(screen, y + 5, 2, screen->cols - 2, STYLE_DIM, "F2 or Esc closes this window");
}

static const char *const view_names[VIEW_COUNT] = {
    [VIEW_JOBS] = "Jobs", [VIEW_WORKERS] = "Workers", [VIEW_STORAGE] = "Storage",
    [VIEW_GPU] = "GPU",   [VIEW_DAEMON] = "Daemon",   [VIEW_SELF] = "Self",
};

/* Writes a word so that it ends at column `end`. Returns the end for the next word to its left. */
static int put_left_of(struct screen *screen, int y, int end, enum style style, const char *text)
{
	int width = screen_text_width(text, screen->charset);

	if (width > end)
		return end;
	screen_text(screen, y, end - width, width, style, text);
	return end - width - 2;
}

static void draw_title(const struct model *model, struct screen *screen)
{
	const struct top_sample *s = model->sample;
	char text[SAMPLE_ERROR_BYTES + 96], time[FORMAT_BYTES], age[FORMAT_BYTES];
	int end = screen->cols;

	screen_style(screen, 0, 0, screen->cols, STYLE_TITLE);
	format_time(time, s ? s->time_s : NAN);
	if (model->is_replay)
		end = put_left_of(screen, 0, end, STYLE_WARNING, model->at_end ? "REPLAY end" : "REPLAY");
	if (model->is_recording)
		end = put_left_of(screen, 0, end, STYLE_BAD, "REC");
	if (model->paused)
		end = put_left_of(screen, 0, end, STYLE_WARNING, "PAUSED");
	if (model->n_skipped) {
		snprintf(text, sizeof(text), "SKIPPED %zu", model->n_skipped);
		end = put_left_of(screen, 0, end, STYLE_BAD, text);
	}
	if (s) {
		snprintf(text, sizeof(text), "LOST %s", format_count(age, s->self.n_lost));
		end = put_left_of(
		    screen, 0, end,
		    s->self.n_lost && s->self.n_lost != SAMPLE_UNKNOWN ? STYLE_BAD : STYLE_TITLE, text);
	}
	snprintf(text, sizeof(text), "%s  every %s", time, format_seconds(age, model->interval_s));
	end = put_left_of(screen, 0, end, STYLE_TITLE, text);
	snprintf(text, sizeof(text), "diesel-top  %.60s  %s", s ? s->host.name : "", s ? s->self.source : "");
	screen_text(screen, 0, 0, end + 1, STYLE_TITLE, text);
}

static void draw_daemon_word(const struct daemon_sample *d, bool brief, char *text, size_t size)
{
	char used[FORMAT_BYTES], budget[FORMAT_BYTES];
	const char *place = view_daemon_place(d);

	if (!strcmp(d->state, "up"))
		snprintf(text, size, "dieseld%s%.20s%s %s/%s%s%s", brief ? "" : " ", brief ? "" : d->version,
			 brief ? "" : " cache", format_bytes(used, d->cache_used_bytes),
			 format_bytes(budget, d->cache_budget_bytes), *place ? " at " : "", place);
	else
		snprintf(text, size, "%s", !strcmp(d->state, "away") ? "dieseld went away" : "no dieseld");
}

static void draw_host(const struct model *model, struct screen *screen)
{
	const struct host_sample *h = &model->sample->host;
	char busy[FORMAT_BYTES], cpus[FORMAT_BYTES], load[FORMAT_BYTES], used[FORMAT_BYTES],
	    all[FORMAT_BYTES];
	char psi[3][FORMAT_BYTES], daemon[100 + sizeof(model->sample->daemon.socket)];

	draw_daemon_word(&model->sample->daemon, screen->cols < 100, daemon, sizeof(daemon));
	screen_print(screen, 1, 0, screen->cols, STYLE_NORMAL,
		     "cores %s/%s  load %s  mem %s/%s  PSI cpu %s io %s mem %s %%  %s",
		     format_rate(busy, h->cpu_ratio), format_count(cpus, h->n_cpus),
		     format_rate(load, h->load1), format_bytes(used, h->memory_bytes - h->available_bytes),
		     format_bytes(all, h->memory_bytes), format_percent(psi[0], h->psi_cpu),
		     format_percent(psi[1], h->psi_io), format_percent(psi[2], h->psi_memory), daemon);
}

static void draw_tabs(const struct model *model, struct screen *screen)
{
	int x = 0;

	for (int i = 0; i < VIEW_COUNT; i++) {
		bool open = i == (int)model->view;

		x += screen_print(screen, 2, x, screen->cols - x, open ? STYLE_SELECTED : STYLE_DIM,
				  "%c%d %s%c", open ? '[' : ' ', i + 1, view_names[i], open ? ']' : ' ');
	}
}

static void draw_keys(const struct model *model, struct screen *screen)
{
	static const char *const live[] = {"F1", "Help", "F2", "Setup", "F3",  "Search", "F4",  "Filter",
					   "F5", "Tree", "F6", "Sort",  "Tab", "View",   "F10", "Quit"};
	static const char *const replay[] = {"<-", "Back", "->",  "Forward", "b",   "Jump", "r",   "First",
					     "Z",  "Last", "Spc", "Pause",   "Tab", "View", "F10", "Quit"};
	const char *const *keys = model->is_replay ? replay : live;
	int x = 0, y = screen->rows - 1;

	for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i += 2) {
		x += screen_text(screen, y, x, screen->cols - x, STYLE_KEY, keys[i]);
		x += screen_print(screen, y, x, screen->cols - x, STYLE_LABEL, "%-6s", keys[i + 1]);
	}
}

static void draw_last_line(const struct model *model, struct screen *screen)
{
	static const char *const prompts[] = {
	    [PROMPT_SEARCH] = "Search: ",
	    [PROMPT_FILTER] = "Filter: ",
	    [PROMPT_TIME] = "Jump to (HH:MM[:SS] or +-SECONDS): ",
	};
	int y = screen->rows - 1, x;

	if (model->prompt != PROMPT_NONE) {
		x = screen_text(screen, y, 0, screen->cols, STYLE_KEY, prompts[model->prompt]);
		x += screen_text(screen, y, x, screen->cols - x - 1, STYLE_NORMAL, model->input);
		screen_put(screen, y, x, STYLE_SELECTED, L' ');
	} else if (model->message[0]) {
		screen_text(screen, y, 0, screen->cols, STYLE_WARNING, model->message);
	} else {
		draw_keys(model, screen);
	}
}

static void draw_view(struct model *model, struct screen *screen, int y, int rows)
{
	switch (model->view) {
	case VIEW_JOBS: view_jobs(model, screen, y, rows); break;
	case VIEW_WORKERS: view_workers(model, screen, y, rows); break;
	case VIEW_STORAGE: view_storage(model, screen, y, rows); break;
	case VIEW_GPU: view_gpu(model, screen, y, rows); break;
	case VIEW_DAEMON: view_daemon(model, screen, y, rows); break;
	case VIEW_SELF: view_self(model, screen, y, rows); break;
	case VIEW_COUNT: break;
	}
}

void frame_draw(struct model *model, struct screen *screen)
{
	int rows = screen->rows - 4;

	screen_clear(screen);
	screen->charset = model->charset;
	if (screen->rows < FRAME_ROWS_MIN || screen->cols < FRAME_COLS_MIN) {
		screen_print(screen, 0, 0, screen->cols, STYLE_BAD,
			     "%dx%d is too small: needs at least %dx%d", screen->cols, screen->rows,
			     FRAME_COLS_MIN, FRAME_ROWS_MIN);
		return;
	}
	draw_title(model, screen);
	draw_tabs(model, screen);
	if (!model->sample) {
		screen_text(screen, 3, 0, screen->cols, STYLE_DIM, "taking the first sample ...");
	} else {
		draw_host(model, screen);
		switch (model->overlay) {
		case OVERLAY_HELP: view_help(model, screen, 3, rows); break;
		case OVERLAY_SETUP: view_setup(model, screen, 3, rows); break;
		case OVERLAY_DETAIL: view_detail(model, screen, 3, rows); break;
		case OVERLAY_NONE: draw_view(model, screen, 3, rows); break;
		}
	}
	draw_last_line(model, screen);
}
