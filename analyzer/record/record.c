/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analyzer/nvml.h"
#include "analyzer/recording.h"
#include "analyzer/source.h"
#include "bpf/collector.h"
#include "bpf/gpu.h"
#include "lib/cgroup.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/commands.h"
#include "lib/error.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "lib/sorted.h"
#include "analyzer/trace/recording_metadata.h"
#include "analyzer/trace/slices.h"

/*
 * The processes that are recorded: those that the user named, or all that are in a control group or join it
 * during the recording. Detects when all named processes have ended.
 */

#define RECORD_ROOTS_MAX 64

struct record_roots {
	pid_t *tgids;
	int *fds; /* pidfds; -1: the process ended */
	size_t n, n_gone;
	char *cgroup; /* folder of the group; NULL: named processes */
	pid_t *members;
	size_t n_members;
	bool any; /* the group has had a process at some time */
};

/* Adds a process that is already part of the job. Call it once for each process. -errno. */
static int record_roots_add(struct record_roots *roots, pid_t tgid, struct error *err)
{
	pid_t *tgids = reallocarray(roots->tgids, roots->n + 1, sizeof(*tgids));
	int *fds = reallocarray(roots->fds, roots->n + 1, sizeof(*fds));
	int fd;

	roots->tgids = tgids ? tgids : roots->tgids;
	roots->fds = fds ? fds : roots->fds;
	if (!tgids || !fds)
		return error_set(err, -ENOMEM, "not enough memory to list the job's processes");
	fd = kernel_pidfd_open(tgid);
	if (fd < 0 && errno != ESRCH)
		return error_errno(err, -errno, "cannot watch process %d", (int)tgid);
	roots->tgids[roots->n] = tgid;
	roots->fds[roots->n++] = fd;
	return 0;
}

/* Finds the control group's folder. path: as the user gave it. */
static int record_roots_set_cgroup(struct record_roots *roots, const char *path, struct error *err)
{
	char folder[PATH_MAX];
	int r = cgroup_find("/proc", path, folder, sizeof(folder));

	if (r == -ENOENT)
		return error_set(err, r,
				 "%s: no such control group: give its folder below /sys/fs/cgroup, or its "
				 "path in /proc/PID/cgroup",
				 path);
	if (r < 0)
		return error_errno(err, r, "%s: cannot find the control group", path);
	roots->cgroup = strdup(folder);
	return roots->cgroup ? 0 : error_set(err, -ENOMEM, "not enough memory to list the job's processes");
}

static void record_roots_free(struct record_roots *roots)
{
	for (size_t i = 0; i < roots->n; i++)
		closep(&roots->fds[i]);
	free(roots->tgids);
	free(roots->fds);
	free(roots->cgroup);
	free(roots->members);
	*roots = (struct record_roots){0};
}

/* Records that a process has ended (EVENT_EXIT of its main thread). */
static void record_roots_exit(struct record_roots *roots, pid_t tgid)
{
	for (size_t i = 0; i < roots->n; i++)
		roots->n_gone += roots->tgids[i] == tgid;
}

static bool record_roots_all_gone(const struct record_roots *roots)
{
	return roots->n_gone >= roots->n;
}

/* Makes processes that joined the group since the last call part of the job. Nothing to do without a
 * group. *ret_ended: the group had processes, and none is left. -ENOMEM, or the source's failure. */
static int record_roots_join(struct record_roots *roots, struct source *source, bool *ret_ended,
			     struct error *err)
{
	_cleanup_(freep) pid_t *pids = NULL;
	size_t n = 0;
	bool ended;
	int r;

	if (!roots->cgroup) {
		*ret_ended = false;
		return 0;
	}
	r = cgroup_processes(roots->cgroup, &pids, &n);
	if (r == -ENOMEM)
		return error_set(err, r, "not enough memory to list the processes of %s", roots->cgroup);
	/* A group that was removed counts as empty. */
	ended = roots->any && !n && !source_alive(source);
	for (size_t i = 0; i < n; i++) {
		bool known = roots->n_members &&
			     bsearch(&pids[i], roots->members, roots->n_members, sizeof(*pids), compare_int);

		roots->any = true;
		/* Most new processes are children of the job's processes, so they are in the job already. */
		if (known || source_has(source, pids[i]))
			continue;
		r = source_attach(source, pids[i], err);
		if (r < 0 && r != -ESRCH) /* the process may have ended already */
			return r;
	}
	free(roots->members);
	roots->members = steal_pointer(pids);
	roots->n_members = n;
	*ret_ended = ended;
	return 0;
}

static uint64_t record_steal_ns(void)
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
		log_warning("this kernel has no tracepoint %s. Lost without it: %s", hooks[i].name,
			    hooks[i].lost_without);
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? " " : "", hooks[i].name);
	}
	source_stats_get(source, &stats);
	for (size_t i = 0; i < stats.n_refusals && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? " " : "",
				       stats.refusals[i].program);
	return recording_set_text(recording, RECORDING_HOOKS_MISSING, names, err);
}

/* Writes facts about the job and the machine to the recording's info. */
static int record_info_begin(struct recording *recording, const struct record_options *options,
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

static int record_info_end(struct recording *recording, const struct collector_stats *stats,
			   uint64_t steal_ns, struct error *err)
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
		r = recording_set_u64(recording, RECORDING_PROFILE_HZ, stats->profile_hz, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_BPF_RUN_NS, stats->bpf_run_ns, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_BPF_SAMPLED_NS, stats->sampled_ns, err);
	if (r == 0)
		r = recording_set_u64(recording, RECORDING_RECORDER_CPU_NS, stats->own_cpu_ns, err);
	return r < 0 ? r : recording_set_u64(recording, RECORDING_STEAL_NS, steal_ns, err);
}

#define POLL_MS        50             /* records accumulate in the kernel between polls */
#define FLUSH_EVERY_NS (1 * NS_PER_S) /* most that a killed recorder loses */
#define LAST_EXIT_MS   200            /* waitpid() can return a little before a process's last switch */

/* Detail beyond this would not fit a report's memory: 4 million events. */
#define DETAIL_TOTAL_BYTES (UINT64_C(32) << 20)
/* In minutes' worth of the budget. The first minute of steps has twice what 64 threads write, which is the
 * busiest kind of job that is common. Imports, the start of workers and compiling precede the first step. The
 * burst is the most that can be saved up later. */
#define DETAIL_FIRST_MINUTES   16
#define DETAIL_STARTUP_MINUTES 8
#define DETAIL_BURST_MINUTES   0.4

struct recorder {
	const struct record_options *options;
	struct source *source;
	struct collector_sink sink;
	struct recording *recording;
	struct error write_error; /* first write error; nothing is written after it */
	int signal_fd;
	struct record_roots roots; /* the command, if there is one, is the only root */
	bool child_reaped;         /* status is valid */
	bool stop_requested;       /* a signal requested the stop */
	int status;
	uint64_t start_ns, flushed_ns, start_steal_ns, unrecorded_ns;
	struct slices slices;
	bool has_steps; /* a step has been seen */
	bool uses_gpu;  /* a process of the job has opened libcuda */
	bool nvml_tried;
	struct nvml *nvml; /* NULL: not needed, or not available */
};

/* Takes over the priority of a process that the kernel would prefer to the recorder: on a busy machine it
 * could end before its steps can be seen. */
static void priority_follow(pid_t pid)
{
	int theirs;

	errno = 0;
	theirs = getpriority(PRIO_PROCESS, (id_t)pid);
	if (errno || theirs >= getpriority(PRIO_PROCESS, 0))
		return;
	if (setpriority(PRIO_PROCESS, 0, theirs))
		log_debug("cannot take over the priority %d of process %d: %s", theirs, (int)pid,
			  strerror(errno));
}

static void on_event(void *user, const struct event *event)
{
	struct recorder *recorder = user;

	if (event->type == EVENT_EXEC)
		priority_follow((pid_t)event->tid);
	if (event->type == EVENT_EXIT)
		record_roots_exit(&recorder->roots, (pid_t)event->tid);
	if (!recorder->has_steps && (event->type == EVENT_STEP || event->type == EVENT_MARK)) {
		recorder->has_steps = true;
		slices_steps_begin(&recorder->slices, clock_monotonic_ns());
	}
	if (!recorder->write_error.code)
		recording_append(recorder->recording, event, &recorder->write_error);
}

static void on_metadata(void *user, const char *kind, uint64_t key, const void *data, size_t size)
{
	struct recorder *recorder = user;

	recorder->uses_gpu |= !strcmp(kind, GPU_METADATA_LIBRARY);
	if (!recorder->write_error.code)
		recording_put(recorder->recording, kind, key, data, size, &recorder->write_error);
}

/* A signal from the terminal also reaches the command, which is in the same process group. */
static void take_signal(struct recorder *recorder)
{
	struct signalfd_siginfo info;

	if (read(recorder->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (!recorder->options->command)
		recorder->stop_requested = true;
	else if (info.ssi_code != SI_KERNEL && !recorder->child_reaped)
		kill(recorder->roots.tgids[0], (int)info.ssi_signo);
}

static void reap(struct recorder *recorder)
{
	if (recorder->options->command && !recorder->child_reaped &&
	    waitpid(recorder->roots.tgids[0], &recorder->status, WNOHANG) == recorder->roots.tgids[0])
		recorder->child_reaped = true;
}

/* Waits for something to do. Returns true if all processes that are recorded have ended. */
static bool wait_step(struct recorder *recorder, int timeout_ms)
{
	struct record_roots *roots = &recorder->roots;
	struct pollfd fds[2 + RECORD_ROOTS_MAX] = {
	    {.fd = recorder->signal_fd, .events = POLLIN},
	    {.fd = recorder->source ? source_fd(recorder->source) : -1, .events = POLLIN},
	};
	size_t n_ended = 0;

	for (size_t i = 0; i < roots->n; i++)
		fds[2 + i] = (struct pollfd){.fd = roots->fds[i], .events = POLLIN};
	if (poll(fds, 2 + roots->n, timeout_ms) < 0)
		return false;
	if (fds[0].revents)
		take_signal(recorder);
	for (size_t i = 0; i < roots->n; i++) {
		if (fds[2 + i].revents & POLLIN) {
			close(roots->fds[i]);
			roots->fds[i] = -1;
		}
		n_ended += roots->fds[i] < 0;
	}
	if (!roots->n || n_ended < roots->n)
		return false;
	reap(recorder);
	return true;
}

static int append_gap(struct recorder *recorder, uint64_t begin_ns, uint64_t end_ns, struct error *err)
{
	struct event gap = {.type = EVENT_GAP,
			    .start_ns = begin_ns,
			    .end_ns = end_ns,
			    .tid = 1, /* nobody's */
			    .tgid = 1};

	if (begin_ns >= end_ns)
		return 0;
	recorder->unrecorded_ns += end_ns - begin_ns;
	return recording_append(recorder->recording, &gap, err);
}

/* Turns detail on and off according to the budget, and drops slices beyond the limit. */
static int step_slices(struct recorder *recorder, struct error *err)
{
	struct slices *slices = &recorder->slices;
	uint64_t detail_bytes, written_bytes = recording_written_bytes(recorder->recording, &detail_bytes);
	int r = slices_step(slices, clock_monotonic_ns(), written_bytes, detail_bytes);
	struct slice dropped;

	if (r < 0)
		return error_errno(err, r, "cannot keep track of the recording's slices");
	if (r == SLICES_OFF) {
		slices->items[slices->n - 1].end_ns = source_detail(recorder->source, false);
		r = 0;
	} else if (r == SLICES_ON) {
		struct slice *slice = &slices->items[slices->n - 1];

		slice->begin_ns = source_detail(recorder->source, true);
		r = append_gap(recorder, slice[-1].end_ns, slice->begin_ns, err);
		if (r == 0)
			r = recording_slice_begin(recorder->recording, slice->id, err);
	}
	while (r == 0 && slices_drop(slices, &dropped)) {
		r = append_gap(recorder, dropped.begin_ns, dropped.end_ns, err);
		if (r == 0)
			r = recording_slice_drop(recorder->recording, dropped.id, err);
	}
	return r;
}

/* Records the gap, if the recording ends in one. */
static int end_slices(struct recorder *recorder, struct error *err)
{
	const struct slices *slices = &recorder->slices;

	if (slices_on(slices))
		return 0;
	return append_gap(recorder, slices->items[slices->n - 1].end_ns, clock_monotonic_ns(), err);
}

/* Takes a sample once per second if the job uses a GPU. */
static void sample_gpu(struct recorder *recorder, uint64_t now_ns)
{
	struct error why = ERROR_INIT;
	double utilization;

	if (recorder->uses_gpu && !recorder->nvml_tried) {
		recorder->nvml_tried = true;
		if (nvml_open(&recorder->nvml, &why))
			log_debug("no GPU utilization: %s", why.text);
	}
	if (!recorder->nvml)
		return;
	utilization = nvml_utilization(recorder->nvml, recorder->roots.tgids, recorder->roots.n);
	if (isfinite(utilization))
		recording_put(recorder->recording, RECORDING_METADATA_GPU_SAMPLE, now_ns, &utilization,
			      sizeof(utilization), &recorder->write_error);
}

static int poll_collector(struct recorder *recorder, struct error *err)
{
	uint64_t now_ns = clock_monotonic_ns();
	int r = source_poll(recorder->source, 0, &recorder->sink);

	if (r < 0 && r != -EINTR)
		return error_errno(err, r, "cannot read events");
	if (now_ns - recorder->flushed_ns >= FLUSH_EVERY_NS && !recorder->write_error.code) {
		recorder->flushed_ns = now_ns;
		sample_gpu(recorder, now_ns);
		recording_flush(recorder->recording, &recorder->write_error);
	}
	/* Do this at each poll, because a job of many threads can write a megabyte per second. */
	if (!recorder->write_error.code)
		step_slices(recorder, &recorder->write_error);
	if (recorder->write_error.code) {
		*err = recorder->write_error;
		return err->code;
	}
	return 0;
}

/* Records until the job ends, a signal arrives, the time of -d is over, or an error occurs. */
static int record_loop(struct recorder *recorder, struct error *err)
{
	uint64_t duration_ns = recorder->options->duration_ns;

	for (;;) {
		bool ended = wait_step(recorder, POLL_MS);
		bool emptied;
		int r = poll_collector(recorder, err);

		if (r == 0)
			r = record_roots_join(&recorder->roots, recorder->source, &emptied, err);
		if (r < 0)
			return r;
		if (ended || emptied || recorder->stop_requested)
			break;
		if (duration_ns && clock_monotonic_ns() - recorder->start_ns >= duration_ns)
			return 0;
	}
	for (int ms = 0;
	     ms < LAST_EXIT_MS && !record_roots_all_gone(&recorder->roots) && !recorder->stop_requested;
	     ms += 5) {
		int r = poll_collector(recorder, err);

		if (r < 0)
			return r;
		usleep(5000);
	}
	return 0;
}

/* Warns if the process may be a worker, which has no steps: it was forked, or spawned by Python's
 * multiprocessing. */
static void say_worker(pid_t tgid)
{
	char command[512] = "";
	struct proc_stat stat;
	struct error text = ERROR_INIT;

	if (proc_stat_read("/proc", tgid, &stat) < 0 || stat.parent <= 1)
		return;
	(void)proc_cmdline_read("/proc", tgid, command, sizeof(command));
	if (!stat.forked_only && !strstr(command, "--multiprocessing-fork") &&
	    !strstr(command, "multiprocessing.spawn") && !strstr(command, "multiprocessing.forkserver"))
		return;
	error_set(&text, 0,
		  "process %d is a child of process %d, and looks like a DataLoader worker. If it is, "
		  "`diesel-analyze -p %d` records the trainer with its workers",
		  (int)tgid, (int)stat.parent, (int)stat.parent);
	_cleanup_(freep) char *runnable = commands_runnable_new(text.text, NULL);

	log_warning("%s", runnable ? runnable : text.text);
}

/* Starts the command, or finds the processes that run already. */
static int job_begin(struct recorder *recorder, struct record_result *result, struct error *err)
{
	const struct record_options *options = recorder->options;
	struct source *source = recorder->source;
	bool emptied;
	pid_t tgid;
	int r;

	if (options->command) {
		result->launch_error = r =
		    source_launch(source, options->command, options->command_signals, &tgid, err);
		return r < 0 ? r : record_roots_add(&recorder->roots, tgid, err);
	}
	for (size_t i = 0; i < options->n_tgids; i++) {
		r = source_attach(source, options->tgids[i], err);
		if (r == 0)
			r = record_roots_add(&recorder->roots, options->tgids[i], err);
		if (r < 0)
			return r;
		priority_follow(options->tgids[i]);
		if (options->n_tgids == 1)
			say_worker(options->tgids[i]);
	}
	if (!options->cgroup)
		return 0;
	r = record_roots_set_cgroup(&recorder->roots, options->cgroup, err);
	return r < 0 ? r : record_roots_join(&recorder->roots, source, &emptied, err);
}

/* Warns of data that is not measured. */
static void say_limits(struct source *source)
{
	struct collector_stats stats;

	source_stats_get(source, &stats);
	for (size_t i = 0; i < stats.n_refusals; i++)
		log_warning("this kernel refused the BPF program %s (%s). Lost without it: %s",
			    stats.refusals[i].program, stats.refusals[i].reason,
			    stats.refusals[i].lost_without);
	if (stats.no_probes)
		log_warning("steps and batches cannot be recorded, because before Linux 6.6 their probes "
			    "need CAP_SYS_ADMIN: run as root (sudo), or sample with --unprivileged");
	if (stats.profile_error)
		log_warning("no stack samples (%s): the report cannot show which functions prepare the data",
			    strerror(-stats.profile_error));
}

/* Opens the collector, or the sampler if the collector is refused; but not if an explicit BTF path shows that
 * the user wants the collector. */
static int open_source(const struct record_options *options, struct source **ret_source, struct error *err)
{
	const struct collector_options collector_options = {.ring_bytes = options->ring_bytes,
							    .btf_path = options->btf_path,
							    .no_children = options->no_children,
							    .profile_hz = (uint32_t)options->profile_hz};
	int r;

	if (!options->unprivileged) {
		struct error refusal = ERROR_INIT;

		r = source_open(SOURCE_COLLECTOR, &collector_options, ret_source, &refusal);
		if (r == 0) {
			say_limits(*ret_source);
			return 0;
		}
		if (options->btf_path || r == -ENOMEM || r == -EINTR) {
			if (err)
				*err = refusal;
			return r;
		}
		log_warning("%s. Sampling /proc instead, without privilege: the report will be approximate",
			    refusal.text);
	}
	return source_open(SOURCE_SAMPLER, &collector_options, ret_source, err);
}

static int begin(struct recorder *recorder, struct record_result *result, struct error *err)
{
	const struct record_options *options = recorder->options;
	uint64_t per_minute = options->detail_bytes_per_minute;
	sigset_t signals;
	int r = open_source(options, &recorder->source, err);

	if (r < 0)
		return r;
	r = recording_create(options->output, &recorder->recording, err);
	if (r < 0)
		return r;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGQUIT);
	recorder->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (recorder->signal_fd < 0)
		return error_errno(err, -errno, "cannot take signals");
	recorder->start_steal_ns = record_steal_ns();
	r = job_begin(recorder, result, err);
	if (r < 0)
		return r;
	recorder->start_ns = recorder->flushed_ns = clock_monotonic_ns();
	r = slices_init(
	    &recorder->slices,
	    (struct slices_config){.bytes_per_minute = per_minute,
				   .startup_bytes = DETAIL_STARTUP_MINUTES * per_minute,
				   .first_bytes = DETAIL_FIRST_MINUTES * per_minute,
				   .burst_bytes = (uint64_t)(DETAIL_BURST_MINUTES * (double)per_minute),
				   .total_bytes = per_minute ? DETAIL_TOTAL_BYTES : 0},
	    recorder->start_ns);
	if (r < 0)
		return error_errno(err, r, "cannot keep track of the recording's slices");
	if (source_is_sampled(recorder->source))
		r = recording_set_u64(recorder->recording, RECORDING_SAMPLED, 1, err);
	return r < 0
		   ? r
		   : record_info_begin(recorder->recording, options, &recorder->roots, recorder->source, err);
}

/* Ends the collector and the recording as far as possible, even after a failure. */
static int end(struct recorder *recorder, struct record_result *result, struct error *err)
{
	struct collector_stats stats;
	int r = source_stop(recorder->source, &recorder->sink, err);

	source_stats_get(recorder->source, &stats);
	result->duration_ns = clock_monotonic_ns() - recorder->start_ns;
	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++) {
		result->n_events += stats.events[i];
		result->n_lost += stats.lost[i];
	}
	if (r == 0 && recorder->write_error.code) {
		*err = recorder->write_error;
		r = err->code;
	}
	if (r == 0)
		r = end_slices(recorder, err);
	result->unrecorded_ns = recorder->unrecorded_ns;
	if (r == 0)
		r = record_info_end(recorder->recording, &stats, record_steal_ns() - recorder->start_steal_ns,
				    err);
	if (r == 0 && recorder->child_reaped)
		r = recording_set_u64(recorder->recording, RECORDING_EXIT_STATUS, (uint64_t)recorder->status,
				      err);
	return r < 0 ? r : recording_finish(recorder->recording, err);
}

/* Waits for a command that outlives its recording, because of -d or a failure. */
static void await_command(struct recorder *recorder)
{
	while (recorder->options->command && !recorder->child_reaped) {
		if (wait_step(recorder, -1))
			reap(recorder);
	}
}

int record_run(const struct record_options *options, struct record_result *ret_result, struct error *err)
{
	struct recorder recorder = {.options = options, .signal_fd = -1};
	struct record_result result = {.status = options->command ? -1 : 0};
	bool begun;
	int r;

	recorder.sink = (struct collector_sink){on_event, on_metadata, &recorder};
	r = begin(&recorder, &result, err);

	begun = r == 0 || (options->command && recorder.roots.n);
	if (r == 0)
		r = record_loop(&recorder, err);
	if (r == 0)
		r = end(&recorder, &result, err);
	if (begun)
		recording_close(recorder.recording);
	else
		recording_discard(recorder.recording);
	source_close(recorder.source);
	recorder.source = NULL;
	slices_free(&recorder.slices);
	nvml_close(recorder.nvml);
	if (options->command && recorder.roots.n) {
		if (r < 0 && !recorder.child_reaped)
			log_error("%s; the command continues without being recorded", err->text);
		await_command(&recorder);
		result.status = recorder.status;
	}
	closep(&recorder.signal_fd);
	record_roots_free(&recorder.roots);
	*ret_result = result;
	return r;
}
