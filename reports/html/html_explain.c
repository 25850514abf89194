/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <math.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"
#include "lib/units.h"
#include "reports/words/share_label.h"
#include "reports/words/words.h"

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

void html_evidence(const struct html *html)
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

void html_profile(const struct html *html)
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

void html_checkpoints(const struct html *html)
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

void html_ranks(const struct html *html)
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

void html_about(const struct html *html)
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
