/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/proc_task.h"
#include "sampled_trainer.h"

/*
 * A trainer that loads its data itself reads, decodes, reads, decodes, ..., and then computes a step without
 * reading. Looks that saw it read or wait for a file are its beats; between two of them lies a pause. Batches
 * are of one size and computing takes about as long each time, so of all lengths of pause the right one to
 * part steps is that which leaves each step with the same number of read calls, behind pauses of about one
 * length.
 */

#define CANDIDATES       24
#define STEPS_MIN        3
#define PAUSE_WEIGHT     0.1  /* of the pauses' spread beside that of the reads */
#define CLEARLY          0.01 /* better by less than that is as good, and a shorter pause finds more steps */
#define PAUSE_OUTLIER    4    /* times the median: a checkpoint, an evaluation */
#define SPREAD_MAX       0.6  /* of the reads a step, over their mean: above there is no rhythm */
#define STEP_READS_RATIO 1.6  /* a step that reads so much more or less than the others is none */
#define FILE_READS       2    /* at least: a file's content and its end */

struct beat {
	uint64_t begin_ns, end_ns;
	uint64_t exec_begin_ns, exec_end_ns; /* CPU time so far */
	uint64_t read_bytes;                 /* so far, at the end */
	uint32_t n_reads;
};

struct rhythm {
	struct beat *beats;
	size_t n;
	size_t *steps; /* index of the first beat of each */
	size_t n_steps;
	uint64_t *values; /* scratch: as many as there are beats */
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
	uint64_t exec_ns = 0, read_bytes = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *look = thread->looks[i];

		exec_ns += look->sample.exec_ns;
		read_bytes += look->sample.read_bytes;
		if (look->sample.n_reads || look->sample.wait == PROC_WAIT_FILE_READ)
			rhythm->beats[rhythm->n++] =
			    (struct beat){.begin_ns = look->start_ns,
					  .end_ns = look->end_ns,
					  .exec_begin_ns = exec_ns - look->sample.exec_ns,
					  .exec_end_ns = exec_ns,
					  .read_bytes = read_bytes,
					  .n_reads = look->sample.n_reads};
	}
}

static uint64_t pause_before(const struct rhythm *rhythm, size_t i)
{
	return rhythm->beats[i].begin_ns - rhythm->beats[i - 1].end_ns;
}

static void steps_find(struct rhythm *rhythm, uint64_t pause_ns)
{
	rhythm->n_steps = 0;
	for (size_t i = 0; i < rhythm->n; i++)
		if (!i || pause_before(rhythm, i) >= pause_ns)
			rhythm->steps[rhythm->n_steps++] = i;
}

static size_t step_end(const struct rhythm *rhythm, size_t step)
{
	return step + 1 < rhythm->n_steps ? rhythm->steps[step + 1] : rhythm->n;
}

static double reads_of(const struct rhythm *rhythm, size_t step)
{
	uint64_t n = 0;

	for (size_t i = rhythm->steps[step]; i < step_end(rhythm, step); i++)
		n += rhythm->beats[i].n_reads;
	return (double)n;
}

/* How unlike the steps of the second half, where no imports are, are in their reads: deviation over mean. */
static double spread_of(const struct rhythm *rhythm)
{
	size_t half = rhythm->n_steps / 2, n = 0;
	double sum = 0, squares = 0, mean;

	/* The last one may be cut off. */
	for (size_t i = half; i + 1 < rhythm->n_steps; i++, n++) {
		double reads = reads_of(rhythm, i);

		sum += reads;
		squares += reads * reads;
	}
	if (n < STEPS_MIN || sum <= 0)
		return INFINITY;
	mean = sum / (double)n;
	return sqrt(fmax(0, squares / (double)n - mean * mean)) / mean;
}

/* The same of the pauses. pauses: of the second half, sorted; those below pause_ns part no steps. */
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

static uint64_t shorter(const uint64_t *pauses, size_t n, uint64_t pause_ns)
{
	uint64_t best_ns = 0;

	for (size_t i = 0; i < n && pauses[i] < pause_ns; i++)
		best_ns = pauses[i];
	return best_ns;
}

/* Parts the beats into steps. false: no length of pause makes them alike. */
static bool rhythm_find(struct rhythm *rhythm)
{
	size_t half = rhythm->n / 2, n = 0;
	uint64_t best_ns = 0, last_ns = 0;
	double best = SPREAD_MAX + CLEARLY;

	for (size_t i = half + 1; i < rhythm->n; i++)
		if (pause_before(rhythm, i))
			rhythm->values[n++] = pause_before(rhythm, i);
	if (n)
		qsort(rhythm->values, n, sizeof(*rhythm->values), compare_u64);
	for (size_t i = 0; n && i < CANDIDATES; i++) {
		uint64_t pause_ns = rhythm->values[i * n / CANDIDATES];
		double spread;

		if (pause_ns == last_ns)
			continue;
		last_ns = pause_ns;
		steps_find(rhythm, pause_ns);
		spread = spread_of(rhythm) + PAUSE_WEIGHT * pause_spread_of(rhythm->values, n, pause_ns);
		if (spread < best - CLEARLY) {
			best = spread;
			/* Half way to the next shorter one: the first half has its own. */
			best_ns = pause_ns - (pause_ns - (i ? shorter(rhythm->values, n, pause_ns) : 0)) / 2;
		}
	}
	if (!best_ns)
		return false;
	steps_find(rhythm, best_ns);
	return true;
}

static bool is_regular(const struct rhythm *rhythm, size_t step, double usual)
{
	double reads = reads_of(rhythm, step);

	return reads * STEP_READS_RATIO >= usual && reads <= usual * STEP_READS_RATIO;
}

/* The run of steps from the second half on, and back, that read about the same. One that does not is a look
 * that came late; two are something else. */
static bool regular_steps(struct rhythm *rhythm, size_t *ret_first, size_t *ret_end)
{
	size_t half = rhythm->n_steps / 2, first = half, end = half;
	double usual;

	for (size_t i = half; i < rhythm->n_steps; i++)
		rhythm->values[i - half] = (uint64_t)reads_of(rhythm, i);
	usual = (double)median(rhythm->values, rhythm->n_steps - half);
	while (first > 0 &&
	       (is_regular(rhythm, first - 1, usual) || (first > 1 && is_regular(rhythm, first - 2, usual))))
		first--;
	while (end < rhythm->n_steps && (is_regular(rhythm, end, usual) ||
					 (end + 1 < rhythm->n_steps && is_regular(rhythm, end + 1, usual))))
		end++;
	*ret_first = first;
	*ret_end = end;
	return end > first + STEPS_MIN;
}

static uint64_t load_of(const struct rhythm *rhythm, size_t step)
{
	return rhythm->beats[step_end(rhythm, step) - 1].end_ns - rhythm->beats[rhythm->steps[step]].begin_ns;
}

/* The CPU time of a sample: a beat is one, or several reads in a look are several. */
static uint64_t sample_of(const struct rhythm *rhythm, size_t first, size_t end)
{
	double exec_ns = 0, samples = 0;

	for (size_t i = first; i < end; i++) {
		const struct beat *from = &rhythm->beats[rhythm->steps[i]];
		const struct beat *to = &rhythm->beats[step_end(rhythm, i) - 1];
		double beats = (double)(to - from + 1), files = reads_of(rhythm, i) / FILE_READS;

		exec_ns += (double)(to->exec_end_ns - from->exec_begin_ns);
		samples += files > beats ? files : beats;
	}
	return samples > 0 ? (uint64_t)(exec_ns / samples) : 0;
}

/* The end of what comes before the first regular step is a step's loading as well, if that much was read in
 * as much time: imports, and the first batch in the same breath. */
static bool ends_in_a_load(const struct rhythm *rhythm, size_t step, size_t regular, uint64_t load_ns)
{
	size_t end = step_end(rhythm, step), from = end - 1;
	const struct beat *usual_from = &rhythm->beats[rhythm->steps[regular]];
	double usual_bytes = (double)(rhythm->beats[step_end(rhythm, regular) - 1].read_bytes -
				      (usual_from > rhythm->beats ? usual_from[-1].read_bytes : 0));
	double reads = 0, usual = reads_of(rhythm, regular), bytes;

	while (from > rhythm->steps[step] &&
	       rhythm->beats[from].begin_ns + load_ns > rhythm->beats[end - 1].end_ns)
		from--;
	for (size_t i = from; i < end; i++)
		reads += rhythm->beats[i].n_reads;
	bytes = (double)(rhythm->beats[end - 1].read_bytes - (from ? rhythm->beats[from - 1].read_bytes : 0));
	return reads * 2 >= usual && reads <= usual * 2 && bytes * 2 >= usual_bytes &&
	       bytes <= usual_bytes * 2;
}

/* The computing after a step's last beat: the read is on average in the middle of its look, and its sample is
 * decoded first; likewise the next step's first read. */
static struct sampled_stretch computing_after(const struct rhythm *rhythm, size_t step, uint64_t sample_ns,
					      uint64_t limit_ns)
{
	const struct beat *last = &rhythm->beats[step_end(rhythm, step) - 1];
	struct sampled_stretch stretch = {last->end_ns - (last->end_ns - last->begin_ns) / 2 + sample_ns,
					  limit_ns};

	if (step + 1 < rhythm->n_steps) {
		const struct beat *next = &rhythm->beats[rhythm->steps[step + 1]];

		stretch.end_ns = next->begin_ns + (next->n_reads ? (next->end_ns - next->begin_ns) / 2 : 0);
	}
	if (stretch.begin_ns > stretch.end_ns)
		stretch.begin_ns = stretch.end_ns;
	return stretch;
}

static int window_set(struct rhythm *rhythm, uint64_t life_end_ns, struct sampled_trainer *trainer)
{
	struct sampled_stretch stretch;
	size_t first, end, from;
	uint64_t load_ns, compute_ns, sample_ns;

	if (!regular_steps(rhythm, &first, &end))
		return 0;
	trainer->computing = calloc(end - first + 1, sizeof(*trainer->computing));
	if (!trainer->computing)
		return -ENOMEM;
	sample_ns = sample_of(rhythm, first, end);
	for (size_t i = first; i < end; i++)
		rhythm->values[i - first] = load_of(rhythm, i);
	load_ns = median(rhythm->values, end - first);
	trainer->begin_ns = rhythm->beats[rhythm->steps[first]].begin_ns;
	/* The first batch is read in the same breath as imports: its end is known, and the usual length. */
	from = first;
	if (first > 0) {
		uint64_t end_ns = rhythm->beats[step_end(rhythm, first - 1) - 1].end_ns;

		if (end_ns > load_ns && end_ns - load_ns < trainer->begin_ns &&
		    ends_in_a_load(rhythm, first - 1, first, load_ns)) {
			trainer->begin_ns = end_ns - load_ns;
			from = first - 1;
		}
	}
	for (size_t i = from; i + 1 < end; i++) {
		stretch = computing_after(rhythm, i, sample_ns, life_end_ns);
		rhythm->values[trainer->n_computing] = stretch.end_ns - stretch.begin_ns;
		trainer->computing[trainer->n_computing++] = stretch;
	}
	compute_ns = median(rhythm->values, trainer->n_computing);
	trainer->n_steps = end - from;
	stretch = computing_after(rhythm, end - 1, sample_ns, life_end_ns);
	if (stretch.end_ns - stretch.begin_ns > compute_ns)
		stretch.end_ns = stretch.begin_ns + compute_ns;
	trainer->end_ns = stretch.end_ns;
	trainer->computing[trainer->n_computing++] = stretch;
	return 0;
}

int sampled_inline_find(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	struct rhythm rhythm = {0};
	int r = -ENOMEM;

	rhythm.beats = calloc(thread->n + 1, sizeof(*rhythm.beats));
	rhythm.steps = calloc(thread->n + 1, sizeof(*rhythm.steps));
	rhythm.values = calloc(thread->n + 1, sizeof(*rhythm.values));
	if (rhythm.beats && rhythm.steps && rhythm.values) {
		r = 0;
		beats_find(thread, &rhythm);
		if (rhythm_find(&rhythm))
			r = window_set(&rhythm, thread->looks[thread->n - 1]->end_ns, trainer);
	}
	free(rhythm.beats);
	free(rhythm.steps);
	free(rhythm.values);
	return r;
}
