/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/comparison.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/sorted.h"

#define DRAWS      2000
#define CONFIDENCE 0.99
#define BLOCK_MIN  4    /* minimum block length of the bootstrap, in steps: about one round of the workers */
#define NOTABLE    0.01 /* smaller changes do not matter, even if certain */

/* The steps that count: those after warm-up that are not excluded. */
struct sample {
	struct analysis_step *steps;
	size_t n, block;
};

/* Figures that are compared, of one sample or of one draw from it. */
struct figures {
	double share[SHARE_COUNT], stall, steps_per_s;
};

static uint64_t random_next(uint64_t *state)
{
	/* xorshift64*, Vigna 2016 */
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

static void sample_freep(struct sample *sample)
{
	free(sample->steps);
}

static int sample_of(const struct analysis *analysis, struct sample *ret_sample)
{
	size_t skip = analysis->steady.n_warmup_steps;
	struct sample sample = {.steps = calloc(analysis->n_steps + 1, sizeof(*sample.steps))};

	if (!sample.steps)
		return -ENOMEM;
	/* A job that is nearly all warm-up is compared with its warm-up. */
	if (analysis->n_steps < skip + ANALYSIS_STEPS_MIN)
		skip = 0;
	for (size_t i = skip; analysis->steps && i < analysis->n_steps; i++)
		if (!analysis->steps[i].excluded)
			sample.steps[sample.n++] = analysis->steps[i];
	sample.block = (size_t)cbrt((double)sample.n);
	if (sample.block < BLOCK_MIN)
		sample.block = BLOCK_MIN;
	*ret_sample = sample;
	return 0;
}

static void add_share_ns(struct figures *sums, const uint64_t share_ns[SHARE_COUNT])
{
	for (size_t i = 0; i < SHARE_COUNT; i++)
		if (i != SHARE_COMPILING)
			sums->share[i] += (double)share_ns[i];
}

static struct figures figures_of_sums(struct figures sums, size_t n)
{
	double wall_ns = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		wall_ns += sums.share[i];
	for (size_t i = 0; i < SHARE_COUNT; i++)
		sums.share[i] = wall_ns > 0 ? sums.share[i] / wall_ns : 0;
	sums.stall =
	    sums.share[SHARE_FETCH_STALL] + sums.share[SHARE_PREP_STALL] + sums.share[SHARE_CHECKPOINT_STALL];
	sums.steps_per_s = wall_ns > 0 ? (double)n * (double)NS_PER_S / wall_ns : NAN;
	return sums;
}

static struct figures figures_of(const struct analysis *analysis, const struct sample *sample)
{
	struct figures figures = {0};

	if (analysis->sampled.is || !sample->n) {
		add_share_ns(&figures, analysis->share_ns);
		return figures_of_sums(figures, analysis->sampled.n_steps_estimated);
	}
	for (size_t i = 0; i < sample->n; i++)
		add_share_ns(&figures, sample->steps[i].share_ns);
	return figures_of_sums(figures, sample->n);
}

static struct figures draw(const struct sample *sample, uint64_t *random)
{
	struct figures sums = {0};

	for (size_t n = 0; n < sample->n;) {
		size_t at = (size_t)(random_next(random) % sample->n);

		for (size_t k = 0; k < sample->block && n < sample->n; k++, n++)
			add_share_ns(&sums, sample->steps[(at + k) % sample->n].share_ns);
	}
	return figures_of_sums(sums, sample->n);
}

static void interval(double *draws, struct estimate *estimate)
{
	size_t tail = (size_t)((1 - CONFIDENCE) / 2 * DRAWS);

	qsort(draws, DRAWS, sizeof(*draws), compare_double);
	estimate->low = draws[tail];
	estimate->high = draws[DRAWS - 1 - tail];
}

static void judge_share(struct comparison_share *share)
{
	const struct estimate *change = &share->change;

	share->significant = fabs(change->value) >= NOTABLE && (change->low > 0 || change->high < 0);
}

/* Columns of draws: the shares, the stall, the speed. */
#define COLUMNS (SHARE_COUNT + 2)

static int resample(const struct sample *a, const struct sample *b, struct comparison *comparison)
{
	_cleanup_(freep) double *draws = calloc((size_t)COLUMNS * DRAWS, sizeof(*draws));
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);

	if (!draws)
		return -ENOMEM;
	for (size_t d = 0; d < DRAWS; d++) {
		struct figures of_a = draw(a, &random), of_b = draw(b, &random);

		for (size_t i = 0; i < SHARE_COUNT; i++)
			draws[i * DRAWS + d] = of_b.share[i] - of_a.share[i];
		draws[(size_t)SHARE_COUNT * DRAWS + d] = of_b.stall - of_a.stall;
		draws[(size_t)(SHARE_COUNT + 1) * DRAWS + d] = of_b.steps_per_s / of_a.steps_per_s;
	}
	for (size_t i = 0; i < SHARE_COUNT; i++)
		interval(draws + i * DRAWS, &comparison->shares[i].change);
	interval(draws + (size_t)SHARE_COUNT * DRAWS, &comparison->stall.change);
	interval(draws + (size_t)(SHARE_COUNT + 1) * DRAWS, &comparison->speed);
	return 0;
}

/* Sets the intervals of sampled shares. Their errors have 95 % confidence and are independent of each other;
 * a 99 % interval is 1.31 times as wide. */
static void widen(const struct analysis *a, const struct analysis *b, struct comparison *comparison)
{
	for (size_t i = 0; i < SHARE_COUNT; i++) {
		struct estimate *change = &comparison->shares[i].change;
		double error = 1.31 * hypot(a->sampled.error[i], b->sampled.error[i]);

		change->low = change->value - error;
		change->high = change->value + error;
	}
}

/* Compares compiling as a share of all observed time, without an interval: it is paid once, and not in the
 * steps that are resampled. */
static struct comparison_share compiling_of(const struct analysis *a, const struct analysis *b)
{
	double of_a = a->compiling.known ? analysis_share_ratio(a, SHARE_COMPILING) : NAN;
	double of_b = b->compiling.known ? analysis_share_ratio(b, SHARE_COMPILING) : NAN;

	return (struct comparison_share){of_a, of_b, {of_b - of_a, NAN, NAN}, false};
}

int comparison_make(const struct analysis *a, const struct analysis *b, struct comparison *ret_comparison)
{
	_cleanup_(sample_freep) struct sample sample_a = {0}, sample_b = {0};
	struct figures figures_a, figures_b;
	struct comparison made = {.verdict_changed = a->verdict != b->verdict};
	int r = 0;

	if (a->verdict == ANALYSIS_INSUFFICIENT || b->verdict == ANALYSIS_INSUFFICIENT)
		return -ENODATA;
	if (sample_of(a, &sample_a) < 0 || sample_of(b, &sample_b) < 0)
		return -ENOMEM;
	figures_a = figures_of(a, &sample_a);
	figures_b = figures_of(b, &sample_b);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		made.shares[i] =
		    (struct comparison_share){figures_a.share[i],
					      figures_b.share[i],
					      {figures_b.share[i] - figures_a.share[i], NAN, NAN},
					      false};
	made.stall = (struct comparison_share){
	    figures_a.stall, figures_b.stall, {figures_b.stall - figures_a.stall, NAN, NAN}, false};
	made.steps_per_s_a = figures_a.steps_per_s > 0 ? figures_a.steps_per_s : NAN;
	made.steps_per_s_b = figures_b.steps_per_s > 0 ? figures_b.steps_per_s : NAN;
	made.speed = (struct estimate){made.steps_per_s_b / made.steps_per_s_a, NAN, NAN};
	if (!a->sampled.is && !b->sampled.is && sample_a.n && sample_b.n)
		r = resample(&sample_a, &sample_b, &made);
	else
		widen(a, b, &made);
	if (r < 0)
		return r;
	for (size_t i = 0; i < SHARE_COUNT; i++)
		judge_share(&made.shares[i]);
	made.shares[SHARE_COMPILING] = compiling_of(a, b);
	judge_share(&made.stall);
	made.faster = made.speed.low > 1 && made.speed.value >= 1 + NOTABLE;
	made.slower = made.speed.high < 1 && made.speed.value <= 1 - NOTABLE;
	*ret_comparison = made;
	return 0;
}
