/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "layout.h"
#include "lib/clock.h"
#include "lib/units.h"
#include "reports/words/words.h"

#define WIDTH_DEFAULT 80
#define WIDTH_MIN     60
#define WIDTH_MAX     100 /* maximum width, because longer lines are hard to read */

struct report_text_options report_text_options_for(FILE *stream)
{
	struct report_text_options options = {.width = WIDTH_DEFAULT};
	const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
	struct winsize size;

	options.ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	if (!isatty(fileno(stream)))
		return options;
	options.colour = !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
	if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col)
		options.width = size.ws_col;
	if (options.width < WIDTH_MIN)
		options.width = WIDTH_MIN;
	if (options.width > WIDTH_MAX)
		options.width = WIDTH_MAX;
	return options;
}

/* Optional sections of the text report: each prints nothing if the recording lacks its data. */

/* Maximum rows of each list; the other reports have more. */
#define PLACES_SHOWN    3
#define LIBRARIES_SHOWN 4
#define PHASES_SHOWN    12
#define FUNCTIONS_SHOWN 3
#define RANKS_SHOWN     16

#define NOTABLE_WAIT 0.05 /* minimum share of data wait for which remedies are shown */
#define NOTABLE      0.01 /* minimum part that is shown */

/* Prints the size of the reads that account for most bytes. The most frequent size would say less: it may be
 * 0, for reads at the ends of files. */
static void most_reads(const struct page_cache *cache, char *text, size_t size)
{
	double bytes_most = 0;
	char from[16], to[16];

	text[0] = '\0';
	for (size_t i = 1; i < PAGE_CACHE_SIZES; i++) {
		double bytes = (double)cache->read_sizes[i] * (double)(UINT64_C(1) << i);

		if (bytes <= bytes_most)
			continue;
		bytes_most = bytes;
		snprintf(text, size, ", most bytes by reads of %s to %s",
			 units_format_bytes(from, sizeof(from), UINT64_C(1) << i),
			 units_format_bytes(to, sizeof(to), UINT64_C(2) << i));
	}
}

static void places(const struct layout *layout, const struct page_cache_place *items, size_t n)
{
	for (size_t i = 0; i < n && i < PLACES_SHOWN; i++) {
		char bytes[16], path[300], hits[32] = "";

		if (!items[i].used_bytes && !items[i].cold_bytes)
			continue;
		if (items[i].accessed_pages)
			snprintf(hits, sizeof(hits), "%3.0f %% hits",
				 100 * page_cache_hit_ratio(items[i].accessed_pages, items[i].missed_pages));
		fprintf(layout->stream, "%*s%10s  %-10s  ", LAYOUT_MARGIN, "",
			units_format_bytes(bytes, sizeof(bytes), items[i].used_bytes), hits);
		layout_wrap(layout,
			    layout_printable(layout, path, sizeof(path), items[i].path ? items[i].path : "?"),
			    LAYOUT_MARGIN + 24, LAYOUT_MARGIN + 24);
	}
}

static void text_reads(const struct layout *layout, const struct analysis *analysis)
{
	const struct page_cache *cache = analysis->page_cache;
	char cold[16], used[16], network[16], sizes[64], hits[48] = "", sockets[48] = "";

	if (!cache || (!cache->used_bytes && !cache->cold_bytes))
		return;
	most_reads(cache, sizes, sizeof(sizes));
	if (cache->accessed_pages)
		snprintf(hits, sizeof(hits), "; %.0f %% page cache hits",
			 100 * page_cache_hit_ratio(cache->accessed_pages, cache->missed_pages));
	if (cache->network_bytes)
		snprintf(sockets, sizeof(sockets), " (%s over sockets)",
			 units_format_bytes(network, sizeof(network), cache->network_bytes));
	layout_heading(layout, "File reads");
	layout_line(layout, "%s used, %s read from storage%s%s; %llu reads%s.",
		    units_format_bytes(used, sizeof(used), cache->used_bytes),
		    units_format_bytes(cold, sizeof(cold), cache->cold_bytes), sockets, hits,
		    (unsigned long long)cache->n_reads, sizes);
	if (page_cache_excess(cache) > 0)
		layout_line(layout,
			    "Storage delivered %.1f times the bytes that the job used: the kernel's "
			    "readahead read the rest in vain.",
			    page_cache_excess(cache));
	if (cache->mapped.n_major_faults)
		layout_line(layout, "Mapped files: %llu page faults had to read from storage, which took %s.",
			    (unsigned long long)cache->mapped.n_major_faults,
			    units_format_duration(used, sizeof(used), cache->mapped.fault_ns));
	places(layout, cache->folders, cache->n_folders);
}

static void libraries(const struct layout *layout, const struct profile *profile)
{
	char name[60], caller[80];

	for (size_t i = 0; i < profile->n_libraries && i < LIBRARIES_SHOWN; i++) {
		const struct profile_item *item = &profile->libraries[i];
		double ratio = (double)item->n_samples / (double)profile->n_samples;

		if (ratio < NOTABLE)
			continue;
		fprintf(layout->stream, "%*s%8.0f %%  %-24s", LAYOUT_MARGIN, "", 100 * ratio,
			layout_printable(layout, name, sizeof(name), item->name));
		if (item->caller)
			fprintf(layout->stream, " in %s",
				layout_printable(layout, caller, sizeof(caller), item->caller));
		fputc('\n', layout->stream);
	}
}

static void functions(const struct layout *layout, const struct profile *profile)
{
	char text[700] = "", name[200];
	size_t length = 0;

	for (size_t i = 0; i < profile->n_functions && i < FUNCTIONS_SHOWN && length < sizeof(text); i++) {
		const struct profile_item *item = &profile->functions[i];
		double ratio = (double)item->n_samples / (double)profile->n_samples;

		if (ratio < NOTABLE)
			continue;
		length +=
		    (size_t)snprintf(text + length, sizeof(text) - length, "%s%s %.0f %%", length ? ", " : "",
				     layout_printable(layout, name, sizeof(name), item->name), 100 * ratio);
	}
	if (length)
		layout_line(layout, "Most in: %s.", text);
}

static void images(const struct layout *layout, const struct profile *profile)
{
	double n = (double)profile->n_samples, decode = (double)profile->images.n_decode / n;

	if (decode >= NOTABLE)
		layout_line(layout,
			    "JPEG, PNG and WebP images: decoding %.0f %%, transforms that dieseld can run "
			    "%.0f %%, other torchvision transforms %.0f %%.",
			    100 * decode, 100 * (double)profile->images.n_transform / n,
			    100 * (double)profile->images.n_foreign / n);
}

static void text_profile(const struct layout *layout, const struct analysis *analysis)
{
	const struct profile *profile = analysis->profile;

	if (!profile || !profile->n_samples)
		return;
	layout_heading(layout, "CPU time of preparing");
	libraries(layout, profile);
	functions(layout, profile);
	images(layout, profile);
}

static void text_gpu(const struct layout *layout, const struct analysis *analysis)
{
	const struct gpu_use *gpu = analysis->gpu;
	char wait[24], spin[24], starved[24], utilization[48] = "", library[1024];

	if (!gpu)
		return;
	if (isfinite(gpu->utilization))
		snprintf(utilization, sizeof(utilization), " Utilisation by NVML: %.0f %%.",
			 100 * gpu->utilization);
	layout_heading(layout, "GPU");
	layout_line(layout,
		    "The trainer waited %s for the GPU (%s of it spinning on a CPU). The GPU had no work "
		    "queued for %s or more while the trainer waited for data.%s",
		    units_format_duration(wait, sizeof(wait), gpu->wait_ns),
		    units_format_duration(spin, sizeof(spin), gpu->spin_ns),
		    units_format_duration(starved, sizeof(starved), gpu->starved_ns), utilization);
	layout_line(layout, "%llu launches, %llu copies%s, counted in calls of %s.",
		    (unsigned long long)gpu->n_launches, (unsigned long long)gpu->n_copies,
		    gpu->launches_known ? "" : " or more (too many to count all)",
		    gpu->library[0] ? layout_printable(layout, library, sizeof(library), gpu->library)
				    : "the driver");
}

static void text_phases(const struct layout *layout, const struct analysis *analysis)
{
	const struct phase_times *phases = analysis->phases;
	char time[24], name[512];

	if (!phases)
		return;
	layout_heading(layout, "Ranges of the program");
	for (size_t i = 0; i < phases->n && i < PHASES_SHOWN; i++)
		layout_line(layout, "%10s  %llu x %s",
			    units_format_duration(time, sizeof(time), phases->items[i].ns),
			    (unsigned long long)phases->items[i].n,
			    layout_printable(layout, name, sizeof(name), phases->items[i].name));
}

static void text_checkpoints(const struct layout *layout, const struct analysis *analysis)
{
	const struct checkpoint_report *report = analysis->checkpoints;
	uint64_t stall_ns = 0, bytes = 0, fsync_ns = 0;
	char stall[24], size[16], fsync[24], every[48] = "", copy[64] = "", text[640];

	if (!report || !report->n_items)
		return;
	for (size_t i = 0; i < report->n_items; i++) {
		stall_ns += report->items[i].stall_ns;
		bytes += report->items[i].bytes;
		fsync_ns += report->items[i].fsync_ns;
	}
	if (isfinite(report->interval_steps))
		snprintf(every, sizeof(every), ", one every %.0f steps", report->interval_steps);
	if (report->copy_ns > 0)
		snprintf(copy, sizeof(copy), ", %s to copy the state",
			 units_format_duration(fsync, sizeof(fsync), (uint64_t)report->copy_ns));
	layout_heading(layout, "Checkpoints");
	layout_line(layout, "%zu%s; on average %s of stall (%s in fsync)%s, %s written.", report->n_items,
		    every, units_format_duration(stall, sizeof(stall), stall_ns / report->n_items),
		    units_format_duration(fsync, sizeof(fsync), fsync_ns / report->n_items), copy,
		    units_format_bytes(size, sizeof(size), bytes / report->n_items));
	if (words_tail(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
	if (words_interval(text, sizeof(text), analysis)[0])
		layout_line(layout, "%s", text);
}

static void text_ranks(const struct layout *layout, const struct analysis *analysis)
{
	if (!analysis->n_ranks)
		return;
	layout_heading(layout, "Ranks");
	layout_style(layout, STYLE_DIM);
	fprintf(layout->stream, "%*s%10s%8s%12s%10s%18s\n", LAYOUT_MARGIN, "", "process", "steps",
		"data wait", "device", "until others came");
	layout_style(layout, STYLE_PLAIN);
	for (size_t i = 0; i < analysis->n_ranks && i < RANKS_SHOWN; i++) {
		const struct analysis_rank *rank = &analysis->ranks[i];
		double window = rank->window_ns ? (double)rank->window_ns : 1;
		uint64_t wait_ns = rank->share_ns[SHARE_FETCH_STALL] + rank->share_ns[SHARE_PREP_STALL];

		fprintf(layout->stream, "%*s%10u%8zu%10.0f %%%8.0f %%%16.0f %%%s\n", LAYOUT_MARGIN, "",
			rank->tgid, rank->n_steps, 100 * (double)wait_ns / window,
			100 * (double)rank->share_ns[SHARE_DEVICE] / window,
			100 * (double)rank->collective_ns / window, rank->straggler ? "  straggler" : "");
	}
	if (analysis->n_ranks > RANKS_SHOWN)
		layout_line(layout, "The first %d of %zu.", RANKS_SHOWN, analysis->n_ranks);
}

/* Appends one change and its interval: "92 % of the dataset in memory (88 to 97)". */
static void need(char *text, size_t size, size_t *length, const struct estimate *estimate, double factor,
		 const char *after)
{
	if (!isfinite(estimate->value) || *length >= size)
		return;
	*length += (size_t)snprintf(text + *length, size - *length, "%s%.3g%s", *length ? ", or " : "",
				    estimate->value * factor, after);
	if (*length < size && isfinite(estimate->low) && isfinite(estimate->high))
		*length += (size_t)snprintf(text + *length, size - *length, " (%.3g to %.3g)",
					    estimate->low * factor, estimate->high * factor);
}

/* Prints the changes that would each end the data wait without the others. */
static void text_needed(const struct layout *layout, const struct analysis *analysis)
{
	const struct predictions *from = analysis->predictions;
	char text[640] = "";
	size_t length = 0;

	if (!from || analysis_steady_ratio(analysis, SHARE_FETCH_STALL) +
			     analysis_steady_ratio(analysis, SHARE_PREP_STALL) <
			 NOTABLE_WAIT)
		return;
	need(text, sizeof(text), &length, &from->cache_ratio_needed, 100, " % of the dataset in memory");
	need(text, sizeof(text), &length, &from->workers_needed, 1, " workers");
	need(text, sizeof(text), &length, &from->storage_factor_needed, 1, " times the storage bandwidth");
	if (length)
		layout_line(layout, "Any one of these changes would end the data wait: %s.", text);
}

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

struct bar_part {
	double ratio;
	const char *glyph; /* one column wide */
	enum layout_style style;
};

/* Computes the columns of each part. They sum to `columns` if the ratios sum to 1. */
static void find_columns(const struct bar_part *parts, size_t n_parts, unsigned int columns,
			 unsigned int *ret_columns)
{
	size_t largest = 0;
	unsigned int sum = 0;

	for (size_t i = 0; i < n_parts; i++) {
		double exact = parts[i].ratio * columns;

		/* Rounds half a column up, so that a small share is still visible. */
		ret_columns[i] = exact > 0 ? (unsigned int)(exact + 0.5) : 0;
		sum += ret_columns[i];
		if (parts[i].ratio > parts[largest].ratio)
			largest = i;
	}
	if (n_parts && ret_columns[largest] + columns > sum)
		ret_columns[largest] = ret_columns[largest] + columns - sum;
}

/* Prints a bar of `columns` characters: each part gets its rounded share, and the largest takes the rounding
 * error. */
static void bar(const struct layout *layout, const struct bar_part *parts, size_t n_parts,
		unsigned int columns)
{
	unsigned int parts_columns[16];

	if (n_parts > sizeof(parts_columns) / sizeof(parts_columns[0]))
		return;
	find_columns(parts, n_parts, columns, parts_columns);
	for (size_t i = 0; i < n_parts; i++) {
		if (!parts_columns[i])
			continue;
		layout_style(layout, parts[i].style);
		for (unsigned int k = 0; k < parts_columns[i]; k++)
			fputs(parts[i].glyph, layout->stream);
		layout_style(layout, STYLE_PLAIN);
	}
}

static void shares(const struct layout *layout, const struct analysis *analysis)
{
	struct bar_part parts[SHARE_COUNT];
	char text[320];
	struct report_shares shown = report_shares(analysis);

	for (size_t i = 0; i < SHARE_COUNT; i++)
		parts[i] = (struct bar_part){
		    .ratio = report_shares_ratio(&shown, share_labels[i].share),
		    .glyph = layout->options.ascii ? glyphs[i].glyph_ascii : glyphs[i].glyph,
		    .style = glyphs[i].style,
		};
	fprintf(layout->stream, "\n%*s", MARGIN, "");
	bar(layout, parts, SHARE_COUNT, layout->options.width - 2 * MARGIN);
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
