/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "layout.h"
#include "lib/clock.h"
#include "lib/units.h"
#include "reports/words/share_label.h"
#include "text_explain.h"
#include "reports/words/words.h"

/* Glyphs and styles of the shares, in the order of share_labels. */
static const struct {
	const char *glyph, *glyph_ascii;
	enum layout_style style;
} glyphs[SHARE_COUNT] = {
    {"█", "#", STYLE_RED},  {"▓", "%", STYLE_YELLOW}, {"▒", "+", STYLE_MAGENTA}, {"▚", "@", STYLE_BLUE},
    {"░", ":", STYLE_CYAN}, {"·", ".", STYLE_DIM},    {"━", "=", STYLE_GREEN},
};

#define MARGIN LAYOUT_MARGIN

static void verdict_line(const struct layout *layout, const struct analysis *analysis)
{
	const char *name = analysis_verdict_name(analysis->verdict);
	char reason[256], trust[128], text[512];

	snprintf(text, sizeof(text), "%s (%s)", words_verdict(reason, sizeof(reason), analysis),
		 words_trust(trust, sizeof(trust), analysis));
	layout_style(layout, STYLE_BOLD);
	fprintf(layout->stream, "%s:", name);
	layout_style(layout, STYLE_PLAIN);
	fputc(' ', layout->stream);
	layout_wrap(layout, text, (unsigned int)strlen(name) + 2, 0);
	if (analysis->verdict != ANALYSIS_INSUFFICIENT && words_approximate(text, sizeof(text), analysis)[0])
		layout_wrap(layout, text, 0, 0);
	if (analysis->note[0])
		layout_wrap(layout, analysis->note, 0, 0);
	if (analysis->recorded.n_lost)
		layout_wrap(layout, "Events were lost: the shares of these steps may be slightly off.", 0, 0);
}

static void share_row(const struct layout *layout, const struct analysis *analysis, size_t i,
		      const struct report_shares *shown)
{
	const struct share_label *look = &share_labels[i];
	char total[24], mean[24], percent[16];
	uint64_t ns = shown->ns[look->share];
	bool known = analysis_share_known(analysis, look->share);

	/* Compiling that is not in these shares has no row; a separate line reports its time. */
	if (look->share == SHARE_COMPILING && known && !ns)
		return;
	snprintf(percent, sizeof(percent), analysis->sampled.is ? "%.0f %%" : "%.1f %%",
		 100 * report_shares_ratio(shown, look->share));
	fprintf(layout->stream, "%*s", MARGIN, "");
	layout_style(layout, glyphs[i].style);
	fputs(layout->options.ascii ? glyphs[i].glyph_ascii : glyphs[i].glyph, layout->stream);
	layout_style(layout, STYLE_PLAIN);
	fprintf(layout->stream, " %-12s%7s%10s%11s   ", look->name, known ? percent : "?",
		known ? units_format_duration(total, sizeof(total), ns) : "-",
		known && shown->n_steps ? units_format_duration(mean, sizeof(mean), ns / shown->n_steps)
					: "-");
	layout_style(layout, STYLE_DIM);
	fputs(known ? look->meaning : "not seen: no Python stacks", layout->stream);
	layout_style(layout, STYLE_PLAIN);
	fputc('\n', layout->stream);
}

static void shares(const struct layout *layout, const struct analysis *analysis)
{
	struct layout_part parts[SHARE_COUNT];
	char text[320];
	struct report_shares shown = report_shares(analysis);

	for (size_t i = 0; i < SHARE_COUNT; i++)
		parts[i] = (struct layout_part){
		    .ratio = report_shares_ratio(&shown, share_labels[i].share),
		    .glyph = layout->options.ascii ? glyphs[i].glyph_ascii : glyphs[i].glyph,
		    .style = glyphs[i].style,
		};
	fprintf(layout->stream, "\n%*s", MARGIN, "");
	layout_bar(layout, parts, SHARE_COUNT, layout->options.width - 2 * MARGIN);
	fprintf(layout->stream, "\n\n%*s", MARGIN, "");
	layout_style(layout, STYLE_DIM);
	fprintf(layout->stream, "  %-12s%7s%10s%11s\n", "", "share", "time", "a step");
	layout_style(layout, STYLE_PLAIN);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		share_row(layout, analysis, i, &shown);
	if (words_whole(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
	if (words_excluded(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
	if (words_warmup(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
}

/* Prints the causes of parts of the shares. */
static void asides(const struct layout *layout, const struct analysis *analysis)
{
	uint64_t noise_ns = analysis->window.observed_ns / 100;
	char time[24];

	if (analysis->parts.head_of_line_ns > noise_ns)
		layout_line(layout,
			    "For %s of the data wait, another worker's batch was ready, but the loader keeps "
			    "the order of batches.",
			    units_format_duration(time, sizeof(time), analysis->parts.head_of_line_ns));
	if (analysis->parts.gil_starved_ns > noise_ns)
		layout_line(layout,
			    "Outside of data waits, the trainer waited %s for the interpreter lock (counted "
			    "as cpu starved).",
			    units_format_duration(time, sizeof(time), analysis->parts.gil_starved_ns));
	if (analysis->parts.asleep_ns > noise_ns)
		layout_line(layout, "The trainer was sleeping on purpose for %s (counted as other).",
			    units_format_duration(time, sizeof(time), analysis->parts.asleep_ns));
}

static const char *wait_text(char *buffer, size_t size, const struct analysis *analysis)
{
	char mean[24], p95[24];

	units_format_duration(mean, sizeof(mean), analysis->wait_mean_ns);
	units_format_duration(p95, sizeof(p95), analysis->wait_p95_ns);
	if (!report_wait_known(analysis))
		return "unknown";
	snprintf(buffer, size, analysis->sampled.is ? "mean %s" : "mean %s, 95th percentile %s", mean, p95);
	return buffer;
}

static const char *read_text(char *buffer, size_t size, const struct analysis *analysis)
{
	double wall_s = (double)analysis->window.observed_ns / (double)NS_PER_S;
	char bytes[16], rate[16];

	if (!analysis->window.read_bytes_known || wall_s <= 0)
		return "unknown";
	snprintf(
	    buffer, size, "%s (%s/s)", units_format_bytes(bytes, sizeof(bytes), analysis->window.read_bytes),
	    units_format_bytes(rate, sizeof(rate), (uint64_t)((double)analysis->window.read_bytes / wall_s)));
	return buffer;
}

static void evidence(const struct layout *layout, const struct analysis *analysis)
{
	double wall_s = (double)analysis->window.observed_ns / (double)NS_PER_S;
	char wait[80], read[48], time[24];

	layout_heading(layout, analysis->steady.n_warmup_steps ? "Waits of the trainer (with warm-up)"
							       : "Waits of the trainer");
	for (size_t i = 0; i < analysis->n_evidence; i++) {
		const struct analysis_evidence *item = &analysis->evidence[i];

		/* Less than a thousandth of the window is noise. */
		if (wall_s <= 0 || (double)item->ns / (double)NS_PER_S < wall_s / 1000)
			continue;
		fprintf(layout->stream, "%*s%10s  %-6s %-19s%s\n", MARGIN, "",
			units_format_duration(time, sizeof(time), item->ns), item->fetch ? "fetch" : "prep",
			item->role, item->what);
	}
	layout_line(layout, "Data wait per step: %s. Files read: %s.",
		    wait_text(wait, sizeof(wait), analysis), read_text(read, sizeof(read), analysis));
	asides(layout, analysis);
}

static void workers(const struct layout *layout, const struct analysis *analysis)
{
	const struct analysis_workers *from = &analysis->workers;
	double sum = (double)from->fetch_ns + (double)from->cpu_ns + (double)from->queue_ns +
		     (double)from->idle_ns + (double)from->blocked_ns;

	if (!from->n || sum <= 0)
		return;
	layout_line(layout,
		    "%u worker%s: %.0f %% fetching, %.0f %% computing, %.0f %% without a core, %.0f %% idle, "
		    "%.0f %% handing over.",
		    from->n_at_once, from->n_at_once == 1 ? "" : "s", 100 * (double)from->fetch_ns / sum,
		    100 * (double)from->cpu_ns / sum, 100 * (double)from->queue_ns / sum,
		    100 * (double)from->idle_ns / sum, 100 * (double)from->blocked_ns / sum);
}

static void actions(const struct layout *layout, const struct analysis *analysis)
{
	layout_heading(layout, "Recommendations");
	for (size_t i = 0; i < analysis->n_actions; i++) {
		const struct analysis_action *action = &analysis->actions[i];
		char text[600], gain[160];

		snprintf(text, sizeof(text), "%s. %s.", action->text, words_gain(gain, sizeof(gain), action));
		fprintf(layout->stream, "%*s%zu. ", MARGIN, "", i + 1);
		layout_wrap(layout, text, MARGIN + 3, MARGIN + 3);
	}
	text_needed(layout, analysis);
}

static void about(const struct layout *layout, const struct analysis *analysis)
{
	char window[24], recorded[24], startup[24], teardown[24], command[400], inside[64] = "";
	char text[160];

	layout_heading(layout, "Measurement");
	if (analysis->job.command)
		layout_line(layout, "%s",
			    layout_printable(layout, command, sizeof(command), analysis->job.command));
	if (analysis->job.trainer_ns_tgid && analysis->job.trainer_ns_tgid != analysis->job.trainer_tgid)
		snprintf(inside, sizeof(inside), " (in its container: %u and %u)",
			 analysis->job.trainer_ns_tgid, analysis->job.trainer_ns_tid);
	layout_line(layout, "Process %u, trainer thread %u%s; %s.", analysis->job.trainer_tgid,
		    analysis->job.trainer_tid, inside, words_loader(analysis));
	layout_line(layout, "%s of %s recorded were analysed (without start-up %s and tear-down %s).",
		    units_format_duration(window, sizeof(window), analysis->window.observed_ns),
		    units_format_duration(recorded, sizeof(recorded),
					  analysis->recorded.end_ns - analysis->recorded.begin_ns),
		    units_format_duration(startup, sizeof(startup), analysis->window.startup_ns),
		    units_format_duration(teardown, sizeof(teardown), analysis->window.teardown_ns));
	if (words_restored(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
	if (words_unrecorded(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
	if (analysis->n_incomplete)
		layout_line(layout, "%zu of %zu steps may lack events (coverage %.0f %%).",
			    analysis->n_incomplete, analysis->n_steps,
			    100 * analysis->recorded.coverage_ratio);
}

int report_text(FILE *stream, const struct analysis *analysis, const struct report_text_options *options)
{
	struct layout layout = {.stream = stream, .options = *options};

	if (!layout.options.width)
		layout.options.width = 80;
	errno = 0;
	verdict_line(&layout, analysis);
	if (analysis->verdict != ANALYSIS_INSUFFICIENT) {
		shares(&layout, analysis);
		if (analysis->n_evidence) {
			evidence(&layout, analysis);
			workers(&layout, analysis);
		}
		text_reads(&layout, analysis);
		text_profile(&layout, analysis);
		text_gpu(&layout, analysis);
		text_phases(&layout, analysis);
		text_checkpoints(&layout, analysis);
		text_ranks(&layout, analysis);
		actions(&layout, analysis);
	}
	if (analysis->job.trainer_tid)
		about(&layout, analysis);
	if (fflush(stream) || ferror(stream))
		return errno ? -errno : -EIO;
	return 0;
}
