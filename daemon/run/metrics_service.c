/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the process, its configuration and its history. */
#include "metrics_private.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "control.h"
#include "lib/clock.h"
#include "server.h"

static uint64_t open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!folder)
		return 0;
	for (struct dirent *entry; (entry = readdir(folder));)
		n += entry->d_name[0] != '.';
	closedir(folder);
	return n - 1; /* without the one for this folder */
}

/* Under the names that Prometheus' own client libraries use. */
static void process_figures(FILE *text, const struct server *s)
{
	uint64_t pages = 0;
	struct rusage usage;
	struct rlimit files;
	FILE *statm = fopen("/proc/self/statm", "re");

	if (statm) {
		if (fscanf(statm, "%*u %" SCNu64, &pages) != 1)
			pages = 0;
		fclose(statm);
	}
	getrusage(RUSAGE_SELF, &usage);
	metrics_head(text, "process_cpu_seconds_total", "counter", "CPU time of the daemon.");
	fprintf(text, "process_cpu_seconds_total %.6f\n",
		(double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
	metrics_number(text, "process_resident_memory_bytes", "gauge", "Memory in RAM.",
		       pages * (uint64_t)sysconf(_SC_PAGESIZE));
	metrics_number(text, "process_open_fds", "gauge", "Open files.", open_files());
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
		metrics_number(text, "process_max_fds", "gauge", "Files that may be open.", files.rlim_cur);
	metrics_head(text, "process_start_time_seconds", "gauge", "When the daemon started, Unix time.");
	fprintf(text, "process_start_time_seconds %.3f\n", (double)s->start_unix_ns / (double)NS_PER_S);
}

static void reload_figures(FILE *text, const struct metrics_reloads *reloads)
{
	metrics_head(text, "diesel_config_last_reload_successful", "gauge",
		     "0: the file has a mistake, and the configuration before it is in force.");
	fprintf(text, "diesel_config_last_reload_successful %d\n", !reloads->refused);
	metrics_head(text, "diesel_config_last_reload_success_timestamp_seconds", "gauge",
		     "When the configuration in force was read, Unix time.");
	fprintf(text, "diesel_config_last_reload_success_timestamp_seconds %.3f\n",
		(double)reloads->taken_unix_ns / (double)NS_PER_S);
	metrics_head(text, "diesel_config_reloads_total", "counter",
		     "How often the configuration was read, the start included.");
	fprintf(text,
		"diesel_config_reloads_total{outcome=\"taken\"} %" PRIu64
		"\ndiesel_config_reloads_total{outcome=\"refused\"} %" PRIu64 "\n",
		reloads->n_taken, reloads->n_refused);
}

static void setting_figures(FILE *text, const struct control *control)
{
	metrics_head(text, "diesel_setting_overridden", "gauge",
		     "1: dieselctl set decides this setting in place of the configuration.");
	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++)
		if (!settings_is_of_job(key))
			fprintf(text, "diesel_setting_overridden{setting=\"%s\"} %d\n", settings_name(key),
				control_is_overridden(control, key));
}

static void history_figures(FILE *text, const struct control *control)
{
	struct history_status status;

	metrics_head(text, "diesel_history_writable", "gauge",
		     "1 while decisions are written to the history's file; absent: it is off.");
	if (!control_history_status(control, &status) && !status.error[0])
		return; /* off */
	fprintf(text, "diesel_history_writable %d\n", !status.error[0]);
	metrics_number(text, "diesel_history_bytes", "gauge", "Size of the history's file.", status.bytes);
	metrics_number(text, "diesel_history_records_total", "counter", "Records written to the history.",
		       status.n_written);
	metrics_number(text, "diesel_history_dropped_total", "counter",
		       "Records that could not be written to the history.", status.n_dropped);
}

void metrics_service_text(FILE *text, const struct metrics_sources *sources)
{
	struct error err = ERROR_INIT;

	process_figures(text, sources->server);
	metrics_number(text, "diesel_ready", "gauge", "1 while clients can connect; /readyz says why not.",
		       server_check_ready(sources->server, &err) == 0);
	metrics_number(text, "diesel_observes", "gauge", "1: it serves nobody (observe).",
		       sources->server->serving.options.observe);
	reload_figures(text, sources->reloads);
	if (!sources->control)
		return;
	setting_figures(text, sources->control);
	history_figures(text, sources->control);
}
