/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "analyzer/source.h"
#include "lib/clock.h"
#include "lib/proc.h"
#include "sample.h"

static uint64_t process_cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static double rate(uint64_t now, uint64_t before, double s)
{
	return now >= before ? (double)(now - before) / 1e9 / s : 0;
}

void node_self_sample(struct node *node, uint64_t now_ns, struct sample *sample)
{
	struct self_sample *to = &sample->self;
	struct collector_stats stats;
	struct proc_stat own;
	uint64_t n_events = 0, n_lost = 0, cpu_ns = process_cpu_ns(), longest_ns = 0;
	double s = (double)(now_ns - node->sampled_ns) / 1e9;

	source_stats_get(node->source, &stats);
	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++) {
		n_events += stats.events[i];
		n_lost += stats.lost[i];
	}
	for (size_t i = 0; i < node->n_jobs; i++)
		if (node->jobs[i].analysed_ns && now_ns - node->jobs[i].analysed_ns > longest_ns)
			longest_ns = now_ns - node->jobs[i].analysed_ns;
	snprintf(to->source, sizeof(to->source), "%s", node->how);
	to->n_lost = n_lost;
	to->n_tasks = source_alive(node->source);
	to->oldest_s = (double)longest_ns / 1e9;
	if (!proc_stat_read("/proc", getpid(), &own))
		to->memory_bytes = (double)own.resident_pages * (double)sysconf(_SC_PAGESIZE);
	if (node->sampled_ns && s > 0) {
		to->cpu_ratio = rate(cpu_ns, node->before.cpu_ns, s);
		to->poll_ratio = rate(node->poll_budget.spent_ns, node->before.poll_ns, s);
		to->scan_ratio = rate(node->scan_budget.spent_ns, node->before.scan_ns, s);
		to->analysis_ratio = rate(node->analysis_ns, node->before.analysis_ns, s);
		to->events_per_s = rate(n_events, node->before.events, s) * 1e9;
		if (stats.sampled_ns)
			to->bpf_ratio = rate(stats.bpf_run_ns, node->before.bpf_ns, s);
	}
	node->before.cpu_ns = cpu_ns;
	node->before.poll_ns = node->poll_budget.spent_ns;
	node->before.scan_ns = node->scan_budget.spent_ns;
	node->before.analysis_ns = node->analysis_ns;
	node->before.events = n_events;
	node->before.bpf_ns = stats.bpf_run_ns;
}
