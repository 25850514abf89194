/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analyzer/analysis.h"
#include "lib/sorted.h"
#include "lib/units.h"
#include "reports/assets/assets.h"
#include "reports/words/escape.h"
#include "reports/words/words.h"

/* Fills in the {{places}} of page/page.html. Essential content needs no JavaScript; page/ *.js draws charts
 * from the JSON of html_data(). All untrusted text goes through escape_html() or escape_json(). */
struct html {
	FILE *stream;
	const struct analysis *analysis;
	struct report_source source;
};

/* Writes <td class=n> with text that is not escaped. */
__attribute__((format(printf, 2, 3))) static void html_number(const struct html *html, const char *format,
							      ...)
{
	va_list arguments;

	fputs("<td class=\"n\">", html->stream);
	va_start(arguments, format);
	vfprintf(html->stream, format, arguments);
	va_end(arguments);
	fputs("</td>", html->stream);
}

/*
 * Data of the charts, in JSON. Times are integers: microseconds since the start of the window.
 *
 *   wall   length of the window
 *   warmup length of the part at its start that the verdict leaves out
 *   merged number of steps that each entry of `steps` stands for
 *   steps  [begin, end, then the shares in the order of enum analysis_share], flat
 *   cell   length of the pieces that lanes are made of; 0: lanes are exact
 *   states names of enum lane_state
 *   lanes  {name, role, tid, segments: [gap to the one before, length, state], batches: [begin, length]}
 *   wakes  [time made runnable, time it ran, from lane, to lane], flat
 *   levels [at, batches ready], flat
 *   curves by axis: {here, points: [x, speed-up, low, high, fetch, prep], flat}
 *   stacks [frames, samples], flat
 */
#define STEPS_MAX  5000
#define WAKES_MAX  3000
#define LEVELS_MAX 8000
#define STACKS_MAX 4000

static uint64_t since(const struct html *html, uint64_t at_ns)
{
	uint64_t begin_ns = html->analysis->window.begin_ns;

	return at_ns > begin_ns ? (at_ns - begin_ns + NS_PER_US / 2) / NS_PER_US : 0;
}

static void print(const struct html *html, uint64_t value, size_t i)
{
	fprintf(html->stream, "%s%llu", i ? "," : "", (unsigned long long)value);
}

static void print_number(const struct html *html, double value, bool comma)
{
	if (comma)
		fputc(',', html->stream);
	if (isfinite(value))
		fprintf(html->stream, "%.6g", value);
	else
		fputs("null", html->stream);
}

/* Writes the steps. If there are more than a screen can show, neighbours share an entry. */
static void steps(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	size_t n = analysis->steps ? analysis->n_steps : 0, merged = n / STEPS_MAX + 1;

	fprintf(html->stream, "\"merged\":%zu,\n\"steps\":[", merged);
	for (size_t i = 0; i < n; i += merged) {
		size_t last = i + merged - 1 < n ? i + merged - 1 : n - 1;

		print(html, since(html, analysis->steps[i].begin_ns), i);
		print(html, since(html, analysis->steps[last].end_ns), 1);
		for (size_t share = 0; share < SHARE_COUNT; share++) {
			uint64_t ns = 0;

			for (size_t k = i; k <= last; k++)
				ns += analysis->steps[k].share_ns[share];
			print(html, ns / NS_PER_US, 1);
		}
	}
	fputs("]", html->stream);
}

static void lane(const struct html *html, const struct lane *from)
{
	uint64_t at_us = 0;
	size_t n = 0;

	fputs("{\"name\":", html->stream);
	escape_json(html->stream, from->name);
	fprintf(html->stream, ",\"role\":%d,\"tid\":%u,\"segments\":[", (int)from->role, from->tid);
	for (size_t i = 0; i < from->n_segments; i++) {
		uint64_t begin_us = since(html, from->segments[i].begin_ns);
		uint64_t end_us = since(html, from->segments[i].end_ns);

		if (end_us <= begin_us || begin_us < at_us)
			continue;
		print(html, begin_us - at_us, n++);
		print(html, end_us - begin_us, 1);
		print(html, from->segments[i].state, 1);
		at_us = end_us;
	}
	fputs("],\"batches\":[", html->stream);
	for (size_t i = 0; i < from->n_batches && i < STEPS_MAX; i++) {
		print(html, since(html, from->batches[i].begin_ns), i);
		print(html, since(html, from->batches[i].end_ns) - since(html, from->batches[i].begin_ns), 1);
	}
	fputs("]}", html->stream);
}

static void lanes(const struct html *html)
{
	const struct lanes *from = html->analysis->lanes;

	fputs(",\n\"states\":[", html->stream);
	for (enum lane_state i = 0; i < LANE_STATES; i++)
		fprintf(html->stream, "%s\"%s\"", i ? "," : "", lane_state_name(i));
	fprintf(html->stream, "],\n\"cell\":%llu,\n\"lanes\":[",
		from ? (unsigned long long)(from->cell_ns / NS_PER_US) : 0);
	for (size_t i = 0; from && i < from->n_items; i++) {
		fputs(i ? ",\n" : "\n", html->stream);
		lane(html, &from->items[i]);
	}
	fputs("],\n\"wakes\":[", html->stream);
	for (size_t i = 0; from && i < from->n_wakes && i < WAKES_MAX; i++) {
		print(html, since(html, from->wakes[i].waking_ns), i);
		print(html, since(html, from->wakes[i].run_ns), 1);
		print(html, from->wakes[i].from, 1);
		print(html, from->wakes[i].to, 1);
	}
	fputs("],\n\"levels\":[", html->stream);
	for (size_t i = 0; from && i < from->n_levels && i < LEVELS_MAX; i++) {
		print(html, since(html, from->levels[i].at_ns), i);
		print(html, from->levels[i].n_ready, 1);
	}
	fputs("]", html->stream);
}

static void curve(const struct html *html, const char *name, const struct what_if_curve *from)
{
	fprintf(html->stream, "\"%s\":{\"here\":", name);
	print_number(html, from->here, false);
	fputs(",\"points\":[", html->stream);
	for (size_t i = 0; i < from->n_points; i++) {
		print_number(html, from->points[i].x, i);
		print_number(html, from->points[i].speedup.value, true);
		print_number(html, from->points[i].speedup.low, true);
		print_number(html, from->points[i].speedup.high, true);
		print_number(html, from->points[i].fetch_stall, true);
		print_number(html, from->points[i].prep_stall, true);
	}
	fputs("]}", html->stream);
}

static void curves(const struct html *html)
{
	static const char *const names[WHAT_IF_AXES] = {"cache",  "workers", "storage",
							"device", "size",    "cores"};
	const struct predictions *from = html->analysis->predictions;

	fputs(",\n\"curves\":{", html->stream);
	for (size_t i = 0, n = 0; from && i < WHAT_IF_AXES; i++) {
		if (!from->curves[i].n_points)
			continue;
		if (n++)
			fputc(',', html->stream);
		curve(html, names[i], &from->curves[i]);
	}
	fputc('}', html->stream);
}

static void stacks(const struct html *html)
{
	const struct profile *from = html->analysis->profile;

	fputs(",\n\"stacks\":[", html->stream);
	for (size_t i = 0; from && i < from->n_stacks && i < STACKS_MAX; i++) {
		fputs(i ? ",\n" : "\n", html->stream);
		escape_json(html->stream, from->stacks[i].frames);
		print(html, from->stacks[i].n_samples, 1);
	}
	fputs("]", html->stream);
}

/* Writes the JSON for the charts of page/page.js: {"steps", "lanes", "what_if", "stacks", ...} */
static void html_data(const struct html *html)
{
	const struct analysis *analysis = html->analysis;

	fprintf(html->stream, "{\"wall\":%llu,\"warmup\":%llu,\n",
		(unsigned long long)since(html, analysis->window.end_ns),
		(unsigned long long)(analysis->steady.warmup_ns / NS_PER_US));
	steps(html);
	lanes(html);
	curves(html);
	stacks(html);
	fputs("}\n", html->stream);
}

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

static void html_summary(const struct html *html)
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

static void html_actions(const struct html *html)
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

static void html_figures(const struct html *html)
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

#define PLACES_SHOWN 8    /* number of places shown; the JSON report has all */
#define NOTABLE_WAIT 0.05 /* minimum share of data wait for which remedies are shown */

/* Opens a section with its heading; hint may be NULL. None of these texts is escaped. */
static void html_section(const struct html *html, const char *id, const char *title, const char *hint)
{
	fprintf(html->stream, "<section id=\"%s\" class=\"panel\">\n<h2>%s", id, title);
	if (hint)
		fprintf(html->stream, " <span class=\"hint\">%s</span>", hint);
	fputs("</h2>\n", html->stream);
}

/* Writes a table cell with a bar that fills `ratio` of it. */
static void html_meter(const struct html *html, double ratio, const char *class_name)
{
	if (!(ratio >= 0))
		ratio = 0;
	fprintf(html->stream,
		"<td class=\"fill\"><span class=\"meter %s\" style=\"width:%.1f%%\"></span></td>", class_name,
		100 * (ratio < 1 ? ratio : 1));
}

static void page_cache_places(const struct html *html, const char *title,
			      const struct page_cache_place *items, size_t n)
{
	uint64_t most = 1;
	char text[16];

	if (!n)
		return;
	for (size_t i = 0; i < n; i++)
		most = items[i].cold_bytes > most ? items[i].cold_bytes : most;
	fprintf(
	    html->stream,
	    "<h3>%s</h3><div class=\"scroll\"><table><thead><tr><th>path</th><th></th><th class=\"n\">from "
	    "storage</th><th class=\"n\">used</th><th class=\"n\">reads</th><th class=\"n\">hits</th></tr>"
	    "</thead><tbody>\n",
	    title);
	for (size_t i = 0; i < n && i < PLACES_SHOWN; i++) {
		const struct page_cache_place *item = &items[i];

		fputs("<tr><td class=\"path mono\">", html->stream);
		escape_html(html->stream, item->path ? item->path : "?");
		fputs("</td>", html->stream);
		html_meter(html, (double)item->cold_bytes / (double)most, "fetch");
		html_number(html, "%s", units_format_bytes(text, sizeof(text), item->cold_bytes));
		html_number(html, "%s", units_format_bytes(text, sizeof(text), item->used_bytes));
		html_number(html, "%llu", (unsigned long long)item->n_reads);
		if (item->accessed_pages)
			html_number(html, "%.0f %%",
				    100 * page_cache_hit_ratio(item->accessed_pages, item->missed_pages));
		else
			html_number(html, "-");
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void read_sizes(const struct html *html, const struct page_cache *cache)
{
	uint64_t most = 0;
	char from[16], to[16];

	for (size_t i = 0; i < PAGE_CACHE_SIZES; i++)
		most = cache->read_sizes[i] > most ? cache->read_sizes[i] : most;
	if (!most)
		return;
	fputs("<div><h3>Sizes of read calls</h3><table><tbody>\n", html->stream);
	for (size_t i = 0; i < PAGE_CACHE_SIZES; i++) {
		if (!cache->read_sizes[i])
			continue;
		fprintf(html->stream, "<tr><td>%s to %s</td>",
			units_format_bytes(from, sizeof(from), i ? UINT64_C(1) << i : 0),
			units_format_bytes(to, sizeof(to), UINT64_C(2) << i));
		html_meter(html, (double)cache->read_sizes[i] / (double)most, "fetch");
		html_number(html, "%llu", (unsigned long long)cache->read_sizes[i]);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void bytes_row(const struct html *html, const char *name, uint64_t bytes)
{
	char text[16];

	fprintf(html->stream, "<tr><td>%s</td>", name);
	html_number(html, "%s", units_format_bytes(text, sizeof(text), bytes));
	fputs("</tr>\n", html->stream);
}

static void totals(const struct html *html, const struct page_cache *cache)
{
	fputs("<div><h3>In all</h3><table><tbody>\n", html->stream);
	bytes_row(html, "requested by read calls, or touched in mapped files", cache->used_bytes);
	bytes_row(html, "read from storage", cache->cold_bytes);
	if (cache->direct_bytes)
		bytes_row(html, "of these, past the page cache (O_DIRECT)", cache->direct_bytes);
	if (cache->network_bytes)
		bytes_row(html, "over sockets", cache->network_bytes);
	fputs("<tr><td>read calls</td>", html->stream);
	html_number(html, "%llu", (unsigned long long)cache->n_reads);
	fputs("</tr>\n", html->stream);
	if (cache->accessed_pages) {
		fputs("<tr><td>page cache hits</td>", html->stream);
		html_number(html, "%.1f %%",
			    100 * page_cache_hit_ratio(cache->accessed_pages, cache->missed_pages));
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void mapped(const struct html *html, const struct page_cache *cache)
{
	const struct page_cache_mapped *from = &cache->mapped;
	char text[24];

	if (!from->n_major_faults && !from->n_minor_faults)
		return;
	fprintf(html->stream, "<p>Mapped files: %llu page faults, ",
		(unsigned long long)(from->n_major_faults + from->n_minor_faults));
	if (!from->n_major_faults) {
		fputs("none of which had to read from storage.</p>\n", html->stream);
		return;
	}
	fprintf(html->stream, "of which %llu had to read from storage: %s of thread time",
		(unsigned long long)from->n_major_faults,
		units_format_duration(text, sizeof(text), from->fault_ns));
	if (isfinite(from->random_ratio))
		fprintf(html->stream, "; %.0f %% of them jump", 100 * from->random_ratio);
	fprintf(html->stream, "; %llu pages read ahead.</p>\n", (unsigned long long)from->read_ahead_pages);
}

static void html_reads(const struct html *html)
{
	const struct page_cache *cache = html->analysis->page_cache;

	if (!cache)
		return;
	fputs("<section id=\"reads\" class=\"panel\">\n<h2>File reads</h2>\n<div "
	      "class=\"columns\">",
	      html->stream);
	totals(html, cache);
	read_sizes(html, cache);
	fputs("</div>\n", html->stream);
	if (page_cache_excess(cache) > 0)
		fprintf(html->stream,
			"<p class=\"note\">%.1f times as much came from storage as was used: read-ahead that "
			"nobody "
			"wanted.</p>\n",
			page_cache_excess(cache));
	mapped(html, cache);
	page_cache_places(html, "Folders", cache->folders, cache->n_folders);
	page_cache_places(html, "Files", cache->files, cache->n_files);
	fputs("</section>\n", html->stream);
}

static const struct {
	const char *title, *unit;
	double factor;
} axes[WHAT_IF_AXES] = {
    [WHAT_IF_CACHE] = {"share of the dataset in memory", "%", 100},
    [WHAT_IF_WORKERS] = {"worker processes", "", 1},
    [WHAT_IF_STORAGE] = {"storage bandwidth", "x", 1},
    [WHAT_IF_DEVICE] = {"device speed", "x", 1},
    [WHAT_IF_SAMPLE_SIZE] = {"bytes a sample", "x", 1},
    [WHAT_IF_CORES] = {"cores", "", 1},
};

static void what_if_table(const struct html *html, enum what_if_axis axis, const struct what_if_curve *curve)
{
	fprintf(html->stream,
		"<div><h3>%s</h3><table><thead><tr><th class=\"n\">at</th><th class=\"n\">steps/s</th><th "
		"class=\"n\">95 %% interval</th><th class=\"n\">fetch stall</th><th class=\"n\">prep "
		"stall</th></tr>"
		"</thead><tbody>\n",
		axes[axis].title);
	for (size_t i = 0; i < curve->n_points; i++) {
		const struct what_if_point *point = &curve->points[i];

		fputs("<tr>", html->stream);
		html_number(html, "%.4g %s", point->x * axes[axis].factor, axes[axis].unit);
		html_number(html, "%.2fx", point->speedup.value);
		html_number(html, "%.2f to %.2f", point->speedup.low, point->speedup.high);
		html_number(html, "%.0f %%", 100 * point->fetch_stall);
		html_number(html, "%.0f %%", 100 * point->prep_stall);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void needed(const struct html *html, const char *before, const struct estimate *estimate,
		   double factor, const char *unit)
{
	if (isfinite(estimate->value))
		fprintf(html->stream,
			"<tr><td>%s</td><td class=\"n\">%.3g%s</td><td class=\"n quiet\">%.3g to "
			"%.3g</td></tr>\n",
			before, estimate->value * factor, unit, estimate->low * factor,
			estimate->high * factor);
}

static void all_needed(const struct html *html, const struct predictions *from)
{
	fputs("<h3>The least that, by itself, leaves under 2 % of data wait</h3><table><tbody>\n",
	      html->stream);
	needed(html, "of the dataset in memory", &from->cache_ratio_needed, 100, " %");
	needed(html, "worker processes", &from->workers_needed, 1, "");
	needed(html, "times the storage bandwidth", &from->storage_factor_needed, 1, "x");
	if (!isfinite(from->cache_ratio_needed.value) && !isfinite(from->workers_needed.value) &&
	    !isfinite(from->storage_factor_needed.value))
		fputs("<tr><td>none of memory, workers and storage does</td></tr>\n", html->stream);
	fputs("</tbody></table>\n", html->stream);
}

static void html_what_if(const struct html *html)
{
	const struct predictions *from = html->analysis->predictions;

	if (!from)
		return;
	fputs(
	    "<section id=\"what-if\" class=\"panel\">\n<h2>What if <span class=\"hint\">predicted speed-up, "
	    "with "
	    "95 % intervals; the ring is where the job is now</span></h2>\n<div id=\"curves\" class=\"curves "
	    "needs-js\"></div>\n",
	    html->stream);
	if (analysis_steady_ratio(html->analysis, SHARE_FETCH_STALL) +
		analysis_steady_ratio(html->analysis, SHARE_PREP_STALL) >=
	    NOTABLE_WAIT)
		all_needed(html, from);
	fputs("<details><summary>The curves as tables</summary><div class=\"columns\">", html->stream);
	for (enum what_if_axis i = 0; i < WHAT_IF_AXES; i++)
		if (from->curves[i].n_points)
			what_if_table(html, i, &from->curves[i]);
	fputs("</div></details></section>\n", html->stream);
}

static void html_gpu(const struct html *html)
{
	const struct gpu_use *gpu = html->analysis->gpu;
	char wait[24], spin[24], starved[24];

	if (!gpu)
		return;
	html_section(html, "gpu", "GPU", NULL);
	fprintf(html->stream,
		"<p>%llu launches, %llu copies; the trainer waited %s for the GPU (%s of it spinning on a "
		"CPU). The GPU had nothing to do for at least %s while the trainer waited for data.",
		(unsigned long long)gpu->n_launches, (unsigned long long)gpu->n_copies,
		units_format_duration(wait, sizeof(wait), gpu->wait_ns),
		units_format_duration(spin, sizeof(spin), gpu->spin_ns),
		units_format_duration(starved, sizeof(starved), gpu->starved_ns));
	if (isfinite(gpu->utilization))
		fprintf(html->stream, " Utilisation by NVML: %.0f %%.", 100 * gpu->utilization);
	if (!gpu->launches_known)
		fputs(" Too many launches to count all: these figures are too low.", html->stream);
	fputs("</p><p class=\"quiet\">Driver: <code>", html->stream);
	escape_html(html->stream, gpu->library);
	fputs("</code></p>\n<div class=\"scroll\"><table><thead><tr><th>call</th><th></th><th "
	      "class=\"n\">calls</th>"
	      "<th class=\"n\">time</th><th class=\"n\">spinning</th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < gpu->n_calls; i++) {
		const struct gpu_call *call = &gpu->calls[i];

		fputs("<tr><td class=\"mono\">", html->stream);
		escape_html(html->stream, call->name);
		fputs("</td>", html->stream);
		html_meter(html, gpu->calls[0].ns ? (double)call->ns / (double)gpu->calls[0].ns : 0, "gpu");
		html_number(html, "%llu", (unsigned long long)call->n);
		html_number(html, "%s", units_format_duration(wait, sizeof(wait), call->ns));
		html_number(html, "%s", units_format_duration(spin, sizeof(spin), call->spin_ns));
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div></section>\n", html->stream);
}

static void html_phases(const struct html *html)
{
	const struct phase_times *phases = html->analysis->phases;
	double wall_ns = (double)html->analysis->window.observed_ns;
	char text[24];

	if (!phases || !phases->n)
		return;
	html_section(html, "phases", "Ranges of the program",
		     "NVTX and USDT ranges on the trainer's thread; ranges may be nested");
	fputs("<div class=\"scroll\"><table><thead><tr><th>range</th><th></th><th class=\"n\">times</th><th "
	      "class=\"n\">time</th><th class=\"n\">of step time</th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < phases->n; i++) {
		const struct phase_time *phase = &phases->items[i];

		fputs("<tr><td class=\"path mono\">", html->stream);
		escape_html(html->stream, phase->name);
		fputs("</td>", html->stream);
		html_meter(html, phases->items[0].ns ? (double)phase->ns / (double)phases->items[0].ns : 0,
			   "device");
		html_number(html, "%llu", (unsigned long long)phase->n);
		html_number(html, "%s", units_format_duration(text, sizeof(text), phase->ns));
		html_number(html, "%.0f %%", wall_ns > 0 ? 100 * (double)phase->ns / wall_ns : 0);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div></section>\n", html->stream);
}

static void workers(const struct html *html)
{
	const struct analysis_workers *from = &html->analysis->workers;
	const struct {
		const char *class_name, *name;
		uint64_t ns;
	} parts[] = {
	    {"fetch", "fetching", from->fetch_ns},
	    {"prep", "computing", from->cpu_ns},
	    {"starved", "without a core", from->queue_ns},
	    {"blocked", "handing over", from->blocked_ns},
	    {"idle", "idle, ahead of the trainer", from->idle_ns},
	};
	double sum = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		sum += (double)parts[i].ns;
	if (!from->n || sum <= 0)
		return;
	fprintf(html->stream, "<h3>%u worker%s</h3>\n<div class=\"bar thin\" aria-hidden=\"true\">",
		from->n_at_once, from->n_at_once == 1 ? "" : "s");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].ns)
			fprintf(html->stream, "<span class=\"%s\" style=\"flex-grow:%.4f\"></span>",
				parts[i].class_name, (double)parts[i].ns / sum);
	fputs("</div>\n<div class=\"legend\" style=\"margin-top:6px\">", html->stream);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		fprintf(html->stream, "<span><span class=\"swatch %s\"></span>%s %.0f %%</span> ",
			parts[i].class_name, parts[i].name, 100 * (double)parts[i].ns / sum);
	fputs("</div>\n", html->stream);
}

static void html_evidence(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	uint64_t most_ns = 1;
	char text[24];

	if (!analysis->n_evidence)
		return;
	for (size_t i = 0; i < analysis->n_evidence; i++)
		most_ns = analysis->evidence[i].ns > most_ns ? analysis->evidence[i].ns : most_ns;
	html_section(html, "evidence", "Waits of the trainer",
		     analysis->steady.n_warmup_steps
			 ? "the thread and the call that the trainer waited for, including warm-up"
			 : "the thread and the call that the trainer waited for");
	fputs("<div class=\"scroll\"><table><thead><tr><th>thread</th><th>was</th><th></th><th class=\"n\">"
	      "time</th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < analysis->n_evidence; i++) {
		const struct analysis_evidence *item = &analysis->evidence[i];

		fputs("<tr><td>", html->stream);
		escape_html(html->stream, item->role);
		fputs("</td><td>", html->stream);
		escape_html(html->stream, item->what);
		fputs("</td>", html->stream);
		html_meter(html, (double)item->ns / (double)most_ns, item->fetch ? "fetch" : "prep");
		html_number(html, "%s", units_format_duration(text, sizeof(text), item->ns));
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
	workers(html);
	fputs("</section>\n", html->stream);
}

static void profile_table(const struct html *html, const char *title, const struct profile_item *items,
			  size_t n, uint64_t n_samples)
{
	fprintf(html->stream, "<div><h3>%s</h3><div class=\"scroll\"><table><tbody>\n", title);
	for (size_t i = 0; i < n && i < 12; i++) {
		double ratio = n_samples ? (double)items[i].n_samples / (double)n_samples : 0;

		fputs("<tr><td class=\"path mono\">", html->stream);
		escape_html(html->stream, items[i].name);
		if (items[i].library) {
			fputs(" <span class=\"quiet\">", html->stream);
			escape_html(html->stream, items[i].library);
			fputs("</span>", html->stream);
		}
		if (items[i].caller) {
			fputs(" <span class=\"quiet\">in ", html->stream);
			escape_html(html->stream, items[i].caller);
			fputs("</span>", html->stream);
		}
		fputs("</td>", html->stream);
		html_meter(html, ratio, "prep");
		html_number(html, "%.1f %%", 100 * ratio);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div></div>\n", html->stream);
}

static void html_profile(const struct html *html)
{
	const struct profile *profile = html->analysis->profile;

	if (!profile || !profile->n_samples)
		return;
	html_section(html, "profile", "CPU time of preparing", NULL);
	fprintf(
	    html->stream,
	    "<p class=\"quiet\">%llu samples at %.0f Hz of the threads that prepare batches, without their "
	    "reading.",
	    (unsigned long long)profile->n_samples, profile->rate_hz);
	if (profile->n_unknown)
		fprintf(html->stream, " %.0f %% of the samples are in unknown libraries.",
			100 * (double)profile->n_unknown / (double)profile->n_samples);
	fputs("</p>\n<div id=\"flame\" class=\"needs-js\"></div>\n<div class=\"columns\">", html->stream);
	profile_table(html, "By library", profile->libraries, profile->n_libraries, profile->n_samples);
	profile_table(html, "By function", profile->functions, profile->n_functions, profile->n_samples);
	fputs("</div></section>\n", html->stream);
}

#define CHECKPOINT_ROWS 50

/* Formats a difference of steps, which chance may put below 0. */
static char *excess(char *buffer, size_t size, double ns)
{
	if (isnan(ns))
		snprintf(buffer, size, "?");
	else
		units_format_duration(buffer, size, ns > 0 ? (uint64_t)ns : 0);
	return buffer;
}

static void checkpoint_row(const struct html *html, size_t i)
{
	const struct checkpoint_item *item = &html->analysis->checkpoints->items[i];
	uint64_t window_ns = html->analysis->window.begin_ns;
	char text[24];

	fputs("<tr>", html->stream);
	html_number(html, "%s",
		    units_format_duration(text, sizeof(text),
					  item->begin_ns > window_ns ? item->begin_ns - window_ns : 0));
	html_number(html, "%s", units_format_duration(text, sizeof(text), item->stall_ns));
	html_number(html, "%s", excess(text, sizeof(text), item->copy_ns));
	html_number(html, "%s", excess(text, sizeof(text), item->tail_ns));
	html_number(html, "%s", units_format_bytes(text, sizeof(text), item->bytes));
	html_number(html, "%s", units_format_duration(text, sizeof(text), item->write_ns));
	html_number(html, "%s", units_format_duration(text, sizeof(text), item->fsync_ns));
	html_number(html, "%s", units_format_duration(text, sizeof(text), item->writeback_ns));
	fputs("</tr>\n", html->stream);
}

static void html_checkpoints(const struct html *html)
{
	const struct checkpoint_report *report = html->analysis->checkpoints;
	char text[640];

	if (!report || !report->n_items)
		return;
	html_section(html, "checkpoints", "Checkpoints", NULL);
	fputs("<p>", html->stream);
	if (isfinite(report->interval_steps))
		fprintf(html->stream, "One every %.0f steps. ", report->interval_steps);
	fputs(words_interval(text, sizeof(text), html->analysis), html->stream);
	fprintf(html->stream, " %s", words_tail(text, sizeof(text), html->analysis));
	fputs("</p>\n<div class=\"scroll\"><table><thead><tr><th class=\"n\">at</th><th "
	      "class=\"n\">stall</th><th class=\"n\">copying</th><th class=\"n\">slower steps</th><th "
	      "class=\"n\">written</th><th class=\"n\">in write</th><th class=\"n\">in fsync</th><th "
	      "class=\"n\">of both: writeback</th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < report->n_items && i < CHECKPOINT_ROWS; i++)
		checkpoint_row(html, i);
	fputs("</tbody></table></div>\n", html->stream);
	if (report->n_items > CHECKPOINT_ROWS)
		fprintf(html->stream, "<p class=\"quiet\">The first %d of %zu.</p>\n", CHECKPOINT_ROWS,
			report->n_items);
	fputs("</section>\n", html->stream);
}

static void rank_row(const struct html *html, const struct analysis_rank *rank)
{
	double wall = (double)rank->window_ns;
	char text[24];

	fprintf(html->stream, "<tr><td class=\"mono\">%u</td>", rank->tgid);
	html_number(html, "%zu", rank->n_steps);
	html_number(html, "%s", units_format_duration(text, sizeof(text), rank->window_ns));
	fputs("<td class=\"fill\"><div class=\"bar thin\">", html->stream);
	for (size_t i = 0; i < SHARE_COUNT && wall > 0; i++)
		fprintf(html->stream,
			"<span class=\"%s\" style=\"flex-grow:%.4f\" title=\"%s %.1f %%\"></span>",
			share_labels[i].class_name, (double)rank->share_ns[share_labels[i].share] / wall,
			share_labels[i].name, 100 * (double)rank->share_ns[share_labels[i].share] / wall);
	fputs("</div></td>", html->stream);
	html_number(html, "%.0f %%",
		    wall > 0 ? 100 *
				   ((double)rank->share_ns[SHARE_FETCH_STALL] +
				    (double)rank->share_ns[SHARE_PREP_STALL]) /
				   wall
			     : 0);
	html_number(html, "%.0f %%", wall > 0 ? 100 * (double)rank->collective_ns / wall : 0);
	fprintf(html->stream, "<td>%s</td></tr>\n", rank->straggler ? "<b>straggler</b>" : "");
}

static void html_ranks(const struct html *html)
{
	const struct analysis *analysis = html->analysis;

	if (!analysis->n_ranks)
		return;
	html_section(html, "ranks", "Ranks",
		     "shares of each rank's own steps; the other ranks wait for a straggler");
	fputs("<div class=\"scroll\"><table><thead><tr><th>process</th><th class=\"n\">steps</th><th "
	      "class=\"n\">time</th><th>shares</th><th class=\"n\">data "
	      "wait</th><th class=\"n\">until others came</th><th></th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < analysis->n_ranks; i++)
		rank_row(html, &analysis->ranks[i]);
	fputs("</tbody></table></div></section>\n", html->stream);
}

static void about_row(const struct html *html, const char *name, const char *value)
{
	fprintf(html->stream, "<tr><th scope=\"row\">%s</th><td class=\"path\">", name);
	escape_html(html->stream, value);
	fputs("</td></tr>\n", html->stream);
}

static void html_about(const struct html *html)
{
	const struct analysis *analysis = html->analysis;
	char text[320], a[24], b[24], c[24];

	html_section(html, "about", "Measurement", NULL);
	fputs("<div class=\"scroll\"><table><tbody>\n", html->stream);
	if (analysis->job.command)
		about_row(html, "command", analysis->job.command);
	snprintf(text, sizeof(text), "process %u, thread %u; %s", analysis->job.trainer_tgid,
		 analysis->job.trainer_tid, words_loader(analysis));
	about_row(html, "trainer", text);
	snprintf(text, sizeof(text), "%s (start-up %s and tear-down %s are not in the shares)",
		 units_format_duration(a, sizeof(a), analysis->window.end_ns - analysis->window.begin_ns),
		 units_format_duration(b, sizeof(b), analysis->window.startup_ns),
		 units_format_duration(c, sizeof(c), analysis->window.teardown_ns));
	about_row(html, "time", text);
	if (words_restored(text, sizeof(text), analysis)[0])
		about_row(html, "restored", text);
	snprintf(
	    text, sizeof(text), "%s. ",
	    units_format_duration(a, sizeof(a), analysis->recorded.end_ns - analysis->recorded.begin_ns));
	words_unrecorded(text + strlen(text), sizeof(text) - strlen(text), analysis);
	about_row(html, "recording", text);
	if (analysis->steady.n_warmup_steps) {
		snprintf(text, sizeof(text), "%zu steps, %s", analysis->steady.n_warmup_steps,
			 units_format_duration(a, sizeof(a), analysis->steady.warmup_ns));
		about_row(html, "warm-up", text);
	}
	snprintf(text, sizeof(text),
		 "%.0f %% of the steps have no lost events; fetch and prep were told apart by %s",
		 100 * analysis->recorded.coverage_ratio, analysis_method_name(analysis->job.method));
	about_row(html, "coverage", text);
	if (html->source.kernel) {
		snprintf(text, sizeof(text), "%.100s, %u CPUs", html->source.kernel, analysis->job.n_cpus);
		about_row(html, "kernel", text);
	}
	if (html->source.recording)
		about_row(html, "recording", html->source.recording);
	if (words_missing(text, sizeof(text), analysis)[0])
		about_row(html, "not known", text);
	fputs("</tbody></table></div></section>\n", html->stream);
}

static void place_version(const struct html *html)
{
	escape_html(html->stream, html->source.version ? html->source.version : DIESEL_VERSION);
}

static void place_title(const struct html *html)
{
	fprintf(html->stream, "%s", analysis_verdict_name(html->analysis->verdict));
	if (html->analysis->job.command) {
		fputs(": ", html->stream);
		escape_html(html->stream, html->analysis->job.command);
	}
}

static void place_command(const struct html *html)
{
	if (html->analysis->job.command)
		escape_html(html->stream, html->analysis->job.command);
	else
		fprintf(html->stream, "process %u", html->analysis->job.root_tgid);
}

static void place_where(const struct html *html)
{
	time_t seconds = (time_t)(html->source.clocks.realtime_ns / NS_PER_S);
	struct tm utc;
	char text[40];

	if (html->source.host)
		escape_html(html->stream, html->source.host);
	if (seconds && gmtime_r(&seconds, &utc)) {
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
		fprintf(html->stream, "%s<time>%s</time>", html->source.host ? ", " : "", text);
	}
}

static void asset_print(const struct html *html, struct asset asset)
{
	fwrite(asset.bytes, 1, asset.length, html->stream);
}

static void place_style(const struct html *html)
{
	asset_print(html, asset_style());
}

static void place_script(const struct html *html)
{
	asset_print(html, asset_script());
}

static const struct {
	const char *name;
	void (*print)(const struct html *html);
} places[] = {
    {"version", place_version}, {"title", place_title},
    {"command", place_command}, {"where", place_where},
    {"style", place_style},     {"script", place_script},
    {"summary", html_summary},  {"actions", html_actions},
    {"figures", html_figures},  {"evidence", html_evidence},
    {"what_if", html_what_if},  {"reads", html_reads},
    {"profile", html_profile},  {"gpu", html_gpu},
    {"phases", html_phases},    {"checkpoints", html_checkpoints},
    {"ranks", html_ranks},      {"about", html_about},
    {"data", html_data},
};

static void place_print(const struct html *html, const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (strlen(places[i].name) == length && !memcmp(places[i].name, name, length)) {
			places[i].print(html);
			return;
		}
	assert(!"page.html has a placeholder without content");
}

int report_html(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	struct html html = {.stream = stream, .analysis = analysis};
	struct asset page = asset_page();
	const char *at = page.bytes, *end = page.bytes + page.length;

	if (source)
		html.source = *source;
	errno = 0;
	while (at < end) {
		const char *open = memmem(at, (size_t)(end - at), "{{", 2);
		const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;

		if (!close) {
			fwrite(at, 1, (size_t)(end - at), stream);
			break;
		}
		fwrite(at, 1, (size_t)(open - at), stream);
		place_print(&html, open + 2, (size_t)(close - open - 2));
		at = close + 2;
	}
	if (fflush(stream) || ferror(stream))
		return errno ? -errno : -EIO;
	return 0;
}
