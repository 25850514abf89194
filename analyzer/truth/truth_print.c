/* SPDX-License-Identifier: Apache-2.0 */
#include "truth_print.h"

#include <inttypes.h>
#include <math.h>

#include "lib/units.h"

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : NAN;
}

static void print_run(FILE *out, const char *name, const char *what, double seconds)
{
	fprintf(out, "  T_%-10s %9.3f s   %s\n", name, seconds, what);
}

static void print_headline(FILE *out, const struct truth_report *report)
{
	const struct truth_result *result = &report->result;
	const char *means = report->n_rounds > 1 ? ", means" : "";
	char compiling[32] = "";

	if (result->compiling > 0)
		snprintf(compiling, sizeof(compiling), ", %.1f %% compiling", 100 * result->compiling);
	if (report->n_files)
		fprintf(
		    out,
		    "%.1f %% of the cold run is fetching, %.1f %% preparing, %.1f %% the device%s (%" PRIu64
		    " steps%s)\n\n",
		    100 * result->fetch, 100 * result->prep, 100 * result->device, compiling, result->n_steps,
		    means);
	else
		fprintf(out,
			"%.1f %% of the run is loading, %.1f %% the device%s (%" PRIu64
			" steps%s); without files nothing tells fetching from preparing\n\n",
			100 * fmax(0, result->wait), 100 * result->device, compiling, result->n_steps, means);
}

/* Compiling is paid once, however many steps there are, so the times leave it out. */
static void print_compiling(FILE *out, const struct truth_result *result)
{
	if (isnan(result->compiling))
		fprintf(
		    out,
		    "\n  What torch.compile took is not known (PyTorch before 2.4): it is in all three\n");
	else if (result->compiling > 0)
		fprintf(out,
			"\n  without compiling, which is paid once: %.3f, %.3f and %.3f s. T_cold below is "
			"with it\n",
			result->compiling_s[TRUTH_SYNTHETIC], result->compiling_s[TRUTH_CACHED],
			result->compiling_s[TRUTH_COLD]);
}

static void print_text(FILE *out, const struct truth_report *report)
{
	const struct truth_result *result = &report->result;
	char bytes[16];

	print_headline(out, report);
	print_run(out, "synthetic", "batches from memory, no loading", result->seconds[TRUTH_SYNTHETIC]);
	print_run(out, "cached", report->n_files ? "files in the page cache" : "as it is",
		  result->seconds[TRUTH_CACHED]);
	print_run(out, "cold", report->n_files ? "files on storage" : "as it is, once more",
		  result->seconds[TRUTH_COLD]);
	print_compiling(out, result);
	if (report->n_files) {
		fprintf(out, "\n  prep  = (T_cached - T_synthetic) / T_cold = %.3f\n", result->prep);
		fprintf(out, "  fetch = (T_cold - T_cached) / T_cold      = %.3f\n", result->fetch);
	}
	if (report->n_rounds > 1)
		fprintf(out, "  %zu rounds differ by up to %.1f points\n", report->n_rounds,
			100 * result->spread);
	if (report->n_files)
		fprintf(
		    out,
		    "\n  %zu files, %s; in the page cache before the cached run %.0f %%, before the cold run "
		    "%.0f %%\n",
		    report->n_files, units_format_bytes(bytes, sizeof(bytes), report->cold.bytes),
		    100 * ratio(report->warm.cached_bytes, report->warm.bytes),
		    100 * ratio(report->cold.cached_bytes, report->cold.bytes));
	for (size_t i = 0; i < report->n_notes; i++)
		fprintf(out, "  not controlled: %s\n", report->notes[i]);
}

/* A share or ratio; null: not known. */
static void print_number(FILE *out, const char *name, double value, const char *after)
{
	if (isfinite(value))
		fprintf(out, "\"%s\": %.6f%s", name, value, after);
	else
		fprintf(out, "\"%s\": null%s", name, after);
}

/* Notes are our own words, without quotes or backslashes. */
static void print_json(FILE *out, const struct truth_report *report)
{
	const struct truth_result *result = &report->result;

	fprintf(out, "{\n  \"schema\": \"diesel.truth/1\",\n  \"steps\": %" PRIu64 ",\n", result->n_steps);
	fprintf(out, "  \"seconds\": {\"synthetic\": %.6f, \"cached\": %.6f, \"cold\": %.6f},\n",
		result->seconds[TRUTH_SYNTHETIC], result->seconds[TRUTH_CACHED], result->seconds[TRUTH_COLD]);
	fprintf(out, "  \"shares\": {");
	print_number(out, "device", result->device, ", ");
	print_number(out, "compiling", result->compiling, ", ");
	print_number(out, "fetch_stall", result->fetch, ", ");
	print_number(out, "prep_stall", result->prep, ", ");
	print_number(out, "wait", result->wait, "},\n");
	if (report->n_rounds > 1)
		fprintf(out, "  \"spread\": %.6f,\n", result->spread);
	fprintf(out, "  \"files\": %zu,\n  \"bytes\": %" PRIu64 ",\n  ", report->n_files, report->cold.bytes);
	print_number(out, "cached_before_cached", ratio(report->warm.cached_bytes, report->warm.bytes),
		     ",\n  ");
	print_number(out, "cached_before_cold", ratio(report->cold.cached_bytes, report->cold.bytes),
		     ",\n  \"runs\": [");
	for (size_t i = 0; i < report->n_rounds; i++)
		for (size_t kind = 0; kind < TRUTH_KINDS; kind++) {
			const struct truth_clock *run = &report->rounds[i].runs[kind];

			fprintf(out,
				"%s\n    {\"kind\": \"%s\", \"steps\": %" PRIu64
				", \"seconds\": %.6f, \"wait_s\": %.6f, ",
				i || kind ? "," : "", truth_kind_name((enum truth_kind)kind), run->n_steps,
				run->seconds, run->wait);
			print_number(out, "compiling_s", run->compiling, ", ");
			fprintf(out, "\"processes\": %" PRIu64 "}", run->n_processes);
		}
	fprintf(out, "\n  ],\n  \"not_controlled\": [");
	for (size_t i = 0; i < report->n_notes; i++)
		fprintf(out, "%s\n    \"%s\"", i ? "," : "", report->notes[i]);
	fprintf(out, "%s]\n}\n", report->n_notes ? "\n  " : "");
}

void truth_print(FILE *out, const struct truth_report *report, bool json)
{
	if (json)
		print_json(out, report);
	else
		print_text(out, report);
}
