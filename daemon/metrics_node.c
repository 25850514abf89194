/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the node: what it has left. What is not known is absent. */
#include "metrics_private.h"

#include <inttypes.h>
#include <math.h>

#include "tuner/tuner.h"

static void gauge(FILE *text, const char *name, const char *labels, double value)
{
	if (!isnan(value))
		fprintf(text, "%s%s %.9g\n", name, labels, value);
}

static void decisions(FILE *text, const struct metrics_totals *t)
{
	metrics_head(text, "diesel_tuner_decisions_total", "counter", "Knobs changed by the tuner, by rule.");
	for (unsigned i = 0; t && i < METRICS_N_RULES; i++)
		if (t->n_decisions[i])
			fprintf(text, "diesel_tuner_decisions_total{rule=\"%s\"} %" PRIu64 "\n",
				tuner_rule_name((enum tuner_rule)i), t->n_decisions[i]);
}

static void sensing(FILE *text)
{
	metrics_head(text, "diesel_sensor_cpu_seconds_total", "counter",
		     "CPU time of the process that measures.");
	metrics_head(text, "diesel_bpf_run_seconds_total", "counter", "CPU time of the BPF programs.");
	metrics_head(text, "diesel_events_lost_total", "counter",
		     "Records of the BPF programs that found no room.");
}

void metrics_node_text(FILE *text, const struct metrics_sources *sources)
{
	const struct metrics_totals *t = sources->totals;
	const struct stall_node *n = t && t->has_node ? &t->node : NULL;

	metrics_head(text, "diesel_memory_headroom_bytes", "gauge",
		     "Memory that may still be used: of the node or of the daemon's cgroup, the smaller.");
	if (n)
		gauge(text, "diesel_memory_headroom_bytes", "", n->memory_headroom_bytes);
	metrics_head(text, "diesel_idle_cores", "gauge", "Cores that nobody used in the last second.");
	if (n)
		gauge(text, "diesel_idle_cores", "", n->cores_idle);
	metrics_head(text, "diesel_pressure_ratio", "gauge",
		     "Share of the last ten seconds in which some task waited for it (PSI).");
	if (n) {
		gauge(text, "diesel_pressure_ratio", "{resource=\"memory\"}", n->memory_some_avg10 / 100);
		gauge(text, "diesel_pressure_ratio", "{resource=\"cpu\"}", n->cpu_some_avg10 / 100);
		gauge(text, "diesel_pressure_ratio", "{resource=\"io\"}", n->io_some_avg10 / 100);
	}
	decisions(text, t);
	sensing(text);
}
