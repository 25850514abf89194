/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"
#include "lib/units.h"

const struct share_label share_labels[SHARE_COUNT] = {
    {SHARE_FETCH_STALL, "fetch stall", "waits that fast storage would end", "fetch"},
    {SHARE_PREP_STALL, "prep stall", "waits for decoding and hand-off", "prep"},
    {SHARE_CHECKPOINT_STALL, "checkpoint", "saving checkpoints", "checkpoint"},
    {SHARE_COMPILING, "compiling", "torch.compile or JAX, paid once", "compiling"},
    {SHARE_CPU_STARVED, "cpu starved", "ready to run: no core or lock", "starved"},
    {SHARE_OTHER, "other", "asleep on purpose, or unexplained", "other"},
    {SHARE_DEVICE, "device", "computing: the useful time", "device"},
};

#define NOTABLE_PERCENT 0.5 /* minimum share that is mentioned: smaller ones are rounded to 0 */

__attribute__((format(printf, 3, 4))) static void append(char *buffer, size_t size, const char *format, ...)
{
	size_t length = strlen(buffer);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(buffer + length, size - length, format, arguments);
	va_end(arguments);
}

static double percent(const struct analysis *analysis, enum analysis_share share)
{
	return 100 * analysis_steady_ratio(analysis, share);
}

static double of_window(const struct analysis *analysis, uint64_t ns)
{
	return analysis->window.observed_ns ? 100 * (double)ns / (double)analysis->window.observed_ns : 0;
}

static void append_share(char *buffer, size_t size, const char *name, double value)
{
	size_t length = strlen(buffer);

	if (value >= NOTABLE_PERCENT)
		append(buffer, size, "%s%s %.0f", length && buffer[length - 1] == ' ' ? "" : ", ", name,
		       value);
}

char *words_verdict(char *buffer, size_t size, const struct analysis *analysis)
{
	double fetch = percent(analysis, SHARE_FETCH_STALL), prep = percent(analysis, SHARE_PREP_STALL);
	double checkpoint = percent(analysis, SHARE_CHECKPOINT_STALL);
	double starved = percent(analysis, SHARE_CPU_STARVED);
	double gil = fmin(starved, of_window(analysis, analysis->parts.gil_starved_ns));
	double asleep = of_window(analysis, analysis->parts.asleep_ns);
	double stall = fetch + prep + checkpoint;

	if (analysis->verdict == ANALYSIS_INSUFFICIENT) {
		snprintf(buffer, size, "%s", analysis->insufficient);
		return buffer;
	}
	snprintf(buffer, size, "%.0f %% of step time is stall", stall);
	if (stall >= NOTABLE_PERCENT) {
		append(buffer, size, ": ");
		append_share(buffer, size, "fetch", fetch);
		append_share(buffer, size, "preprocess", prep);
		append_share(buffer, size, "checkpoint", checkpoint);
	}
	if (analysis->verdict == ANALYSIS_DEVICE_BOUND)
		append(buffer, size, "; %.0f %% is computing", percent(analysis, SHARE_DEVICE));
	if (gil >= 5)
		append(buffer, size, "; %.0f %% waiting for the interpreter lock", gil);
	if (starved - gil >= 5)
		append(buffer, size, "; %.0f %% without a core", starved - gil);
	if (asleep >= 5)
		append(buffer, size, "; %.0f %% sleeping on purpose", asleep);
	return buffer;
}

/* Appends the shares of at least 5 %: "compiling 66 %, device 30 %". */
static void append_shares(char *buffer, size_t size, const uint64_t share_ns[SHARE_COUNT], uint64_t wall_ns)
{
	for (size_t i = 0, n = 0; i < SHARE_COUNT; i++) {
		double ratio = (double)share_ns[share_labels[i].share] / (double)wall_ns;

		if (ratio >= 0.05)
			append(buffer, size, "%s%s %.0f %%", n++ ? ", " : "", share_labels[i].name,
			       100 * ratio);
	}
}

char *words_warmup(char *buffer, size_t size, const struct analysis *analysis)
{
	uint64_t share_ns[SHARE_COUNT] = {0};
	char time[24];

	buffer[0] = '\0';
	if (!analysis->steady.n_warmup_steps || !analysis->steady.ns || !analysis->steady.warmup_ns)
		return buffer;
	for (size_t i = 0; i < analysis->steady.n_warmup_steps && i < analysis->n_steps; i++)
		for (size_t k = 0; k < SHARE_COUNT; k++)
			share_ns[k] += analysis->steps[i].share_ns[k];
	snprintf(buffer, size, "Warm-up is left out: %zu step%s, %s (", analysis->steady.n_warmup_steps,
		 analysis->steady.n_warmup_steps == 1 ? "" : "s",
		 units_format_duration(time, sizeof(time), analysis->steady.warmup_ns));
	append_shares(buffer, size, share_ns, analysis->steady.warmup_ns);
	append(buffer, size, ").");
	return buffer;
}

char *words_whole(char *buffer, size_t size, const struct analysis *analysis)
{
	char time[24];

	buffer[0] = '\0';
	if (!analysis->steady.ns || 100 * analysis_share_ratio(analysis, SHARE_COMPILING) < NOTABLE_PERCENT)
		return buffer;
	snprintf(buffer, size,
		 "Over all %s: ", units_format_duration(time, sizeof(time), analysis->window.observed_ns));
	append_shares(buffer, size, analysis->share_ns, analysis->window.observed_ns);
	append(buffer, size, ".");
	return buffer;
}

char *words_tail(char *buffer, size_t size, const struct analysis *analysis)
{
	const struct checkpoint_tail *tail = analysis->checkpoints ? analysis->checkpoints->tail : NULL;
	char time[24];
	size_t n = 0;

	buffer[0] = '\0';
	if (!tail || tail->ns <= tail->error_ns)
		return buffer;
	snprintf(buffer, size, "Steps during a save took %s longer in total, apart from the stalls:",
		 units_format_duration(time, sizeof(time), (uint64_t)tail->ns));
	for (size_t i = 0; i < SHARE_COUNT; i++) {
		double ns = tail->share_ns[share_labels[i].share];

		if (ns < tail->ns / 20)
			continue;
		append(buffer, size, "%s %s %s", n++ ? "," : "", share_labels[i].name,
		       units_format_duration(time, sizeof(time), (uint64_t)ns));
		if (share_labels[i].share == SHARE_CPU_STARVED && tail->gil_ns > ns / 20)
			append(buffer, size, " (interpreter lock %s)",
			       units_format_duration(time, sizeof(time), (uint64_t)tail->gil_ns));
	}
	append(buffer, size, ".");
	return buffer;
}

/* Appends the cost of a save, its error and its causes. */
static void append_cost(char *buffer, size_t size, const struct checkpoint_report *report)
{
	static const char *const causes[CHECKPOINT_CAUSES] = {
	    [CHECKPOINT_COPY] = "copying and pickling", [CHECKPOINT_WRITE] = "writing",
	    [CHECKPOINT_AWAIT] = "waiting for it",      [CHECKPOINT_LOCK] = "interpreter lock",
	    [CHECKPOINT_CORES] = "cores taken",         [CHECKPOINT_STORAGE] = "storage taken",
	    [CHECKPOINT_LOADER] = "slower loading",     [CHECKPOINT_UNKNOWN] = "slower computing",
	};
	char time[24];
	size_t n = 0;

	append(buffer, size, "A save costs training %s",
	       units_format_duration(time, sizeof(time), (uint64_t)report->cost_ns));
	append(buffer, size, ", give or take %s",
	       units_format_duration(time, sizeof(time), (uint64_t)report->cost_error_ns));
	for (size_t i = 0; i < CHECKPOINT_CAUSES; i++)
		if (causes[i] && report->cause_ns[i] > report->cost_ns / 20)
			append(buffer, size, "%s %s %s", n++ ? "," : ":", causes[i],
			       units_format_duration(time, sizeof(time), (uint64_t)report->cause_ns[i]));
	append(buffer, size, ".");
	if (report->cause_ns[CHECKPOINT_WAIT] > report->cost_ns / 20)
		append(
		    buffer, size, " It waits %s more for the save before it.",
		    units_format_duration(time, sizeof(time), (uint64_t)report->cause_ns[CHECKPOINT_WAIT]));
}

char *words_interval(char *buffer, size_t size, const struct analysis *analysis)
{
	const struct checkpoint_report *report = analysis->checkpoints;

	buffer[0] = '\0';
	if (report->n_costs)
		append_cost(buffer, size, report);
	if (!report->advised_steps && !report->unclear)
		return buffer;
	append(buffer, size, "%sTo spend at most %.0f %% of the time on checkpoints: ", buffer[0] ? " " : "",
	       100 * report->overhead_max);
	if (report->advised_steps)
		append(buffer, size, "save one every %u steps (%.1f %%).", report->advised_steps,
		       100 * report->advised_overhead);
	else if (report->advised_most)
		append(buffer, size, "save one every %u to %u steps; more is not clear, because %s.",
		       report->advised_least, report->advised_most, report->unclear);
	else
		append(buffer, size, "how often to save is not clear, because %s.", report->unclear);
	return buffer;
}

char *words_restored(char *buffer, size_t size, const struct analysis *analysis)
{
	char time[24], bytes[16];

	buffer[0] = '\0';
	if (analysis->restored.ns)
		snprintf(buffer, size,
			 "Loading a checkpoint took %s before the first step, %s read by calls.",
			 units_format_duration(time, sizeof(time), analysis->restored.ns),
			 units_format_bytes(bytes, sizeof(bytes), analysis->restored.bytes));
	return buffer;
}

char *words_unrecorded(char *buffer, size_t size, const struct analysis *analysis)
{
	char time[24], detail[16];

	buffer[0] = '\0';
	if (!analysis->recorded.gaps_ns)
		return buffer;
	snprintf(buffer, size, "%s of the recording have no detail",
		 units_format_duration(time, sizeof(time), analysis->recorded.gaps_ns));
	if (analysis->recorded.detail_bytes_per_minute)
		append(
		    buffer, size,
		    ", because --detail allows only %s per minute; --detail all records everything",
		    units_format_bytes(detail, sizeof(detail), analysis->recorded.detail_bytes_per_minute));
	append(buffer, size, ".");
	return buffer;
}

char *words_excluded(char *buffer, size_t size, const struct analysis *analysis)
{
	char time[24], wait[24];
	size_t n = 0;

	buffer[0] = '\0';
	if (analysis->compiling.ns >= NS_PER_S / 10)
		append(buffer, size, "%sCompiling took %s, once.", n++ ? " " : "",
		       units_format_duration(time, sizeof(time), analysis->compiling.ns));
	if (analysis->validation.n_steps)
		append(buffer, size, "%sValidation: %zu pass%s, %s, including %s of data wait.",
		       n++ ? " " : "", analysis->validation.n_steps,
		       analysis->validation.n_steps == 1 ? "" : "es",
		       units_format_duration(time, sizeof(time), analysis->validation.ns),
		       units_format_duration(wait, sizeof(wait), analysis->validation.wait_ns));
	if (n && analysis->steady.n_excluded_steps)
		append(buffer, size, " %zu such step%s left out.", analysis->steady.n_excluded_steps,
		       analysis->steady.n_excluded_steps == 1 ? " is" : "s are");
	return buffer;
}

char *words_trust(char *buffer, size_t size, const struct analysis *analysis)
{
	bool by_waits = analysis->counted == COUNTED_WAITS || analysis->counted == COUNTED_LAUNCHES;

	buffer[0] = '\0';
	if (by_waits)
		append(buffer, size, "about %zu steps counted by %s, ", analysis->n_steps,
		       analysis_counted_name(analysis->counted));
	else if (!analysis->sampled.is)
		append(buffer, size, "%zu steps, ", analysis->n_steps);
	else if (analysis->sampled.n_steps_estimated)
		append(buffer, size, "about %zu steps, ", analysis->sampled.n_steps_estimated);
	if (!analysis->sampled.is)
		append(buffer, size, "%llu lost events, ", (unsigned long long)analysis->recorded.n_lost);
	if (isfinite(analysis->recorded.self_cost_ratio))
		append(buffer, size, "tool cost %.1f %% of one CPU",
		       100 * analysis->recorded.self_cost_ratio);
	else
		append(buffer, size, "tool cost unknown");
	return buffer;
}

char *words_approximate(char *buffer, size_t size, const struct analysis *analysis)
{
	double wall_s = (double)analysis->window.observed_ns / (double)NS_PER_S, error = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		error = analysis->sampled.error[i] > error ? analysis->sampled.error[i] : error;
	buffer[0] = '\0';
	if (analysis->sampled.is && wall_s > 0)
		snprintf(buffer, size, "approximate: sampled at %.0f Hz without privilege, +/- %.0f points",
			 (double)analysis->sampled.n_samples / wall_s, ceil(100 * error));
	return buffer;
}

char *words_gain(char *buffer, size_t size, const struct analysis_action *action)
{
	const struct estimate *gain = &action->gain;

	buffer[0] = '\0';
	if (gain->value > 0) {
		append(buffer, size, "Predicted %.2fx faster", gain->value);
		if (isfinite(gain->low) && isfinite(gain->high))
			append(buffer, size, " (%.2f to %.2f)", gain->low, gain->high);
		if (!(gain->low > 1) && isfinite(gain->low))
			append(buffer, size, ", or no gain");
	} else if (action->gain_max > 0)
		append(buffer, size, action->gain_max < 10 ? "%s %.2fx faster" : "%s %.0fx faster",
		       action->about ? "Up to about" : "At most", action->gain_max);
	append(buffer, size, "%sconfidence: %s", buffer[0] ? "; " : "",
	       analysis_confidence_name(action->confidence));
	return buffer;
}

const char *words_loader(const struct analysis *analysis)
{
	if (analysis->verdict == ANALYSIS_INSUFFICIENT)
		return "the recording does not show how the job loads its data";
	switch (analysis->job.loader) {
	case LOADER_NONE: return "no data wait was seen";
	case LOADER_WORKERS: return "worker processes load the data";
	case LOADER_INLINE: return "the trainer loads the data itself (no workers)";
	case LOADER_DIESEL: return "DIESEL serves the data";
	case LOADER_THREADS: return "threads of the trainer's process load the data";
	}
	return "";
}

char *words_missing(char *buffer, size_t size, const struct analysis *analysis)
{
	const struct {
		bool known;
		const char *name;
	} parts[] = {
	    {analysis->page_cache, "page cache"},
	    {analysis->profile, "profile of preparing"},
	    {analysis->parts.gpu_wait_known, "GPU"},
	    {analysis->predictions, "predictions"},
	};

	buffer[0] = '\0';
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!parts[i].known)
			append(buffer, size, "%s%s", buffer[0] ? ", " : "", parts[i].name);
	return buffer;
}
