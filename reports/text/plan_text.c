/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/plan.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/text.h"
#include "lib/units.h"

#define MIB        0x1p20
#define NAME_WIDTH 24

static int result_of(FILE *stream)
{
	return ferror(stream) ? (errno ? -errno : -EIO) : 0;
}

static const char *bytes_text(char text[16], double bytes)
{
	return units_format_bytes(text, 16, (uint64_t)bytes);
}

static void line_cluster(FILE *stream, const struct plan_cluster *cluster, bool slots)
{
	char text[16];

	for (size_t i = 0; i < cluster->n_kinds; i++) {
		const struct plan_nodes *nodes = &cluster->kinds[i];

		fprintf(stream, "%s%u node%s of %u %s%s, %g cores, %s", i ? "; " : "", nodes->n,
			units_plural(nodes->n), nodes->accelerators, slots ? "slot" : "accelerator",
			units_plural(nodes->accelerators), nodes->cores,
			bytes_text(text, nodes->memory_bytes));
	}
	fputc('\n', stream);
}

/* Returns the mean speed of the running jobs, and the lowest, as multiples of equal shares. */
static double mean_speed(const struct report_plan *plan, enum plan_strategy s, double *ret_least)
{
	size_t n = plan->n_jobs - plan->plans[s].n_waiting;

	*ret_least = NAN;
	for (size_t i = 0; i < plan->n_jobs; i++)
		if (plan->plans[s].shares[i].node != PLAN_WAITS)
			*ret_least = fmin(*ret_least, plan->plans[s].shares[i].relative);
	return n ? plan->plans[s].total / (double)n : NAN;
}

static void table_strategies(FILE *stream, const struct report_plan *plan)
{
	size_t n = plan->n_jobs - plan->plans[PLAN_EQUAL].n_waiting;

	fprintf(stream, "\n%-8s %8s %12s %12s %12s\n", "plan", "running", "all together", "mean", "slowest");
	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		double least, mean = mean_speed(plan, s, &least);

		fprintf(stream, "%-8s %8zu %11.2fx %11.2fx %11.2fx\n", plan_strategy_name(s),
			plan->n_jobs - plan->plans[s].n_waiting,
			plan->plans[s].total / plan->plans[PLAN_EQUAL].total, mean, least);
	}
	if (isnan(plan->bound))
		fprintf(stream, "optimum  not known: %s\n", plan->no_bound);
	else
		fprintf(stream, "optimum  %8zu %11.2fx at most; tune has %.1f %% of it\n", n,
			plan->bound / plan->plans[PLAN_EQUAL].total,
			100 * plan->plans[PLAN_TUNE].total / plan->bound);
	fprintf(stream, "Speeds are predicted, as multiples of those with equal shares.\n");
}

static void line_job(FILE *stream, const struct report_plan *plan, size_t i)
{
	const struct plan_share *share = &plan->plans[plan->chosen].shares[i];
	char name[NAME_WIDTH * 4], memory[16], workers[16] = "-", speed[32] = "not known";

	text_printable(name, sizeof(name), plan->about[i].name, strlen(plan->about[i].name));
	if (share->node == PLAN_WAITS) {
		fprintf(stream, "%-*s waits: no accelerators are left\n", NAME_WIDTH, name);
		return;
	}
	if (plan->about[i].n_workers != UINT32_MAX)
		snprintf(workers, sizeof(workers), "%u", plan->about[i].n_workers);
	if (share->speed > 0)
		snprintf(speed, sizeof(speed), "%.4g %s", share->speed, plan->about[i].unit);
	fprintf(stream, "%-*s %4zu %4u %6g %9s %7s %18s %6.2fx\n", NAME_WIDTH, name, share->node,
		plan->jobs[i].accelerators, share->cores, bytes_text(memory, share->memory_bytes), workers,
		speed, share->relative);
}

static void table_jobs(FILE *stream, const struct report_plan *plan)
{
	fprintf(stream, "\nPlan \"%s\":\n%-*s %4s %4s %6s %9s %7s %18s %7s\n",
		plan_strategy_name(plan->chosen), NAME_WIDTH, "job", "node", plan->slots ? "slot" : "acc",
		"cores", "memory", "workers", "speed", "of equal");
	for (size_t i = 0; i < plan->n_jobs; i++)
		line_job(stream, plan, i);
}

static void line_note(FILE *stream, const char *job, const char *note)
{
	char name[NAME_WIDTH * 4];

	text_printable(name, sizeof(name), job, strlen(job));
	fprintf(stream, "%s: %s.\n", name, note);
}

static void list_notes(FILE *stream, const struct report_plan *plan)
{
	for (size_t i = 0; i < plan->n_jobs; i++)
		if (*plan->about[i].note && (!i || plan->about[i].input != plan->about[i - 1].input))
			line_note(stream, plan->about[i].name, plan->about[i].note);
}

static void line_slurm(FILE *stream, const struct report_plan *plan, size_t i)
{
	const struct plan_share *share = &plan->plans[plan->chosen].shares[i];

	fprintf(stream, "  --nodes=1 ");
	if (!plan->slots)
		fprintf(stream, "--gpus-per-node=%u ", plan->jobs[i].accelerators);
	fprintf(stream, "--ntasks=1 --cpus-per-task=%.0f --mem=%.0fM", fmax(1, floor(share->cores)),
		floor(share->memory_bytes / MIB));
	if (share->cores != floor(share->cores))
		fprintf(stream, "  # the plan has %g cores, and Slurm gives whole ones", share->cores);
}

static void line_kubernetes(FILE *stream, const struct report_plan *plan, size_t i)
{
	const struct plan_share *share = &plan->plans[plan->chosen].shares[i];
	char gpus[48] = "";

	if (!plan->slots)
		snprintf(gpus, sizeof(gpus), ", nvidia.com/gpu: %u", plan->jobs[i].accelerators);
	for (int limits = 0; limits < 2; limits++)
		fprintf(stream, "%s{cpu: \"%g\", memory: %.0fMi%s}",
			limits ? ", limits: " : "  resources: {requests: ", share->cores,
			floor(share->memory_bytes / MIB), gpus);
	fputc('}', stream);
}

/* Returns how many jobs from i on are like it and have the same share; 0 if an earlier one is. */
static size_t n_alike(const struct report_plan *plan, size_t i)
{
	const struct plan_share *shares = plan->plans[plan->chosen].shares;
	size_t n = 0;

	for (size_t k = 0; k < plan->n_jobs; k++) {
		if (plan->about[k].input != plan->about[i].input || shares[k].node == PLAN_WAITS ||
		    shares[k].cores != shares[i].cores || shares[k].memory_bytes != shares[i].memory_bytes)
			continue;
		if (k < i)
			return 0;
		n++;
	}
	return n;
}

static void list_lines(FILE *stream, const struct report_plan *plan, const char *title,
		       void (*line)(FILE *, const struct report_plan *, size_t))
{
	char name[NAME_WIDTH * 4];

	fprintf(stream, "\n%s:\n", title);
	for (size_t i = 0; i < plan->n_jobs; i++) {
		size_t n = plan->plans[plan->chosen].shares[i].node == PLAN_WAITS ? 0 : n_alike(plan, i);
		char times[24] = "";

		if (!n)
			continue;
		text_printable(name, sizeof(name), plan->about[i].name, strlen(plan->about[i].name));
		if (n > 1)
			snprintf(times, sizeof(times), "%zu x", n);
		fprintf(stream, "%-*s %5s", NAME_WIDTH, name, times);
		line(stream, plan, i);
		fputc('\n', stream);
	}
}

int report_plan_text(FILE *stream, const struct report_plan *plan)
{
	line_cluster(stream, plan->cluster, plan->slots);
	table_strategies(stream, plan);
	table_jobs(stream, plan);
	list_notes(stream, plan);
	list_lines(stream, plan, "Slurm", line_slurm);
	list_lines(stream, plan, "Kubernetes", line_kubernetes);
	return result_of(stream);
}

int report_plan_times_text(FILE *stream, const struct report_plan_times *times)
{
	const struct plan_simulation *simulation = times->simulation;
	const struct plan_times *equal = &times->times[PLAN_EQUAL];

	line_cluster(stream, simulation->cluster, false);
	fprintf(stream,
		"Simulated, not measured: %g jobs per hour, seed %llu; completion times of jobs %zu to %zu, "
		"in hours%s\n\n",
		simulation->jobs_per_hour, (unsigned long long)simulation->seed, simulation->first,
		simulation->last - 1, simulation->moves ? "" : "; running jobs stay on their node");
	fprintf(stream, "%-8s %10s %10s %10s %10s %12s\n", "plan", "mean", "median", "99 %", "gain",
		"accelerators");
	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		const struct plan_times *one = &times->times[s];

		fprintf(stream, "%-8s %10.2f %10.2f %10.2f %9.2fx %8.0f %% in use\n", plan_strategy_name(s),
			one->mean_s / 3600, one->p50_s / 3600, one->p99_s / 3600, equal->mean_s / one->mean_s,
			100 * one->busy_ratio);
	}
	for (size_t i = 0; i < times->n_notes; i++)
		line_note(stream, times->notes[2 * i], times->notes[2 * i + 1]);
	return result_of(stream);
}
