/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "columns.h"
#include "format.h"

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

void view_detail(struct model *model, struct screen *screen, int y, int rows)
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
