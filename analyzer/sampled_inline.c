/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/proc_task.h"
#include "sampled_trainer.h"

/*
 * A trainer that loads its data itself reads, decodes, reads, decodes, ..., and then computes a step. Looks
 * that saw it read are its rhythm: a distance between two of them that is far above the common one holds a
 * step's computing. What is common is taken off it, as the last sample is still decoded then.
 */

#define PAUSE_RATIO      2.5 /* times the common distance */
#define SAMPLES_A_LOOK   8   /* as many reads in one look are more than one sample */
#define STEP_READS_RATIO 2.5 /* a step that reads so much more or less than the others is none */
#define STEPS_MIN        3

struct beat {
	uint64_t begin_ns, end_ns; /* looks that read */
	uint32_t n_reads;
};

struct rhythm {
	struct beat *beats;
	size_t n;
	uint64_t look_ns;   /* the usual length of a look */
	uint64_t common_ns; /* the usual distance of the ends of two beats */
	size_t *steps;      /* index of the first beat of each */
	size_t n_steps;
};

static int compare_u64(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static uint64_t median(uint64_t *values, size_t n)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), compare_u64);
	return values[n / 2];
}

static void beats_find(const struct sampled_thread *thread, struct rhythm *rhythm)
{
	for (size_t i = 0; i < thread->n; i++) {
		const struct event *look = thread->looks[i];

		if (look->sample.n_reads || look->sample.wait == PROC_WAIT_FILE_READ)
			rhythm->beats[rhythm->n++] =
			    (struct beat){look->start_ns, look->end_ns, look->sample.n_reads};
	}
}

/* From the second half, where no imports are. */
static void common_find(struct rhythm *rhythm, uint64_t *values)
{
	size_t half = rhythm->n / 2, n = rhythm->n - half;
	uint64_t reads;

	for (size_t i = 0; i < n; i++)
		values[i] = rhythm->beats[half + i].end_ns - rhythm->beats[half + i].begin_ns;
	rhythm->look_ns = median(values, n);
	for (size_t i = 0; i < n; i++)
		values[i] = rhythm->beats[half + i].n_reads;
	reads = median(values, n);
	for (size_t i = 0; i + 1 < n; i++)
		values[i] = rhythm->beats[half + i + 1].end_ns - rhythm->beats[half + i].end_ns;
	rhythm->common_ns = median(values, n - 1);
	if (reads >= SAMPLES_A_LOOK && rhythm->common_ns > rhythm->look_ns)
		rhythm->common_ns = rhythm->look_ns;
}

static void steps_find(struct rhythm *rhythm)
{
	double pause_ns = PAUSE_RATIO * (double)rhythm->common_ns + (double)rhythm->look_ns;

	rhythm->steps[rhythm->n_steps++] = 0;
	for (size_t i = 1; i < rhythm->n; i++)
		if ((double)(rhythm->beats[i].end_ns - rhythm->beats[i - 1].end_ns) > pause_ns)
			rhythm->steps[rhythm->n_steps++] = i;
}

static uint64_t reads_of(const struct rhythm *rhythm, size_t step)
{
	size_t end = step + 1 < rhythm->n_steps ? rhythm->steps[step + 1] : rhythm->n;
	uint64_t n = 0;

	for (size_t i = rhythm->steps[step]; i < end; i++)
		n += rhythm->beats[i].n_reads;
	return n;
}

static size_t last_beat(const struct rhythm *rhythm, size_t step)
{
	return (step + 1 < rhythm->n_steps ? rhythm->steps[step + 1] : rhythm->n) - 1;
}

/* The run of steps around the middle of the second half that read about the same. *ret_first's own loading is
 * cut to the usual where it is longer: imports run into it. */
static bool regular_steps(const struct rhythm *rhythm, uint64_t *values, size_t *ret_first, size_t *ret_end)
{
	size_t half = rhythm->n_steps / 2, n = rhythm->n_steps - half, anchor = half, first, end;
	double usual;

	for (size_t i = 0; i < n; i++)
		values[i] = reads_of(rhythm, half + i);
	usual = (double)median(values, n);
	if (rhythm->n_steps < STEPS_MIN || usual <= 0)
		return false;
#define REGULAR(step)                                                                                        \
	((double)reads_of(rhythm, step) * STEP_READS_RATIO >= usual &&                                       \
	 (double)reads_of(rhythm, step) <= usual * STEP_READS_RATIO)
	while (anchor < rhythm->n_steps && !REGULAR(anchor))
		anchor++;
	if (anchor == rhythm->n_steps)
		return false;
	/* One that is not regular is a checkpoint that was read or a look that came late; two are something
	 * else. */
	for (first = anchor; first > 0; first--)
		if (!REGULAR(first - 1) && (first < 2 || !REGULAR(first - 2)))
			break;
	for (end = anchor + 1; end < rhythm->n_steps; end++)
		if (!REGULAR(end) && (end + 1 >= rhythm->n_steps || !REGULAR(end + 1)))
			break;
#undef REGULAR
	*ret_first = first;
	*ret_end = end;
	return end - first >= STEPS_MIN;
}

/* The step's computing comes after its last beat. */
static struct sampled_stretch computing_after(const struct rhythm *rhythm, size_t step, uint64_t limit_ns)
{
	uint64_t decode_ns = rhythm->common_ns > rhythm->look_ns ? rhythm->common_ns : rhythm->look_ns / 2;
	uint64_t end_ns =
	    step + 1 < rhythm->n_steps ? rhythm->beats[rhythm->steps[step + 1]].begin_ns : limit_ns;
	struct sampled_stretch stretch = {rhythm->beats[last_beat(rhythm, step)].end_ns, end_ns};

	/* The beat ends with a look, somewhere after its read; the next one begins with one, before it. */
	stretch.begin_ns += decode_ns > rhythm->look_ns / 2 ? decode_ns - rhythm->look_ns / 2 : 0;
	stretch.end_ns += step + 1 < rhythm->n_steps ? rhythm->look_ns / 2 : 0;
	if (stretch.begin_ns > stretch.end_ns)
		stretch.begin_ns = stretch.end_ns;
	return stretch;
}

static int window_set(const struct rhythm *rhythm, uint64_t *values, uint64_t life_end_ns,
		      struct sampled_trainer *trainer)
{
	size_t first, end, n = 0;
	uint64_t load_ns, compute_ns;

	if (!regular_steps(rhythm, values, &first, &end))
		return 0;
	trainer->computing = calloc(end - first + 1, sizeof(*trainer->computing));
	if (!trainer->computing)
		return -ENOMEM;
	for (size_t i = first; i < end; i++)
		values[n++] =
		    rhythm->beats[last_beat(rhythm, i)].end_ns - rhythm->beats[rhythm->steps[i]].begin_ns;
	load_ns = median(values, n);
	for (size_t i = first, k = 0; i + 1 < end; i++) {
		struct sampled_stretch stretch = computing_after(rhythm, i, life_end_ns);

		trainer->computing[trainer->n_computing++] = stretch;
		values[k++] = stretch.end_ns - stretch.begin_ns;
		n = k;
	}
	compute_ns = median(values, n);
	trainer->begin_ns = rhythm->beats[rhythm->steps[first]].begin_ns;
	/* Imports, and whatever comes before the first step, end in its loading. */
	if (first > 0) {
		const struct beat *beat = &rhythm->beats[last_beat(rhythm, first - 1)];

		if (beat->end_ns > load_ns && beat->end_ns - load_ns < trainer->begin_ns) {
			struct sampled_stretch stretch = computing_after(rhythm, first - 1, life_end_ns);

			trainer->begin_ns = beat->end_ns - load_ns;
			memmove(&trainer->computing[1], &trainer->computing[0],
				trainer->n_computing * sizeof(stretch));
			trainer->computing[0] = stretch;
			trainer->n_computing++;
			trainer->n_steps++;
		}
	}
	trainer->n_steps += end - first;
	{
		struct sampled_stretch stretch = computing_after(rhythm, end - 1, life_end_ns);

		if (stretch.end_ns - stretch.begin_ns > compute_ns)
			stretch.end_ns = stretch.begin_ns + compute_ns;
		if (stretch.end_ns > life_end_ns)
			stretch.end_ns = life_end_ns;
		trainer->end_ns = stretch.end_ns;
		if (stretch.begin_ns < stretch.end_ns)
			trainer->computing[trainer->n_computing++] = stretch;
	}
	return 0;
}

int sampled_inline_find(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	struct rhythm rhythm = {0};
	uint64_t *values;
	int r = -ENOMEM;

	rhythm.beats = calloc(thread->n + 1, sizeof(*rhythm.beats));
	rhythm.steps = calloc(thread->n + 1, sizeof(*rhythm.steps));
	values = calloc(thread->n + 1, sizeof(*values));
	if (rhythm.beats && rhythm.steps && values) {
		r = 0;
		beats_find(thread, &rhythm);
		if (rhythm.n > 2) {
			common_find(&rhythm, values);
			steps_find(&rhythm);
			r = window_set(&rhythm, values, thread->looks[thread->n - 1]->end_ns, trainer);
		}
	}
	free(rhythm.beats);
	free(rhythm.steps);
	free(values);
	return r;
}
