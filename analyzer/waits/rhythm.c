/* SPDX-License-Identifier: Apache-2.0 */
#include "rhythm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/sorted.h"

#define CANDIDATES       24
#define STEPS_MIN        3
#define CLEARLY          0.01 /* minimum gain that counts: below it, the shorter pause wins */
#define PAUSE_OUTLIER    4    /* a pause of this many medians is a checkpoint or an evaluation */
#define SPREAD_MAX       0.6  /* maximum spread of a rhythm */
#define STEP_READS_RATIO 1.6  /* a step is irregular if its reads differ by more than this factor */

struct rhythm_finder {
	const struct beat *beats;
	double pause_weight;
	size_t n;
	size_t *steps; /* index of each step's first beat */
	size_t n_steps;
	uint64_t *values; /* scratch, one per beat */
};

static uint64_t median(uint64_t *values, size_t n)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), compare_u64);
	return values[n / 2];
}

static uint64_t pause_before(const struct rhythm_finder *finder, size_t i)
{
	return finder->beats[i].pause_ns;
}

static void steps_find(struct rhythm_finder *finder, uint64_t pause_ns)
{
	finder->n_steps = 0;
	for (size_t i = 0; i < finder->n; i++)
		if (!i || pause_before(finder, i) >= pause_ns)
			finder->steps[finder->n_steps++] = i;
}

static size_t step_end(const struct rhythm_finder *finder, size_t step)
{
	return step + 1 < finder->n_steps ? finder->steps[step + 1] : finder->n;
}

static double reads_of(const struct rhythm_finder *finder, size_t step)
{
	uint64_t n = 0;

	for (size_t i = finder->steps[step]; i < step_end(finder, step); i++)
		n += finder->beats[i].n_reads;
	return (double)n;
}

/* Returns the spread of the reads per step: standard deviation over mean. Uses only the second half of the
 * steps, which has no imports. */
static double spread_of(const struct rhythm_finder *finder)
{
	size_t half = finder->n_steps / 2, n = 0;
	double sum = 0, squares = 0, mean;

	/* The last step may be cut off. */
	for (size_t i = half; i + 1 < finder->n_steps; i++, n++) {
		double reads = reads_of(finder, i);

		sum += reads;
		squares += reads * reads;
	}
	if (n < STEPS_MIN || sum <= 0)
		return INFINITY;
	mean = sum / (double)n;
	return sqrt(fmax(0, squares / (double)n - mean * mean)) / mean;
}

/* Returns the spread of the pauses between steps: standard deviation over mean. pauses: of the second half,
 * sorted; those below pause_ns do not separate steps. */
static double pause_spread_of(const uint64_t *pauses, size_t n, uint64_t pause_ns)
{
	double sum = 0, squares = 0, mean, limit;
	size_t first = 0, middle;

	while (first < n && pauses[first] < pause_ns)
		first++;
	if (first == n)
		return INFINITY;
	middle = first + (n - first) / 2;
	limit = PAUSE_OUTLIER * (double)pauses[middle];
	for (size_t i = first; i < n; i++) {
		double pause = fmin((double)pauses[i], limit);

		sum += pause;
		squares += pause * pause;
	}
	mean = sum / (double)(n - first);
	return sqrt(fmax(0, squares / (double)(n - first) - mean * mean)) / mean;
}

/* Returns the middle of the two neighbours in pauses[first..last] that are farthest apart, as a ratio; 0: all
 * are alike. */
static uint64_t widest_gap(const uint64_t *pauses, size_t first, size_t last)
{
	uint64_t amid_ns = 0;
	double widest = 1;

	for (size_t i = first + 1; i <= last; i++) {
		double ratio = (double)pauses[i] / (double)pauses[i - 1];

		if (ratio > widest) {
			widest = ratio;
			amid_ns = pauses[i - 1] + (pauses[i] - pauses[i - 1] + 1) / 2;
		}
	}
	return amid_ns;
}

/* Returns the i-th threshold to try: first the shortest pause, which separates all beats, then the widest gap
 * in each part of the sorted pauses. */
static uint64_t candidate(const uint64_t *pauses, size_t n, size_t i)
{
	size_t last = i * n / CANDIDATES;

	return i ? widest_gap(pauses, (i - 1) * n / CANDIDATES, last < n ? last : n - 1) : pauses[0];
}

/* Divides the beats into steps. Returns false if no threshold makes the steps similar. */
static bool steps_part(struct rhythm_finder *finder)
{
	size_t half = finder->n / 2, n = 0;
	uint64_t best_ns = 0;
	double best = SPREAD_MAX + CLEARLY;

	for (size_t i = half + 1; i < finder->n; i++)
		if (pause_before(finder, i))
			finder->values[n++] = pause_before(finder, i);
	if (n)
		qsort(finder->values, n, sizeof(*finder->values), compare_u64);
	for (size_t i = 0; n && i <= CANDIDATES; i++) {
		uint64_t pause_ns = candidate(finder->values, n, i);
		double spread;

		if (!pause_ns)
			continue;
		steps_find(finder, pause_ns);
		spread =
		    spread_of(finder) + finder->pause_weight * pause_spread_of(finder->values, n, pause_ns);
		if (spread < best - CLEARLY) {
			best = spread;
			best_ns = pause_ns;
		}
	}
	if (!best_ns)
		return false;
	/* The first half may have shorter pauses than the second half, which gave best_ns. */
	steps_find(finder, best_ns > finder->values[0] ? best_ns : best_ns / 2);
	return true;
}

static bool is_usual(double reads, double usual)
{
	return reads * STEP_READS_RATIO >= usual && reads <= usual * STEP_READS_RATIO;
}

static bool is_regular(const struct rhythm_finder *finder, size_t step, double usual)
{
	return is_usual(reads_of(finder, step), usual);
}

/* Returns true if the unusual reads of `step` may be an accident, because the next step is regular or makes
 * up for them. */
static bool goes_on(const struct rhythm_finder *finder, size_t step, size_t next, double usual)
{
	return is_regular(finder, next, usual) ||
	       is_usual(reads_of(finder, step) + reads_of(finder, next), usual);
}

/* Finds the run of steps, from the middle in both directions, that read similar amounts. One different
 * step may come from a late sample, and two may be the halves of a step that lost its core for a while;
 * anything else ends the run. */
static bool regular_steps(struct rhythm_finder *finder, size_t *ret_first, size_t *ret_end)
{
	size_t half = finder->n_steps / 2, first = half, end = half;
	double usual;

	for (size_t i = half; i < finder->n_steps; i++)
		finder->values[i - half] = (uint64_t)reads_of(finder, i);
	usual = (double)median(finder->values, finder->n_steps - half);
	while (first > 0 && (is_regular(finder, first - 1, usual) ||
			     (first > 1 && goes_on(finder, first - 1, first - 2, usual))))
		first--;
	while (end < finder->n_steps && (is_regular(finder, end, usual) ||
					 (end + 1 < finder->n_steps && goes_on(finder, end, end + 1, usual))))
		end++;
	*ret_first = first;
	*ret_end = end;
	return end > first + STEPS_MIN;
}

static uint64_t load_of(const struct rhythm_finder *finder, size_t step)
{
	return finder->beats[step_end(finder, step) - 1].end_ns - finder->beats[finder->steps[step]].begin_ns;
}

/* Returns the CPU time of one data sample. A beat is one data sample, or several if the profiler's sample saw
 * several reads. */
static uint64_t sample_of(const struct rhythm_finder *finder, size_t first, size_t end)
{
	double exec_ns = 0, samples = 0;

	for (size_t i = first; i < end; i++) {
		const struct beat *from = &finder->beats[finder->steps[i]];
		const struct beat *to = &finder->beats[step_end(finder, i) - 1];
		double beats = (double)(to - from + 1), several = 0;

		for (const struct beat *beat = from; beat <= to; beat++)
			several += beat->n_samples;
		exec_ns += (double)(to->exec_end_ns - from->exec_begin_ns);
		samples += fmax(several, beats);
	}
	return samples > 0 ? (uint64_t)(exec_ns / samples) : 0;
}

/* The irregular step before the first regular one may end with a step's loading: imports, and right after
 * them the first batch. Returns true if its end reads about as much in as much time. */
static bool ends_in_a_load(const struct rhythm_finder *finder, size_t step, size_t regular, uint64_t load_ns)
{
	size_t end = step_end(finder, step), from = end - 1;
	const struct beat *usual_from = &finder->beats[finder->steps[regular]];
	double usual_bytes = (double)(finder->beats[step_end(finder, regular) - 1].read_bytes -
				      (usual_from > finder->beats ? usual_from[-1].read_bytes : 0));
	double reads = 0, usual = reads_of(finder, regular), bytes;

	while (from > finder->steps[step] &&
	       finder->beats[from].begin_ns + load_ns > finder->beats[end - 1].end_ns)
		from--;
	for (size_t i = from; i < end; i++)
		reads += finder->beats[i].n_reads;
	bytes = (double)(finder->beats[end - 1].read_bytes - (from ? finder->beats[from - 1].read_bytes : 0));
	return reads * 2 >= usual && reads <= usual * 2 && bytes * 2 >= usual_bytes &&
	       bytes <= usual_bytes * 2;
}

/* Returns the computing after a step's last data sample is decoded, until the next step's first read. */
static struct interval computing_after(const struct rhythm_finder *finder, size_t step, uint64_t sample_ns,
				       uint64_t limit_ns)
{
	const struct beat *last = &finder->beats[step_end(finder, step) - 1];
	struct interval interval = {last->last_ns + sample_ns, limit_ns};

	if (step + 1 < finder->n_steps)
		interval.end_ns = finder->beats[finder->steps[step + 1]].first_ns;
	if (interval.begin_ns > interval.end_ns)
		interval.begin_ns = interval.end_ns;
	return interval;
}

static int window_set(struct rhythm_finder *finder, uint64_t life_end_ns, struct rhythm *found)
{
	struct interval interval;
	size_t first, end, from;
	uint64_t load_ns, compute_ns, sample_ns;

	if (!regular_steps(finder, &first, &end))
		return 0;
	found->computing = calloc(end - first + 1, sizeof(*found->computing));
	if (!found->computing)
		return -ENOMEM;
	sample_ns = sample_of(finder, first, end);
	for (size_t i = first; i < end; i++)
		finder->values[i - first] = load_of(finder, i);
	load_ns = median(finder->values, end - first);
	found->sample_ns = sample_ns;
	found->begin_ns = finder->beats[finder->steps[first]].begin_ns;
	/* The first batch is read right after imports, so only its end and the usual length are known. */
	from = first;
	if (first > 0) {
		uint64_t end_ns = finder->beats[step_end(finder, first - 1) - 1].end_ns;

		if (end_ns > load_ns && end_ns - load_ns < found->begin_ns &&
		    ends_in_a_load(finder, first - 1, first, load_ns)) {
			found->begin_ns = end_ns - load_ns;
			from = first - 1;
		}
	}
	for (size_t i = from; i + 1 < end; i++) {
		interval = computing_after(finder, i, sample_ns, life_end_ns);
		finder->values[found->n_computing] = interval.end_ns - interval.begin_ns;
		found->computing[found->n_computing++] = interval;
	}
	compute_ns = median(finder->values, found->n_computing);
	found->n_steps = end - from;
	interval = computing_after(finder, end - 1, sample_ns, life_end_ns);
	if (interval.end_ns - interval.begin_ns > compute_ns)
		interval.end_ns = interval.begin_ns + compute_ns;
	found->end_ns = interval.end_ns;
	found->computing[found->n_computing++] = interval;
	return 0;
}

int rhythm_find(const struct beat *beats, size_t n, double pause_weight, uint64_t life_end_ns,
		struct rhythm *ret_rhythm)
{
	struct rhythm_finder finder = {.beats = beats, .n = n, .pause_weight = pause_weight};
	int r = -ENOMEM;

	*ret_rhythm = (struct rhythm){0};
	finder.steps = calloc(n + 1, sizeof(*finder.steps));
	finder.values = calloc(n + 1, sizeof(*finder.values));
	if (finder.steps && finder.values) {
		r = 0;
		if (steps_part(&finder))
			r = window_set(&finder, life_end_ns, ret_rhythm);
	}
	free(finder.steps);
	free(finder.values);
	return r;
}

void rhythm_free(struct rhythm *rhythm)
{
	free(rhythm->computing);
	*rhythm = (struct rhythm){0};
}
