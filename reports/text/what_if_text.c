/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/what_if.h"

#include <errno.h>
#include <math.h>

#include "analyzer/analysis.h"
#include "lib/units.h"

static void line_question(FILE *stream, const struct what_if_question *question)
{
	const char *comma = "";

	fprintf(stream, "With ");
	if (!isnan(question->cache_ratio)) {
		fprintf(stream, "%.0f %% of the dataset in memory", 100 * question->cache_ratio);
		comma = ", ";
	}
	if (!isnan(question->n_workers)) {
		fprintf(stream, "%s%.0f worker%s", comma, question->n_workers,
			question->n_workers == 1 ? "" : "s");
		comma = ", ";
	}
	if (!isnan(question->n_cores)) {
		fprintf(stream, "%s%g core%s", comma, question->n_cores, question->n_cores == 1 ? "" : "s");
		comma = ", ";
	}
	if (!isnan(question->storage_bytes_per_s)) {
		fprintf(stream, "%sstorage at %g MB/s", comma, question->storage_bytes_per_s / 1e6);
		comma = ", ";
	}
	if (!isnan(question->storage_factor)) {
		fprintf(stream, "%sstorage %g times as fast", comma, question->storage_factor);
		comma = ", ";
	}
	if (!isnan(question->device_factor)) {
		fprintf(stream, "%sa device %g times as fast", comma, question->device_factor);
		comma = ", ";
	}
	if (!isnan(question->sample_factor)) {
		fprintf(stream, "%ssamples %g times as large", comma, question->sample_factor);
		comma = ", ";
	}
	if (!isnan(question->n_nodes)) {
		fprintf(stream, "%s%.0f node%s", comma, question->n_nodes,
			question->n_nodes == 1 ? "" : "s, each with its own lanes");
		comma = ", ";
	}
	if (question->native)
		fprintf(stream, "%simages decoded by dieseld", comma);
	if (!isnan(question->decoded_ratio))
		fprintf(stream, ", %.0f %% of them from decoded copies", 100 * question->decoded_ratio);
	fprintf(stream, ":\n");
}

static void text_answer(FILE *stream, const struct report_what_if *what_if)
{
	const struct predictions *predictions = what_if->analysis->predictions;
	const struct what_if_answer *answer = predictions->answer;

	line_question(stream, &what_if->question);
	if (what_if->question.n_nodes > 1)
		fprintf(stream,
			"  each node needs 1/%.0f of the dataset, and its memory holds %.0f %% of that; "
			"storage is assumed to be equally fast for every node\n",
			what_if->question.n_nodes, 100 * answer->cached_ratio);
	fprintf(stream, "  %.2f steps/s instead of %.2f: %.2fx as fast (%.2f to %.2f); the job is then %s\n",
		answer->steps_per_s.value, 1 / predictions->recorded_step_s, answer->speedup.value,
		answer->speedup.low, answer->speedup.high,
		what_if_bound(answer->fetch_stall, answer->prep_stall));
	fprintf(stream, "  %-12s %8s %8s\n", "share", "now", "then");
	fprintf(stream, "  %-12s %6.1f %% %6.1f %%\n", "device", 100 * answer->recorded_device,
		100 * answer->device);
	fprintf(stream, "  %-12s %6.1f %% %6.1f %%\n", "fetch_stall", 100 * answer->recorded_fetch_stall,
		100 * answer->fetch_stall);
	fprintf(stream, "  %-12s %6.1f %% %6.1f %%\n", "prep_stall", 100 * answer->recorded_prep_stall,
		100 * answer->prep_stall);
}

static void line_rate(FILE *stream, const char *name, const struct estimate *rate, const char *unit)
{
	if (isnan(rate->value))
		return;
	fprintf(stream, "  %-8s %10.0f %s (%.0f to %.0f)\n", name, rate->value, unit, rate->low, rate->high);
}

static void text_rates(FILE *stream, const struct predictions *predictions)
{
	const char *unit = isnan(predictions->batch_samples) ? "batches/s" : "samples/s";
	char bytes[16];

	fprintf(stream, "Rate of each part if it were the only limit:\n");
	line_rate(stream, "fetch", &predictions->fetch_rate, unit);
	line_rate(stream, "prepare", &predictions->prep_rate, unit);
	line_rate(stream, "device", &predictions->device_rate, unit);
	if (predictions->storage_bytes_per_s.value > 0)
		fprintf(stream, "  storage delivered %s/s\n",
			units_format_bytes(bytes, sizeof(bytes),
					   (uint64_t)predictions->storage_bytes_per_s.value));
}

static void line_needed(FILE *stream, const char *name, const struct estimate *needed, double factor,
			const char *unit)
{
	if (isnan(needed->value))
		fprintf(stream, "  %-8s no value would end the data wait\n", name);
	else if (isnan(needed->low) || needed->low == needed->high)
		fprintf(stream, "  %-8s %.*f %s\n", name, factor * needed->value < 10 ? 1 : 0,
			factor * needed->value, unit);
	else
		fprintf(stream, "  %-8s %.*f %s (%.1f to %.1f)\n", name, factor * needed->value < 10 ? 1 : 0,
			factor * needed->value, unit, factor * needed->low, factor * needed->high);
}

static void text_needed(FILE *stream, const struct predictions *predictions)
{
	fprintf(stream, "Smallest single change that ends the data wait:\n");
	line_needed(stream, "cache", &predictions->cache_ratio_needed, 100, "% of the dataset");
	line_needed(stream, "workers", &predictions->workers_needed, 1, "workers");
	line_needed(stream, "storage", &predictions->storage_factor_needed, 1,
		    "times the recorded bandwidth");
}

static void text_curve(FILE *stream, enum what_if_axis axis, const struct what_if_curve *curve)
{
	static const char *const titles[WHAT_IF_AXES] = {
	    [WHAT_IF_CACHE] = "Share of the dataset in memory",
	    [WHAT_IF_WORKERS] = "Workers",
	    [WHAT_IF_STORAGE] = "Storage bandwidth, as a multiple of the recorded bandwidth",
	    [WHAT_IF_DEVICE] = "Device speed, as a multiple of the recorded speed",
	    [WHAT_IF_CORES] = "Cores",
	    [WHAT_IF_SAMPLE_SIZE] = "Sample size, as a multiple of the recorded size",
	};

	fprintf(stream, "%s:\n  %8s %9s %16s %8s %8s %8s\n", titles[axis], "", "speed-up", "", "device",
		"fetch", "prep");
	for (size_t i = 0; i < curve->n_points; i++) {
		const struct what_if_point *point = &curve->points[i];

		fprintf(stream, "%s %8.4g %8.2fx (%5.2f to %5.2f) %6.1f %% %6.1f %% %6.1f %%\n",
			fabs(point->x - curve->here) < 1e-9 ? ">" : " ", point->x, point->speedup.value,
			point->speedup.low, point->speedup.high, 100 * point->device,
			100 * point->fetch_stall, 100 * point->prep_stall);
	}
}

int report_what_if_text(FILE *stream, const struct report_what_if *what_if)
{
	const struct predictions *predictions = what_if->analysis->predictions;

	if (predictions->answer) {
		text_answer(stream, what_if);
	} else {
		fprintf(stream, "%.2f steps/s recorded; the model predicts %.2f without a change\n\n",
			1 / predictions->recorded_step_s, 1 / predictions->replayed_step_s);
		text_rates(stream, predictions);
		text_needed(stream, predictions);
		if (!isnan(predictions->persistent_speedup.value))
			fprintf(stream, "Workers kept from epoch to epoch: %.2fx (%.2f to %.2f)\n",
				predictions->persistent_speedup.value, predictions->persistent_speedup.low,
				predictions->persistent_speedup.high);
		if (!isnan(predictions->native.part.value))
			fprintf(stream,
				"Images decoded by dieseld (%.0f %% of preparing): %.2fx (%.2f to %.2f)\n",
				100 * predictions->native.part.value, predictions->native.speedup.value,
				predictions->native.speedup.low, predictions->native.speedup.high);
		for (size_t i = 0; i < WHAT_IF_AXES; i++)
			text_curve(stream, (enum what_if_axis)i, &predictions->curves[i]);
	}
	return ferror(stream) ? (errno ? -errno : -EIO) : 0;
}
