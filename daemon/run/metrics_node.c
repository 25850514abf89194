/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the node: what it has left. A figure that is not known is absent. */
#include "metrics_private.h"

#include <inttypes.h>
#include <math.h>

#include "assist.h"
#include "control.h"
#include "judge_ahead.h"
#include "sensor.h"

static void gauge(FILE *text, const char *name, const char *labels, double value)
{
	if (!isnan(value))
		fprintf(text, "%s%s %.9g\n", name, labels, value);
}

static void decisions(FILE *text, const struct control *control)
{
	metrics_head(text, "diesel_tuner_decisions_total", "counter",
		     "Decisions of the tuner that were carried out, by rule.");
	for (unsigned i = 0; control && i < CONTROL_N_RULES; i++)
		fprintf(text, "diesel_tuner_decisions_total{rule=\"%s\"} %" PRIu64 "\n",
			tuner_rule_name((enum tuner_rule)i),
			control_n_carried_out(control, (enum tuner_rule)i));
}

static void sensing(FILE *text, const struct sensor *sensor)
{
	struct sensor_status status = {0};

	if (sensor)
		sensor_status_get(sensor, &status);
	metrics_head(text, "diesel_sensor_active", "gauge", "1 while BPF programs measure where jobs wait.");
	fprintf(text, "diesel_sensor_active %d\n", status.active);
	metrics_head(text, "diesel_sensor_restarts_total", "counter",
		     "How often the process that measures died.");
	fprintf(text, "diesel_sensor_restarts_total %" PRIu32 "\n", status.n_restarts);
	metrics_head(text, "diesel_sensor_cpu_seconds_total", "counter",
		     "CPU time of the process that measures.");
	fprintf(text, "diesel_sensor_cpu_seconds_total %.9g\n", (double)status.cpu_ns / 1e9);
	metrics_head(text, "diesel_bpf_run_seconds_total", "counter",
		     "CPU time of the BPF programs; absent where the kernel does not count it.");
	if (status.bpf_run_ns)
		fprintf(text, "diesel_bpf_run_seconds_total{program=\"all\"} %.9g\n",
			(double)status.bpf_run_ns / 1e9);
	metrics_head(text, "diesel_events_lost_total", "counter",
		     "Records of the BPF programs that found no room.");
	fprintf(text, "diesel_events_lost_total{ring=\"sensing\",kind=\"any\"} %" PRIu64 "\n", status.n_lost);
}

static void assisting(FILE *text, const struct assist *assist)
{
	uint32_t n[ASSIST_N_STATES] = {0};
	const struct assist_job *job;
	uint64_t files, bytes;

	for (uint32_t i = 0; (job = assist_job_at(assist, i)); i++)
		n[job->state]++;
	metrics_head(text, "diesel_assist_jobs", "gauge",
		     "Jobs that know nothing of dieseld and could have files read ahead.");
	for (int state = 0; state < ASSIST_N_STATES; state++)
		fprintf(text, "diesel_assist_jobs{state=\"%s\"} %" PRIu32 "\n",
			assist_state_name((enum assist_state)state), n[state]);
	assist_totals(assist, &files, &bytes);
	metrics_number(text, "diesel_assist_files_total", "counter", "Files read ahead for such jobs.",
		       files);
	metrics_number(text, "diesel_assist_bytes_total", "counter", "Bytes of these files.", bytes);
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
	decisions(text, sources->control);
	sensing(text, sources->sensor);
	if (sources->assist)
		assisting(text, sources->assist);
}
