/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <math.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"

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

void html_data(const struct html *html)
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
