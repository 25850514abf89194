/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "analyzer/recording.h"
#include "analyzer/source.h"
#include "bpf/collector.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "record_roots.h"

uint64_t record_steal_ns(void)
{
	struct proc_cpu_ticks ticks;

	if (proc_cpu_ticks_read("/proc", &ticks))
		return 0;
	return ticks.steal * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static int set_clocks(struct recording *recording, const char *key, const char *key_ns, struct error *err)
{
	struct clock_snapshot now = clock_snapshot_take();
	char text[96];
	int r;

	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, now.monotonic_ns,
		 now.boottime_ns, now.realtime_ns, now.uncertainty_ns);
	r = recording_set_text(recording, key, text, err);
	return r < 0 ? r : recording_set_u64(recording, key_ns, now.monotonic_ns, err);
}

static void join_words(char *const words[], char *text, size_t size)
{
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; words[i] && at < size; i++) {
		int n = snprintf(text + at, size - at, "%s%s", i ? " " : "", words[i]);

		at += n > 0 ? (size_t)n : 0;
	}
}

static int set_roots(struct recording *recording, const struct record_options *options,
		     const struct record_roots *roots, struct error *err)
{
	char text[RECORD_ROOTS_MAX * 12] = "";
	size_t at = 0;
	int r;

	for (size_t i = 0; i < roots->n && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", i ? "," : "",
				       (int)roots->tgids[i]);
	r = recording_set_text(recording, RECORDING_ROOTS, text, err);
	if (r == 0 && roots->n)
		r = recording_set_u64(recording, RECORDING_ROOT_TGID, (uint64_t)roots->tgids[0], err);
	if (r == 0 && roots->cgroup)
		r = recording_set_text(recording, RECORDING_CGROUP, roots->cgroup, err);
	if (r == 0 && options->trainer_tid)
		r = recording_set_u64(recording, RECORDING_TRAINER_TID, options->trainer_tid, err);
	return r;
}

static int set_command(struct recording *recording, const struct record_options *options,
		       const struct record_roots *roots, struct error *err)
{
	char text[4096];

	if (options->command)
		join_words(options->command, text, sizeof(text));
	else if (!roots->n || proc_cmdline_read("/proc", roots->tgids[0], text, sizeof(text)))
		text[0] = '\0';
	return recording_set_text(recording, RECORDING_COMMAND, text, err);
}

static int set_missing_hooks(struct recording *recording, const char *btf_path, struct source *source,
			     struct error *err)
{
	struct collector_hook hooks[COLLECTOR_HOOKS_MAX];
	struct collector_stats stats;
	char names[1024] = "";
	size_t n = 0, at = 0;

	if (collector_hooks(btf_path, hooks, &n, NULL))
		n = 0;
	for (size_t i = 0; i < n; i++) {
		if (hooks[i].present || at >= sizeof(names))
			continue;
		log_warning("this kernel has no tracepoint %s; lost without it: %s", hooks[i].name,
			    hooks[i].lost_without);
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? " " : "", hooks[i].name);
	}
	source_stats_get(source, &stats);
	for (size_t i = 0; i < stats.n_refusals && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? " " : "",
				       stats.refusals[i].program);
	return recording_set_text(recording, RECORDING_HOOKS_MISSING, names, err);
}

int record_info_begin(struct recording *recording, const struct record_options *options,
		      const struct record_roots *roots, struct source *source, struct error *err)
{
	struct utsname system;
	int r;

	uname(&system);
	r = set_command(recording, options, roots, err);
	if (r == 0)
		r = set_roots(recording, options, roots, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_ATTACHED, !options->command, err);
	if (r == 0)
		r = recording_set_text(recording, RECORDING_HOST, system.nodename, err);
	if (r == 0)
		r = recording_set_text(recording, RECORDING_KERNEL, system.release, err);
	if (r == 0)
		r = recording_set_text(recording, RECORDING_MACHINE, system.machine, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_CPUS, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN),
				      err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_PAGE_BYTES, (uint64_t)sysconf(_SC_PAGESIZE), err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_DETAIL_BYTES, options->detail_bytes_per_minute,
				      err);
	if (r == 0)
		r = recording_set_text(recording, RECORDING_DIESEL_VERSION, DIESEL_VERSION, err);
	if (r == 0)
		r = set_missing_hooks(recording, options->btf_path, source, err);
	return r < 0 ? r : set_clocks(recording, RECORDING_START_CLOCKS, RECORDING_START_NS, err);
}

static int set_losses(struct recording *recording, const struct collector_stats *stats, struct error *err)
{
	uint64_t sum = 0;
	char key[32];
	int r = 0;

	for (unsigned i = 0; i < COLLECTOR_EVENT_TYPES && r == 0; i++) {
		sum += stats->lost[i];
		snprintf(key, sizeof(key), RECORDING_LOST_TYPE, i);
		if (stats->lost[i])
			r = recording_set_u64(recording, key, stats->lost[i], err);
	}
	return r < 0 ? r : recording_set_u64(recording, RECORDING_LOST_EVENTS, sum, err);
}

int record_info_end(struct recording *recording, const struct collector_stats *stats, uint64_t steal_ns,
		    struct error *err)
{
	uint64_t sum = 0;
	int r = set_clocks(recording, RECORDING_STOP_CLOCKS, RECORDING_STOP_NS, err);

	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++)
		sum += stats->events[i];
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_EVENTS, sum, err);
	if (r == 0)
		r = set_losses(recording, stats, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_MISSED, stats->missed, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_STORAGE_FAILURES, stats->storage_failures, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_PROBES, stats->n_probes, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_PROFILE_HZ, stats->profile_hz, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_BPF_RUN_NS, stats->bpf_run_ns, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_BPF_SAMPLED_NS, stats->sampled_ns, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_RECORDER_CPU_NS, stats->own_cpu_ns, err);
	return r < 0 ? r : recording_set_u64(recording, RECORDING_STEAL_NS, steal_ns, err);
}
