/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
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

/* Returns true if the plan runs the same jobs as that of equal shares. */
static bool same_running(const struct report_plan *plan, enum plan_strategy s)
{
	for (size_t i = 0; i < plan->n_jobs; i++)
		if ((plan->plans[s].shares[i].node == PLAN_WAITS) !=
		    (plan->plans[PLAN_EQUAL].shares[i].node == PLAN_WAITS))
			return false;
	return true;
}

static void table_strategies(FILE *stream, const struct report_plan *plan)
{
	size_t n = plan->n_jobs - plan->plans[PLAN_TUNE].n_waiting;
	bool alike = true;

	fprintf(stream, "\n%-8s %8s %12s %12s %12s\n", "plan", "running", "all together", "mean", "slowest");
	for (int s = 0; s < PLAN_STRATEGIES; s++) {
		double least, mean = mean_speed(plan, s, &least);

		fprintf(stream, "%-8s %8zu %11.2fx %11.2fx %11.2fx\n", plan_strategy_name(s),
			plan->n_jobs - plan->plans[s].n_waiting,
			plan->plans[s].total / plan->plans[PLAN_EQUAL].total, mean, least);
		alike &= same_running(plan, s);
	}
	if (isnan(plan->bound))
		fprintf(stream, "optimum  not known: %s\n", plan->no_bound);
	else
		fprintf(stream, "optimum  %8zu %11.2fx at most; tune has %.1f %% of it\n", n,
			plan->bound / plan->plans[PLAN_EQUAL].total,
			100 * plan->plans[PLAN_TUNE].total / plan->bound);
	fprintf(stream, "Speeds are predicted, as multiples of those with equal shares.\n");
	if (!alike)
		fprintf(stream, "Not the same jobs run in each plan: \"all together\" counts one that waits "
				"as 0, \"mean\" and \"slowest\" leave it out.\n");
}

static void line_lack(FILE *stream, const struct report_plan *plan, size_t i)
{
	const char *what = plan->slots ? "slot" : "accelerator";
	uint32_t n = plan->jobs[i].accelerators, n_nodes = UINT32_MAX;

	for (size_t kind = 0; kind < plan->cluster->n_kinds; kind++) {
		uint32_t needed = plan_nodes_of(plan->cluster, kind, &plan->jobs[i]);

		n_nodes = needed && needed < n_nodes ? needed : n_nodes;
	}
	switch (plan->plans[plan->chosen].shares[i].lack) {
	case PLAN_LACKS_CORES:
		fprintf(stream, "where %ss are left, the cores left are fewer than it can use\n", what);
		return;
	case PLAN_LACKS_MEMORY:
		fprintf(stream, "where %ss are left, the memory left is less than it can use\n", what);
		return;
	case PLAN_LACKS_NOTHING:
	case PLAN_LACKS_ACCELERATORS: break;
	}
	if (n == 1)
		fprintf(stream, "no %ss are left\n", what);
	else if (n_nodes == 1)
		fprintf(stream, "no node has %u %ss left\n", n, what);
	else
		fprintf(stream, "no %u nodes have %u %ss left together, all but one node whole\n", n_nodes, n,
			what);
}

/* Writes the numbers of the nodes, such as 3 or 0-2,5. */
static void nodes_text(const struct plan *plan, const struct plan_share *share, char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (size_t i = 0; i < share->n_parts && length < size; i++) {
		const struct plan_part *parts = &plan->parts[share->first_part];
		size_t k = i;

		while (k + 1 < share->n_parts && parts[k + 1].node == parts[k].node + 1)
			k++;
		length +=
		    (size_t)snprintf(text + length, size - length, "%s%zu", i ? "," : "", parts[i].node);
		if (k > i && length < size)
			length += (size_t)snprintf(text + length, size - length, "-%zu", parts[k].node);
		i = k;
	}
}

static void line_job(FILE *stream, const struct report_plan *plan, size_t i)
{
	const struct plan_share *share = &plan->plans[plan->chosen].shares[i];
	char name[NAME_WIDTH * 4], memory[16], workers[16] = "-", speed[32] = "not known", nodes[40];

	text_printable(name, sizeof(name), plan->about[i].name, strlen(plan->about[i].name));
	if (share->node == PLAN_WAITS) {
		fprintf(stream, "%-*s waits: ", NAME_WIDTH, name);
		line_lack(stream, plan, i);
		return;
	}
	nodes_text(&plan->plans[plan->chosen], share, nodes, sizeof(nodes));
	if (plan->about[i].n_workers != UINT32_MAX)
		snprintf(workers, sizeof(workers), "%u", plan->about[i].n_workers);
	if (share->speed > 0)
		snprintf(speed, sizeof(speed), "%.4g %s", share->speed, plan->about[i].unit);
	fprintf(stream, "%-*s %4s %4u %6g %9s %7s %18s %6.2fx\n", NAME_WIDTH, name, nodes,
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

static double least_whole(const struct report_plan *plan, size_t i)
{
	const struct plan *chosen = &plan->plans[plan->chosen];

	return fmax(1, floor(chosen->parts[chosen->shares[i].first_part].cores));
}

/*
 * Slurm gives whole cores. Computes those of each job's first part: at least one, and never more in sum than
 * the node has. Jobs with less than a core take one, which comes from the first ones with more. 0: the node
 * has fewer cores than jobs. Free the result. NULL: no memory.
 */
static double *whole_cores(const struct report_plan *plan)
{
	const struct plan_share *shares = plan->plans[plan->chosen].shares;
	size_t n_nodes = plan_n_nodes(plan->cluster);
	double *whole = calloc(plan->n_jobs + n_nodes + 1, sizeof(*whole)), *left = whole + plan->n_jobs;

	if (!whole)
		return NULL;
	for (size_t node = 0; node < n_nodes; node++)
		left[node] = floor(plan_node(plan->cluster, node)->cores);
	for (size_t i = 0; i < plan->n_jobs; i++)
		if (shares[i].node != PLAN_WAITS)
			left[shares[i].node] -= least_whole(plan, i);
	for (size_t i = 0; i < plan->n_jobs; i++) {
		double given;

		if (shares[i].node == PLAN_WAITS)
			continue;
		given = fmin(least_whole(plan, i) - 1, fmax(0, -left[shares[i].node]));
		whole[i] = least_whole(plan, i) - given;
		left[shares[i].node] += given;
	}
	for (size_t i = 0; i < plan->n_jobs; i++)
		if (shares[i].node != PLAN_WAITS && left[shares[i].node] < 0)
			whole[i] = 0;
	return whole;
}

/* Returns whole MiB, at least 1, as Slurm gives a whole node for 0; the part of a share may be a little less
 * than it is by rounding. */
static double whole_mib(double bytes)
{
	return fmax(1, floor(bytes / MIB + 1e-6));
}

static void slurm_part(FILE *stream, const struct report_plan *plan, const struct plan_part *part, size_t n,
		       double cores)
{
	fprintf(stream, "--nodes=%zu ", n);
	if (!plan->slots)
		fprintf(stream, "--gpus-per-node=%u ", part->accelerators);
	fprintf(stream, "--ntasks=%zu --cpus-per-task=%.0f --mem=%.0fM", n, cores,
		whole_mib(part->memory_bytes));
}

/* One task per node. A job's first part may be smaller than the others: then it is a component of its own. */
static void line_slurm(FILE *stream, const struct report_plan *plan, const double *whole, size_t i)
{
	const struct plan *chosen = &plan->plans[plan->chosen];
	const struct plan_share *share = &chosen->shares[i];
	const struct plan_part *parts = &chosen->parts[share->first_part];
	double cores = whole[i];
	bool alike = share->n_parts == 1 ||
		     (parts[0].accelerators == parts[1].accelerators && cores == floor(parts[1].cores) &&
		      parts[0].memory_bytes == parts[1].memory_bytes);

	if (cores < 1) {
		fprintf(stream,
			"  # node %zu has fewer cores than jobs, and Slurm gives whole ones: give --cluster "
			"fewer accelerators for this node",
			share->node);
		return;
	}
	fprintf(stream, "  ");
	if (alike) {
		slurm_part(stream, plan, &parts[0], share->n_parts, cores);
	} else {
		slurm_part(stream, plan, &parts[1], share->n_parts - 1, floor(parts[1].cores));
		fprintf(stream, " : ");
		slurm_part(stream, plan, &parts[0], 1, cores);
	}
	if (parts[0].cores != cores || (share->n_parts > 1 && parts[1].cores != floor(parts[1].cores)))
		fprintf(stream, "  # the plan has %g cores, and Slurm gives whole ones", share->cores);
}

static void kubernetes_part(FILE *stream, const struct report_plan *plan, const struct plan_part *part)
{
	char gpus[48] = "";

	if (!plan->slots)
		snprintf(gpus, sizeof(gpus), ", nvidia.com/gpu: %u", part->accelerators);
	for (int limits = 0; limits < 2; limits++)
		fprintf(stream, "%s{cpu: \"%g\", memory: %.0fMi%s}",
			limits ? ", limits: " : "resources: {requests: ", part->cores,
			whole_mib(part->memory_bytes), gpus);
	fputc('}', stream);
}

/* One pod per node. */
static void line_kubernetes(FILE *stream, const struct report_plan *plan, const double *whole, size_t i)
{
	const struct plan *chosen = &plan->plans[plan->chosen];
	const struct plan_share *share = &chosen->shares[i];
	const struct plan_part *parts = &chosen->parts[share->first_part];
	bool alike = share->n_parts > 1 && parts[0].accelerators == parts[1].accelerators &&
		     parts[0].cores == parts[1].cores && parts[0].memory_bytes == parts[1].memory_bytes;

	(void)whole;
	fprintf(stream, "  ");
	if (alike)
		fprintf(stream, "%zu pods, each ", share->n_parts);
	else if (share->n_parts > 1)
		fprintf(stream, "1 pod ");
	kubernetes_part(stream, plan, &parts[0]);
	if (alike || share->n_parts == 1)
		return;
	fprintf(stream, "; %zu pod%s ", share->n_parts - 1, units_plural(share->n_parts - 1));
	kubernetes_part(stream, plan, &parts[1]);
}

/* Returns how many jobs from i on are like it and have the same share; 0 if an earlier one is. */
static size_t n_alike(const struct report_plan *plan, const double *whole, size_t i)
{
	const struct plan_share *shares = plan->plans[plan->chosen].shares;
	size_t n = 0;

	for (size_t k = 0; k < plan->n_jobs; k++) {
		if (plan->about[k].input != plan->about[i].input || shares[k].node == PLAN_WAITS ||
		    shares[k].cores != shares[i].cores || shares[k].memory_bytes != shares[i].memory_bytes ||
		    shares[k].n_parts != shares[i].n_parts || whole[k] != whole[i])
			continue;
		if (k < i)
			return 0;
		n++;
	}
	return n;
}

static void list_lines(FILE *stream, const struct report_plan *plan, const char *title, const double *whole,
		       void (*line)(FILE *, const struct report_plan *, const double *, size_t))
{
	char name[NAME_WIDTH * 4];

	fprintf(stream, "\n%s:\n", title);
	for (size_t i = 0; i < plan->n_jobs; i++) {
		size_t n =
		    plan->plans[plan->chosen].shares[i].node == PLAN_WAITS ? 0 : n_alike(plan, whole, i);
		char times[24] = "";

		if (!n)
			continue;
		text_printable(name, sizeof(name), plan->about[i].name, strlen(plan->about[i].name));
		if (n > 1)
			snprintf(times, sizeof(times), "%zu x", n);
		fprintf(stream, "%-*s %5s", NAME_WIDTH, name, times);
		line(stream, plan, whole, i);
		fputc('\n', stream);
	}
}

int report_plan_text(FILE *stream, const struct report_plan *plan)
{
	double *whole = whole_cores(plan);

	if (!whole)
		return -ENOMEM;
	line_cluster(stream, plan->cluster, plan->slots);
	table_strategies(stream, plan);
	table_jobs(stream, plan);
	list_notes(stream, plan);
	list_lines(stream, plan, "Slurm", whole, line_slurm);
	list_lines(stream, plan, "Kubernetes", whole, line_kubernetes);
	free(whole);
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
