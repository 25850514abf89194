/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "service.h"

/*
 * Cores are not quite independent: hardware threads share one, and all share caches and memory. How much a
 * thread is slowed down while the job keeps the other cores busy is learnt from the trainer's steps: they do
 * the same work each time, some with more of the workers' computing beside them than others. With f, the
 * share of a step's time in which the other cores were busy, its speed is
 *
 *     1 / T = (1 - b f) / T_alone
 *
 * A line through the speeds of all steps gives b. The share is taken instead of the time because a step that
 * takes longer for any other reason sees more of the workers.
 */
#define STEPS_MIN 20
#define SURE      3   /* standard errors that b must be above 0 */
#define B_MAX     0.5 /* at worst a core's two hardware threads run at half the speed each */

struct line {
	double n, x, y, xx, xy, yy;
};

static void line_add(struct line *line, double x, double y)
{
	line->n++;
	line->x += x;
	line->y += y;
	line->xx += x * x;
	line->xy += x * y;
	line->yy += y * y;
}

/* b of y = a (1 - b x); 0 where it is not surely above 0. */
static double line_solve(const struct line *line)
{
	double sxx = line->xx - line->x * line->x / line->n, sxy = line->xy - line->x * line->y / line->n;
	double syy = line->yy - line->y * line->y / line->n;
	double slope, intercept, error;

	if (line->n < STEPS_MIN || !(sxx > 0) || !(syy > 0))
		return 0;
	slope = sxy / sxx;
	intercept = (line->y - slope * line->x) / line->n;
	error = sqrt(fmax(0, syy - slope * sxy) / (line->n - 2) / sxx);
	if (!(intercept > 0) || -slope < SURE * error)
		return 0;
	return fmin(-slope / intercept, B_MAX);
}

/* Of the time in which the thread ran between begin and end, the share in which the job's other threads kept
 * the other cores busy. */
static double beside(const struct service *service, uint64_t begin_ns, uint64_t end_ns, double own_ns)
{
	double others_ns = (double)cores_busy(&service->cores, begin_ns, end_ns) - own_ns;
	double cores = service->job.cores;

	if (cores <= 1 || own_ns <= 0)
		return 0;
	return fmin(fmax(others_ns / (cores - 1) / (double)(end_ns - begin_ns), 0), 1);
}

/* Where the last part of a step begins, which no wait interrupts. */
static uint64_t device_begin_ns(const struct data_waits *waits, const struct analysis_step *step)
{
	uint64_t begin_ns = step->begin_ns;

	for (size_t i = data_waits_from(waits, begin_ns);
	     i < waits->n && waits->items[i].begin_ns < step->backward_ns; i++)
		begin_ns = waits->items[i].end_ns;
	return begin_ns < step->end_ns ? begin_ns : step->end_ns;
}

static double step_beside(const struct service_input *input, const struct service *service, size_t k)
{
	const struct analysis_step *step = &input->window->steps[k];
	uint64_t begin_ns = device_begin_ns(input->waits, step);

	return beside(service, begin_ns, step->end_ns, service->steps[k].cpu_ns);
}

void service_sharing_measure(const struct service_input *input, struct service *service)
{
	struct line line = {0};
	double b;

	for (size_t k = 0; k < input->window->n_steps; k++)
		if (service->steps[k].cpu_ns > 0)
			line_add(&line, step_beside(input, service, k), 1e9 / service->steps[k].cpu_ns);
	b = line_solve(&line);
	service->job.sharing_ratio = b / (1 - b);
	for (size_t k = 0; b > 0 && k < input->window->n_steps; k++)
		service->steps[k].cpu_ns *= 1 - b * step_beside(input, service, k);
	for (size_t w = 0; b > 0 && w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++) {
			const struct service_batch *batch = &service->workers[w].batches[i];
			double own_ns = 0, alone;

			for (size_t q = 0; q < batch->n_segments; q++)
				own_ns += service->segments[batch->first_segment + q].compute_ns *
					  fmax(1, service->segments[batch->first_segment + q].width);
			alone = 1 - b * beside(service, batch->begin_ns, batch->end_ns, own_ns);
			for (size_t q = 0; q < batch->n_segments; q++)
				service->segments[batch->first_segment + q].compute_ns *= alone;
		}
}
