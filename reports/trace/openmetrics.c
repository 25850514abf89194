/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"

/*
 * Writes the metrics. Seconds of stall and of computing are the trainer's wall time, and sum to the time of
 * its steps. Preprocess excludes head of line, and computing excludes the wait for the GPU. Seconds of
 * workers are thread-seconds. Labels never contain a step, a process or a path.
 */
struct metrics {
	FILE *stream;
	const struct analysis *analysis;
	char job[64];
};

static bool is_script(const char *name, size_t length)
{
	return length > 3 && !memcmp(name + length - 3, ".py", 3);
}

/* Names the job by the first Python script of the command line, or else by its program, without folders. */
static void job_name(struct metrics *metrics)
{
	const char *at = metrics->analysis->job.command;

	snprintf(metrics->job, sizeof(metrics->job), "job");
	for (bool first = true; at && *at; first = false) {
		size_t n = strcspn(at, " ");
		const char *slash = memrchr(at, '/', n);
		const char *name = slash ? slash + 1 : at;
		size_t length = (size_t)(at + n - name);

		if (length && (first || is_script(name, length)))
			snprintf(metrics->job, sizeof(metrics->job), "%.*s", (int)length, name);
		if (is_script(name, length))
			return;
		at += n;
		at += strspn(at, " ");
	}
}

static void family(const struct metrics *metrics, const char *name, const char *type, const char *unit,
		   const char *help)
{
	fprintf(metrics->stream, "# TYPE %s %s\n", name, type);
	if (unit)
		fprintf(metrics->stream, "# UNIT %s %s\n", name, unit);
	fprintf(metrics->stream, "# HELP %s %s\n", name, help);
}

/* Writes a sample. label may be NULL; rank < 0: the sample belongs to no rank. */
static void sample(const struct metrics *metrics, const char *name, int rank, const char *label,
		   const char *value_of_label, double value)
{
	if (!isfinite(value))
		return;
	fprintf(metrics->stream, "%s{training_job=\"", name);
	escape_label(metrics->stream, metrics->job);
	fputc('"', metrics->stream);
	if (rank >= 0)
		fprintf(metrics->stream, ",rank=\"%d\"", rank);
	if (label)
		fprintf(metrics->stream, ",%s=\"%s\"", label, value_of_label);
	fprintf(metrics->stream, "} %.12g\n", value);
}

static double s(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

/* Counts the steps that took at most the given time, without excluded ones. */
static size_t count_steps(const struct analysis *analysis, double most_s, double *ret_sum_s)
{
	size_t n = 0;

	*ret_sum_s = 0;
	for (size_t k = 0; k < analysis->n_steps; k++) {
		double step_s = s(analysis->steps[k].end_ns - analysis->steps[k].begin_ns);

		if (analysis->steps[k].excluded || step_s > most_s)
			continue;
		*ret_sum_s += step_s;
		n++;
	}
	return n;
}

static void step_durations(const struct metrics *metrics)
{
	static const double bounds_s[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
					  0.5,   1,     2,     5,    10,   20,   50,  100};
	size_t n;
	double sum_s;
	char bound[24];

	family(metrics, "diesel_step_duration_seconds", "histogram", "seconds",
	       "Wall time of a training step. Steps that compile or follow a validation pass are left out.");
	for (size_t i = 0; i < sizeof(bounds_s) / sizeof(bounds_s[0]); i++) {
		snprintf(bound, sizeof(bound), "%g", bounds_s[i]);
		n = count_steps(metrics->analysis, bounds_s[i], &sum_s);
		sample(metrics, "diesel_step_duration_seconds_bucket", 0, "le", bound, (double)n);
	}
	n = count_steps(metrics->analysis, INFINITY, &sum_s);
	sample(metrics, "diesel_step_duration_seconds_bucket", 0, "le", "+Inf", (double)n);
	sample(metrics, "diesel_step_duration_seconds_count", 0, NULL, NULL, (double)n);
	sample(metrics, "diesel_step_duration_seconds_sum", 0, NULL, NULL, sum_s);
}

static void steps(const struct metrics *metrics)
{
	const struct analysis *analysis = metrics->analysis;

	if (!report_steps_known(analysis))
		return;
	family(metrics, "diesel_steps", "counter", NULL, "Training steps in the window.");
	sample(metrics, "diesel_steps_total", 0, NULL, NULL, (double)report_n_steps(analysis));
	/* In a sampled recording only the number of steps is known. */
	if (!analysis->sampled.is && analysis->n_steps)
		step_durations(metrics);
}

static void stall(const struct metrics *metrics, int rank, const uint64_t share_ns[SHARE_COUNT],
		  uint64_t head_of_line_ns)
{
	uint64_t prep_ns = share_ns[SHARE_PREP_STALL];

	if (head_of_line_ns > prep_ns)
		head_of_line_ns = prep_ns;
	sample(metrics, "diesel_stall_seconds_total", rank, "stall", "fetch", s(share_ns[SHARE_FETCH_STALL]));
	sample(metrics, "diesel_stall_seconds_total", rank, "stall", "preprocess",
	       s(prep_ns - head_of_line_ns));
	sample(metrics, "diesel_stall_seconds_total", rank, "stall", "head_of_line", s(head_of_line_ns));
	sample(metrics, "diesel_stall_seconds_total", rank, "stall", "checkpoint",
	       s(share_ns[SHARE_CHECKPOINT_STALL]));
	sample(metrics, "diesel_stall_seconds_total", rank, "stall", "cpu_queue",
	       s(share_ns[SHARE_CPU_STARVED]));
	if (analysis_share_known(metrics->analysis, SHARE_COMPILING))
		sample(metrics, "diesel_stall_seconds_total", rank, "stall", "compiling",
		       s(share_ns[SHARE_COMPILING]));
	sample(metrics, "diesel_stall_seconds_total", rank, "stall", "other", s(share_ns[SHARE_OTHER]));
}

static void stalls(const struct metrics *metrics)
{
	const struct analysis *analysis = metrics->analysis;
	uint64_t gpu_ns = analysis->parts.gpu_wait_known ? analysis->parts.gpu_wait_ns : 0;

	family(metrics, "diesel_stall_seconds", "counter", "seconds",
	       "Wall time in which the trainer did not compute, by kind of stall.");
	if (analysis->n_ranks) {
		for (size_t i = 0; i < analysis->n_ranks; i++)
			stall(metrics, (int)i, analysis->ranks[i].share_ns, 0);
	} else {
		stall(metrics, 0, analysis->share_ns, analysis->parts.head_of_line_ns);
		if (analysis->parts.gpu_wait_known)
			sample(metrics, "diesel_stall_seconds_total", 0, "stall", "gpu_wait", s(gpu_ns));
	}
	family(metrics, "diesel_compute_seconds", "counter", "seconds",
	       "Wall time in which the trainer computed. Together with diesel_stall_seconds, this is all "
	       "time of its steps.");
	if (analysis->n_ranks)
		for (size_t i = 0; i < analysis->n_ranks; i++)
			sample(metrics, "diesel_compute_seconds_total", (int)i, NULL, NULL,
			       s(analysis->ranks[i].share_ns[SHARE_DEVICE]));
	else
		sample(metrics, "diesel_compute_seconds_total", 0, NULL, NULL,
		       s(analysis->share_ns[SHARE_DEVICE] - gpu_ns));
	if (!analysis->gpu)
		return;
	family(
	    metrics, "diesel_gpu_starved_seconds", "counter", "seconds",
	    "Lower bound of the time in which the GPU had nothing queued while the trainer waited for data.");
	sample(metrics, "diesel_gpu_starved_seconds_total", 0, NULL, NULL, s(analysis->gpu->starved_ns));
}

static void validation(const struct metrics *metrics)
{
	const struct analysis_excluded *from = &metrics->analysis->validation;

	if (!from->known)
		return;
	family(metrics, "diesel_validation_seconds", "counter", "seconds",
	       "Wall time of the trainer in validation passes. The time is also counted as computing or "
	       "stalls.");
	sample(metrics, "diesel_validation_seconds_total", 0, NULL, NULL, s(from->ns));
}

static void workers(const struct metrics *metrics)
{
	const struct analysis_workers *from = &metrics->analysis->workers;

	if (!from->n)
		return;
	family(metrics, "diesel_worker_seconds", "counter", "seconds",
	       "Thread-seconds of the workers' main threads, by activity.");
	sample(metrics, "diesel_worker_seconds_total", -1, "state", "io", s(from->fetch_ns));
	sample(metrics, "diesel_worker_seconds_total", -1, "state", "cpu", s(from->cpu_ns));
	sample(metrics, "diesel_worker_seconds_total", -1, "state", "idle", s(from->idle_ns));
	sample(metrics, "diesel_worker_seconds_total", -1, "state", "runqueue", s(from->queue_ns));
	sample(metrics, "diesel_worker_seconds_total", -1, "state", "lock", s(from->blocked_ns));
}

static void reads(const struct metrics *metrics)
{
	const struct page_cache *cache = metrics->analysis->page_cache;
	uint64_t device, cached;

	if (!cache)
		return;
	device = cache->cold_bytes > cache->network_bytes ? cache->cold_bytes - cache->network_bytes : 0;
	cached = cache->used_bytes > cache->cold_bytes ? cache->used_bytes - cache->cold_bytes : 0;
	family(metrics, "diesel_read_bytes", "counter", "bytes", "Bytes that the job read, by source.");
	sample(metrics, "diesel_read_bytes_total", -1, "source", "page_cache", (double)cached);
	sample(metrics, "diesel_read_bytes_total", -1, "source", "device", (double)device);
	sample(metrics, "diesel_read_bytes_total", -1, "source", "network", (double)cache->network_bytes);
	family(metrics, "diesel_page_cache_pages", "counter", NULL,
	       "Pages that reads and page faults looked up in the page cache, by result.");
	sample(metrics, "diesel_page_cache_pages_total", -1, "result", "hit",
	       (double)(cache->accessed_pages > cache->missed_pages
			    ? cache->accessed_pages - cache->missed_pages
			    : 0));
	sample(metrics, "diesel_page_cache_pages_total", -1, "result", "miss", (double)cache->missed_pages);
	family(metrics, "diesel_major_faults", "counter", NULL, "Page faults that had to read from storage.");
	sample(metrics, "diesel_major_faults_total", -1, NULL, NULL, (double)cache->mapped.n_major_faults);
	family(metrics, "diesel_major_fault_seconds", "counter", "seconds",
	       "Thread-seconds spent in major page faults.");
	sample(metrics, "diesel_major_fault_seconds_total", -1, NULL, NULL, s(cache->mapped.fault_ns));
}

/* Writes all points of each axis; they are few. */
static void what_if(const struct metrics *metrics)
{
	static const char *const axes[WHAT_IF_AXES] = {"cache",  "workers",     "storage",
						       "device", "sample_size", "cores"};
	const struct predictions *from = metrics->analysis->predictions;
	char scenario[48];

	if (!from)
		return;
	family(metrics, "diesel_whatif_step_seconds", "gauge", "seconds",
	       "Predicted time of a step after the one change that the label names.");
	for (size_t i = 0; i < WHAT_IF_AXES; i++)
		for (size_t k = 0; k < from->curves[i].n_points; k++) {
			const struct what_if_point *point = &from->curves[i].points[k];

			if (!(point->speedup.value > 0))
				continue;
			snprintf(scenario, sizeof(scenario), "%s=%.4g", axes[i], point->x);
			sample(metrics, "diesel_whatif_step_seconds", -1, "scenario", scenario,
			       from->recorded_step_s / point->speedup.value);
		}
}

static void verdict(const struct metrics *metrics)
{
	family(metrics, "diesel_verdict", "stateset", NULL, "Verdict: the part that limits the job's speed.");
	for (enum analysis_verdict i = ANALYSIS_INSUFFICIENT; i <= ANALYSIS_UNCLEAR; i++)
		sample(metrics, "diesel_verdict", -1, "diesel_verdict", analysis_verdict_name(i),
		       metrics->analysis->verdict == i);
}

static void tool(const struct metrics *metrics, const struct report_source *source)
{
	const struct analysis *analysis = metrics->analysis;

	family(metrics, "diesel_events_lost", "counter", NULL,
	       "Recorded events that were lost because their buffer was full.");
	sample(metrics, "diesel_events_lost_total", -1, NULL, NULL, (double)analysis->recorded.n_lost);
	if (isfinite(analysis->recorded.self_cost_ratio))
		family(metrics, "diesel_self_cpu_seconds", "counter", "seconds",
		       "CPU time that the recorder used.");
	sample(metrics, "diesel_self_cpu_seconds_total", -1, NULL, NULL,
	       analysis->recorded.self_cost_ratio *
		   s(analysis->recorded.end_ns - analysis->recorded.begin_ns));
	family(metrics, "diesel_build", "info", NULL, "Version of the program that computed these figures.");
	fprintf(metrics->stream, "diesel_build_info{version=\"%s\",kernel=\"", DIESEL_VERSION);
	escape_label(metrics->stream, source && source->kernel ? source->kernel : "");
	fputs("\"} 1\n", metrics->stream);
}

int report_openmetrics(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	struct metrics metrics = {.stream = stream, .analysis = analysis};

	errno = 0;
	job_name(&metrics);
	verdict(&metrics);
	if (analysis->verdict != ANALYSIS_INSUFFICIENT) {
		steps(&metrics);
		stalls(&metrics);
		validation(&metrics);
		workers(&metrics);
		reads(&metrics);
		what_if(&metrics);
	}
	tool(&metrics, source);
	fputs("# EOF\n", stream);
	if (fflush(stream) || ferror(stream))
		return errno ? -errno : -EIO;
	return 0;
}
