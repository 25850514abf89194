/* SPDX-License-Identifier: Apache-2.0 */
#include "truth_result.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* "steps N seconds S wait S loaders N mode M truncated 0|1 compiling S|nan pid P" */
static int parse_line(const char *line, struct truth_clock *ret_clock)
{
	struct truth_clock clock = {.n_processes = 1};
	int truncated;

	if (sscanf(line,
		   "steps %" SCNu64 " seconds %lf wait %lf loaders %*u mode %*15s truncated %d compiling %lf",
		   &clock.n_steps, &clock.seconds, &clock.wait, &truncated, &clock.compiling) != 5)
		return -EBADMSG;
	if (!isfinite(clock.seconds) || !isfinite(clock.wait) || clock.seconds < 0 || clock.wait < 0 ||
	    clock.compiling < 0 || clock.compiling > clock.seconds)
		return -EBADMSG;
	clock.truncated = truncated != 0;
	*ret_clock = clock;
	return 0;
}

int truth_clock_parse(const char *text, struct truth_clock *ret_clock)
{
	struct truth_clock slowest = {0};
	uint64_t n_processes = 0;

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		struct truth_clock clock;
		int r = parse_line(line, &clock);

		if (r < 0)
			return r;
		if (!n_processes++ || clock.seconds > slowest.seconds)
			slowest = clock;
	}
	if (!n_processes)
		return -ENODATA;
	slowest.n_processes = n_processes;
	*ret_clock = slowest;
	return 0;
}

static uint64_t fewest_steps(const struct truth_round *rounds, size_t n)
{
	uint64_t fewest = rounds[0].runs[0].n_steps;

	for (size_t i = 0; i < n; i++)
		for (size_t kind = 0; kind < TRUTH_KINDS; kind++)
			if (rounds[i].runs[kind].n_steps < fewest)
				fewest = rounds[i].runs[kind].n_steps;
	return fewest;
}

static double known(double seconds)
{
	return isnan(seconds) ? 0 : seconds;
}

static void take_shares(struct truth_result *result, bool has_files)
{
	double cold = result->seconds[TRUTH_COLD], compiling = result->compiling_s[TRUTH_COLD], whole;

	if (!has_files) {
		cold = (cold + result->seconds[TRUTH_CACHED]) / 2;
		compiling = (compiling + result->compiling_s[TRUTH_CACHED]) / 2;
		result->fetch = result->prep = NAN;
	}
	whole = cold + known(compiling);
	if (whole <= 0)
		return;
	result->compiling = compiling / whole;
	result->device = result->seconds[TRUTH_SYNTHETIC] / whole;
	result->wait = 1 - result->device - known(result->compiling);
	if (!has_files)
		return;
	result->prep = (result->seconds[TRUTH_CACHED] - result->seconds[TRUTH_SYNTHETIC]) / whole;
	result->fetch = (cold - result->seconds[TRUTH_CACHED]) / whole;
}

static void result_of(const struct truth_round *rounds, size_t n, uint64_t n_steps, bool has_files,
		      struct truth_result *ret_result)
{
	struct truth_result result = {.n_steps = n_steps};

	for (size_t i = 0; i < n; i++)
		for (size_t kind = 0; kind < TRUTH_KINDS; kind++) {
			const struct truth_clock *run = &rounds[i].runs[kind];

			if (run->n_steps)
				result.seconds[kind] += (run->seconds - known(run->compiling)) *
							(double)n_steps / (double)run->n_steps / (double)n;
			result.compiling_s[kind] += run->compiling / (double)n;
		}
	take_shares(&result, has_files);
	*ret_result = result;
}

static double spread_of(const struct truth_result *results, size_t n)
{
	double spread = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++) {
			spread = fmax(spread, fabs(results[i].prep - results[k].prep));
			spread = fmax(spread, fabs(results[i].fetch - results[k].fetch));
			spread = fmax(spread, fabs(results[i].device - results[k].device));
		}
	return spread;
}

void truth_result_compute(const struct truth_round *rounds, size_t n, bool has_files,
			  struct truth_result *ret_result)
{
	struct truth_result single[TRUTH_ROUNDS_MAX], result;
	uint64_t n_steps = fewest_steps(rounds, n);

	result_of(rounds, n, n_steps, has_files, &result);
	for (size_t i = 0; i < n; i++)
		result_of(&rounds[i], 1, n_steps, has_files, &single[i]);
	result.spread = spread_of(single, n);
	*ret_result = result;
}
