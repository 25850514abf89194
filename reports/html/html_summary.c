/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <math.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"
#include "lib/sorted.h"
#include "lib/units.h"
#include "reports/words/words.h"

#define LABEL_SHARE 0.11 /* minimum share of the bar that has space for its name */
#define ROOMY_SHARE 0.30 /* minimum share that has space for its name even on a narrow page */

static const char *class_of_verdict(enum analysis_verdict verdict)
{
	switch (verdict) {
	case ANALYSIS_INSUFFICIENT: return "insufficient";
	case ANALYSIS_FETCH_BOUND: return "fetch";
	case ANALYSIS_PREP_BOUND: return "prep";
	case ANALYSIS_DEVICE_BOUND: return "device";
	case ANALYSIS_CHECKPOINT_BOUND: return "checkpoint";
	case ANALYSIS_CPU_STARVED:
	case ANALYSIS_LOCK_BOUND: return "starved";
	case ANALYSIS_UNCLEAR: return "insufficient";
	}
	return "";
}

static void bar(const struct html *html, const struct report_shares *shown)
{
	fputs("<div class=\"bar\" aria-hidden=\"true\">", html->stream);
	for (size_t i = 0; i < SHARE_COUNT; i++) {
		double ratio = report_shares_ratio(shown, share_labels[i].share);

		if (ratio <= 0)
			continue;
		fprintf(html->stream, "<span class=\"%s\" style=\"flex-grow:%.4f\">",
			share_labels[i].class_name, ratio);
		if (ratio >= LABEL_SHARE)
			fprintf(html->stream, "<b%s>%s %.0f %%</b>",
				ratio < ROOMY_SHARE ? " class=\"roomy\"" : "", share_labels[i].name,
				100 * ratio);
		fputs("</span>", html->stream);
	}
	fputs("</div>\n", html->stream);
}

struct share_row {
	const char *class_name, *name, *meaning;
	uint64_t ns, wall_ns;
	size_t n_steps;
	bool sub;
	double error; /* error of a sampled recording's share; 0: exact */
};

static double row_percent(const struct share_row *row)
{
	return row->wall_ns ? 100 * (double)row->ns / (double)row->wall_ns : 0;
}

static void share_row(const struct html *html, const struct share_row *row)
{
	char total[24], mean[24];

	fprintf(html->stream, "<tr%s><td><span class=\"swatch %s\"></span>%s</td>",
		row->sub ? " class=\"sub\"" : "", row->class_name, row->name);
	if (row->error > 0)
		html_number(html, "%.0f &plusmn; %.0f %%", row_percent(row), ceil(100 * row->error));
	else
		html_number(html, "%.1f %%", row_percent(row));
	html_number(html, "%s", units_format_duration(total, sizeof(total), row->ns));
	html_number(html, "%s",
		    units_format_duration(mean, sizeof(mean), row->n_steps ? row->ns / row->n_steps : 0));
	fprintf(html->stream, "<td class=\"meaning\">%s</td></tr>\n", row->meaning);
}

/* Writes a row for a part of a share, which is measured over the whole window. */
static void part_row(const struct html *html, const char *class_name, const char *name, const char *meaning,
		     uint64_t ns)
{
	if (ns)
		share_row(html, &(struct share_row){class_name, name, meaning, ns,
						    html->analysis->window.observed_ns,
						    report_n_steps(html->analysis), true, 0});
}

static void part_rows(const struct html *html, enum analysis_share share)
{
	const struct analysis *analysis = html->analysis;

	switch (share) {
	case SHARE_PREP_STALL:
		part_row(html, "prep", "head of line",
			 "part of prep stall: another batch was ready, but a slower one had to come first",
			 analysis->parts.head_of_line_ns);
		part_row(html, "prep", "interpreter lock", "part of prep stall: waiting for Python's GIL",
			 analysis->parts.gil_ns);
		break;
	case SHARE_CPU_STARVED:
		part_row(html, "starved", "neighbours",
			 "part of cpu starved: threads of other jobs had the core",
			 analysis->parts.neighbours_ns);
		part_row(html, "starved", "interpreter lock", "part of cpu starved: waiting for Python's GIL",
			 analysis->parts.gil_starved_ns);
		break;
	case SHARE_OTHER:
		part_row(html, "other", "sleeping", "part of other: asleep on purpose (time.sleep)",
			 analysis->parts.asleep_ns);
		break;
	case SHARE_DEVICE:
		part_row(html, "gpu", "GPU wait", "part of device: waiting for the GPU to finish",
			 analysis->parts.gpu_wait_known ? analysis->parts.gpu_wait_ns : 0);
		break;
	case SHARE_FETCH_STALL:
	case SHARE_CHECKPOINT_STALL:
	case SHARE_COMPILING:
	case SHARE_COUNT: break;
	}
}

static void shares(const struct html *html)
{
	struct report_shares shown = report_shares(html->analysis);
	char text[320];

	bar(html, &shown);
	fputs(
	    "<div class=\"scroll\"><table class=\"shares\"><thead><tr><th>share</th><th class=\"n\">of step "
	    "time</th><th class=\"n\">time</th><th class=\"n\">per step</th><th class=\"meaning\">what it "
	    "is</th>"
	    "</tr></thead><tbody>\n",
	    html->stream);
	for (size_t i = 0; i < SHARE_COUNT; i++) {
		const struct share_label *look = &share_labels[i];

		/* The text below says whether the share is excluded or not known. */
		if (look->share == SHARE_COMPILING && !shown.ns[SHARE_COMPILING])
			continue;
		share_row(html,
			  &(struct share_row){
			      look->class_name, look->name, look->meaning, shown.ns[look->share],
			      shown.wall_ns, shown.n_steps, false,
			      html->analysis->sampled.is ? html->analysis->sampled.error[look->share] : 0});
		part_rows(html, look->share);
	}
	fputs("</tbody></table></div>\n", html->stream);
	if (!analysis_share_known(html->analysis, SHARE_COMPILING))
		fputs("<p class=\"quiet\">Whether it compiled was not seen: no Python stacks.</p>\n",
		      html->stream);
	if (words_whole(text, sizeof(text), html->analysis)[0])
		fprintf(html->stream, "<p class=\"quiet\">%s</p>\n", text);
	if (words_excluded(text, sizeof(text), html->analysis)[0])
		fprintf(html->stream, "<p class=\"quiet\">%s</p>\n", text);
	if (words_warmup(text, sizeof(text), html->analysis)[0])
		fprintf(html->stream, "<p class=\"quiet\">%s</p>\n", text);
}

void html_summary(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	char text[320];

	fprintf(html->stream, "<div class=\"verdict\"><span class=\"badge %s\">%s</span><h1>",
		class_of_verdict(analysis->verdict), analysis_verdict_name(analysis->verdict));
	escape_html(html->stream, words_verdict(text, sizeof(text), analysis));
	fputs("</h1></div>\n<p class=\"trust\">", html->stream);
	escape_html(html->stream, words_trust(text, sizeof(text), analysis));
	fputs("</p>\n", html->stream);
	if (words_approximate(text, sizeof(text), analysis)[0])
		fprintf(html->stream, "<p class=\"note\">%s</p>\n", text);
	if (analysis->note[0]) {
		fputs("<p class=\"note\">", html->stream);
		escape_html(html->stream, analysis->note);
		fputs("</p>\n", html->stream);
	}
	if (analysis->recorded.n_lost)
		fputs(
		    "<p class=\"note\">Events were lost: shares of the steps they belong to may be off by a "
		    "little.</p>\n",
		    html->stream);
	if (html->source.cut_off)
		fputs("<p class=\"note\">The recording was cut off: the recorder was killed or the file is "
		      "damaged. "
		      "The report covers the intact part.</p>\n",
		      html->stream);
	if (analysis->verdict != ANALYSIS_INSUFFICIENT)
		shares(html);
}

/* Draws the gain on an axis from 1x to the largest bound of all actions. */
static void gain_chart(const struct html *html, const struct analysis_action *action, double most)
{
	double low = isfinite(action->gain.low) ? action->gain.low : action->gain.value;
	double high = isfinite(action->gain.high) ? action->gain.high : action->gain.value;
	double scale = most > 1 ? 100 / (most - 1) : 0;
	double left = low > 1 ? (low - 1) * scale : 0, right = high > 1 ? (high - 1) * scale : 0;

	if (!(action->gain.value > 0)) {
		left = 0;
		right = action->gain_max > 1 ? (action->gain_max - 1) * scale : 0;
	}
	fprintf(html->stream,
		"<div class=\"gain\" aria-hidden=\"true\"><i style=\"left:%.1f%%;width:%.1f%%\"></i>", left,
		right > left ? right - left : 0.5);
	if (action->gain.value > 0)
		fprintf(html->stream, "<b style=\"left:%.1f%%\"></b>",
			action->gain.value > 1 ? (action->gain.value - 1) * scale : 0);
	fputs("</div>", html->stream);
}

void html_actions(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	double most = 1.05;
	char gain[200];

	if (!analysis->n_actions)
		return;
	for (size_t i = 0; i < analysis->n_actions; i++) {
		const struct analysis_action *action = &analysis->actions[i];

		most = action->gain_max > most ? action->gain_max : most;
		most = action->gain.high > most ? action->gain.high : most;
	}
	fputs("<section class=\"cards\" aria-label=\"Recommendations\">\n", html->stream);
	for (size_t i = 0; i < analysis->n_actions; i++) {
		const struct analysis_action *action = &analysis->actions[i];

		fprintf(html->stream,
			"<div class=\"card\"><span class=\"rank\">%s %zu</span><p class=\"do\">",
			"Recommendation", i + 1);
		escape_html(html->stream, action->text);
		fputs("</p>", html->stream);
		gain_chart(html, action, most);
		fprintf(html->stream, "<span class=\"says\">%s</span></div>\n",
			words_gain(gain, sizeof(gain), action));
	}
	fputs("</section>\n", html->stream);
}

__attribute__((format(printf, 3, 4))) static void tile(const struct html *html, const char *name,
						       const char *format, ...)
{
	va_list arguments;

	fputs("<div class=\"tile\"><b>", html->stream);
	va_start(arguments, format);
	vfprintf(html->stream, format, arguments);
	va_end(arguments);
	fprintf(html->stream, "</b><span>%s</span></div>\n", name);
}

/* Shows the median and the 95th percentile of step times. */
static void step_tiles(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	uint64_t *walls = calloc(analysis->n_steps + 1, sizeof(*walls));
	size_t n = 0;
	char text[24];

	for (size_t i = 0; walls && analysis->steps && i < analysis->n_steps; i++)
		if (!analysis->steps[i].excluded)
			walls[n++] = analysis->steps[i].end_ns - analysis->steps[i].begin_ns;
	if (!n) {
		free(walls);
		return;
	}
	qsort(walls, n, sizeof(*walls), compare_u64);
	tile(html, "a step, median", "%s", units_format_duration(text, sizeof(text), walls[n / 2]));
	tile(html, "a step, 95th percentile", "%s",
	     units_format_duration(text, sizeof(text), walls[sorted_p95(n)]));
	free(walls);
}

void html_figures(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	const struct page_cache *cache = analysis->page_cache;
	struct report_shares shown = report_shares(analysis);
	size_t n_steps = report_n_steps(analysis);
	/* read_bytes lacks reads of mapped files, so used_bytes may be larger. */
	uint64_t bytes = cache && cache->used_bytes > analysis->window.read_bytes
			     ? cache->used_bytes
			     : analysis->window.read_bytes;
	char text[24];

	if (analysis->verdict == ANALYSIS_INSUFFICIENT)
		return;
	fputs("<section class=\"tiles\" aria-label=\"Key figures\">\n", html->stream);
	if (shown.n_steps && shown.wall_ns)
		tile(html, "steps per second", "%.3g",
		     (double)shown.n_steps * (double)NS_PER_S / (double)shown.wall_ns);
	step_tiles(html);
	if (shown.n_steps && report_wait_known(analysis))
		tile(html, "mean data wait per step", "%s",
		     units_format_duration(text, sizeof(text),
					   (shown.ns[SHARE_FETCH_STALL] + shown.ns[SHARE_PREP_STALL]) /
					       shown.n_steps));
	if (n_steps && (analysis->window.read_bytes_known || bytes))
		tile(html, "read per step", "%s", units_format_bytes(text, sizeof(text), bytes / n_steps));
	if (cache && cache->accessed_pages)
		tile(html, "page cache hits", "%.0f %%",
		     100 * page_cache_hit_ratio(cache->accessed_pages, cache->missed_pages));
	if (analysis->workers.n)
		tile(html, analysis->job.n_cpus ? "workers, on CPUs" : "workers",
		     analysis->job.n_cpus ? "%u on %u" : "%u", analysis->workers.n_at_once,
		     analysis->job.n_cpus);
	fputs("</section>\n", html->stream);
}
