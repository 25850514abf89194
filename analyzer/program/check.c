/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "analyzer/nvml.h"
#include "bpf/collector.h"
#include "bpf/gpu.h"
#include "lib/cleanup.h"
#include "lib/commands.h"
#include "lib/error.h"
#include "lib/proc.h"
#include "lib/psi.h"
#include "analyzer/collect/sampler_sources.h"

#define CAPABILITY_SYS_PTRACE 19
#define CAPABILITY_SYS_ADMIN  21
#define CAPABILITY_PERFMON    38
#define CAPABILITY_BPF        39

enum finding_state {
	FINDING_OK,
	FINDING_LIMITED, /* part of the data is lost, the rest works */
	FINDING_FAILED,  /* nothing can be recorded exactly */
};

#define KNOWN_GOOD                                                                                           \
	"known good: Linux 5.15 to 7.3 on x86-64; please report this, with the kernel's log, which "         \
	"diesel-analyze record -v prints"

struct finding {
	enum finding_state state;
	char name[64];
	char detail[512]; /* the finding, or the loss */
	char advice[400]; /* "": nothing to do */
};

struct report {
	struct finding findings[24 + COLLECTOR_REFUSALS_MAX];
	size_t n;
	bool exact;   /* BPF works */
	bool sampled; /* /proc can be sampled, at least */
	bool perfmon; /* CAP_PERFMON, or CAP_SYS_ADMIN, which includes it */
	struct collector_hook hooks[COLLECTOR_HOOKS_MAX];
	size_t n_hooks;
	struct collector_refusal refusals[COLLECTOR_REFUSALS_MAX];
	size_t n_refusals;
};

__attribute__((format(printf, 5, 6))) static void add(struct report *report, enum finding_state state,
						      const char *name, const char *advice,
						      const char *format, ...)
{
	struct finding *finding = &report->findings[report->n++];
	va_list args;

	finding->state = state;
	snprintf(finding->name, sizeof(finding->name), "%s", name);
	_cleanup_(freep) char *runnable = commands_runnable_new(advice, NULL);

	snprintf(finding->advice, sizeof(finding->advice), "%s", runnable ? runnable : advice);
	va_start(args, format);
	vsnprintf(finding->detail, sizeof(finding->detail), format, args);
	va_end(args);
}

/* Opens the CPU clock as the recorder does for stack samples, on one CPU. Returns 0 or -errno. */
static int open_clock(void)
{
	struct perf_event_attr attributes = {
	    .size = sizeof(attributes),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_CPU_CLOCK,
	    .sample_freq = 1,
	    .freq = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	int r = fd < 0 ? -errno : 0;

	if (r == 0)
		close((int)fd);
	return r;
}

static void check_btf(struct report *report, const char *btf_path)
{
	struct error err = ERROR_INIT;

	if (collector_hooks(btf_path, report->hooks, &report->n_hooks, &err))
		add(report, FINDING_FAILED, "btf", "use a kernel built with CONFIG_DEBUG_INFO_BTF=y", "%s",
		    err.text);
	else
		add(report, FINDING_OK, "btf", "", "the kernel has type information (BTF)");
}

static void check_privilege(struct report *report)
{
	struct proc_status status;
	uint64_t has;
	bool admin;

	if (proc_status_read("/proc", getpid(), &status)) {
		add(report, FINDING_LIMITED, "privilege", "mount /proc", "cannot read /proc/self/status");
		return;
	}
	has = status.effective_capabilities;
	admin = has & 1ULL << CAPABILITY_SYS_ADMIN;
	report->perfmon = admin || (has & 1ULL << CAPABILITY_PERFMON);
	if (!admin && !((has & 1ULL << CAPABILITY_BPF) && (has & 1ULL << CAPABILITY_PERFMON)))
		add(report, FINDING_FAILED, "privilege",
		    "for exact reports, run `sudo diesel-analyze`, or run once: sudo setcap "
		    "cap_bpf,cap_perfmon,cap_sys_ptrace+ep $(command -v diesel-analyze). In a container: "
		    "docker run --pid=host --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE. In "
		    "Kubernetes: set hostPID: true, and list the same capabilities in "
		    "securityContext.capabilities.add",
		    "no privilege to load BPF programs (uid %u)", (unsigned)status.uid);
	else if (!(has & 1ULL << CAPABILITY_SYS_PTRACE))
		add(report, FINDING_LIMITED, "privilege", "add CAP_SYS_PTRACE",
		    "steps of other users' jobs cannot be counted: their libraries cannot be read");
	else if (!admin)
		add(report, FINDING_LIMITED, "privilege", "add CAP_SYS_ADMIN",
		    "the recorder's own cost cannot be measured");
	else
		add(report, FINDING_OK, "privilege", "", "all required capabilities are there");
}

/* Returns true if the kernel refused perf events for lack of privilege. check_perf() prints the remedy. */
static bool wants_privilege(int error)
{
	return error == -EACCES || error == -EPERM;
}

/* Checks whether stack samples can show how preparing spends its time. */
static void check_profile(struct report *report, struct collector *collector)
{
	struct collector_stats stats;

	collector_stats_get(collector, &stats);
	if (stats.profile_hz)
		add(report, FINDING_OK, "profile", "", "stack samples are timed by the CPUs' software clock");
	else
		add(report, FINDING_LIMITED, "profile",
		    wants_privilege(stats.profile_error) ? "see perf_event_paranoid below"
		    : stats.profile_error == -EOPNOTSUPP ? KNOWN_GOOD
							 : "use a kernel with CONFIG_PERF_EVENTS=y",
		    "no stack samples (%s): the report cannot show which functions prepare the data",
		    strerror(-stats.profile_error));
}

static void check_probes(struct report *report, struct collector *collector)
{
	struct collector_stats stats;

	collector_stats_get(collector, &stats);
	if (stats.no_probes)
		add(report, FINDING_LIMITED, "probes",
		    "run `sudo diesel-analyze`, or add CAP_SYS_ADMIN; or sample with `diesel-analyze "
		    "--unprivileged`",
		    "before Linux 6.6 probes in libraries need CAP_SYS_ADMIN; lost: steps, batches, GPU "
		    "waits");
	else
		add(report, FINDING_OK, "probes", "", "libraries can be probed");
}

/* Reports the programs that this kernel refused although it has their hooks. */
static void check_refusals(struct report *report, struct collector *collector)
{
	struct collector_stats stats;

	collector_stats_get(collector, &stats);
	report->n_refusals = stats.n_refusals;
	memcpy(report->refusals, stats.refusals, sizeof(report->refusals));
	for (size_t i = 0; i < report->n_refusals; i++) {
		const struct collector_refusal *refusal = &report->refusals[i];
		char name[64];

		snprintf(name, sizeof(name), "program %s", refusal->program);
		add(report, FINDING_LIMITED, name, KNOWN_GOOD, "refused by this kernel: %s; lost: %s",
		    refusal->reason, refusal->lost_without);
	}
}

/* Returns advice for a machine where the recorder does not load. */
static const char *load_advice(const struct report *report, int r)
{
	struct utsname system;

	uname(&system);
	if (strcmp(system.machine, "x86_64") != 0)
		return "use x86-64: the recorder supports no other architecture";
	for (size_t i = 0; i < report->n; i++)
		if (report->findings[i].state == FINDING_FAILED)
			return "see the lines above";
	if (r == -EPERM)
		return "allow bpf() here: a container's seccomp profile, or kernel lockdown, may refuse it "
		       "even to root";
	return KNOWN_GOOD;
}

static void check_load(struct report *report, const char *btf_path)
{
	const struct collector_options options = {.btf_path = btf_path, .profile_hz = 99};
	struct collector *collector = NULL;
	struct error err = ERROR_INIT;
	int r = collector_open(&options, &collector, &err);

	if (r < 0) {
		add(report, FINDING_FAILED, "recorder", load_advice(report, r), "%s", err.text);
	} else {
		add(report, FINDING_OK, "recorder", "", "loads and attaches");
		check_refusals(report, collector);
		check_probes(report, collector);
		check_profile(report, collector);
	}
	if (collector && collector_times_faults(collector))
		add(report, FINDING_OK, "page faults", "",
		    "reads of mapped files are timed from start to end");
	else if (collector)
		add(report, FINDING_LIMITED, "page faults",
		    wants_privilege(open_clock()) ? "see perf_event_paranoid below"
						  : "use a kernel with CONFIG_PERF_EVENTS=y",
		    "for reads of mapped files, only the time asleep is known");
	collector_close(collector);
}

static int read_line(const char *path, char *line, size_t size)
{
	_cleanup_(freep) char *text = NULL;
	int r = proc_read_file(path, 256, &text, NULL);

	if (r < 0)
		return r;
	text[strcspn(text, "\n")] = '\0';
	snprintf(line, size, "%s", text);
	return 0;
}

/* Mainline Linux goes up to 2, and lets CAP_PERFMON do everything. Debian's kernels default to 3 and Ubuntu's
 * to 4, where most of them open perf events only for CAP_SYS_ADMIN. */
static void check_perf(struct report *report)
{
	static const char setting[] = "perf_event_paranoid";
	char line[128];
	int r = open_clock();

	if (read_line("/proc/sys/kernel/perf_event_paranoid", line, sizeof(line)))
		add(report, FINDING_LIMITED, setting, "use a kernel with CONFIG_PERF_EVENTS=y",
		    "no perf events; lost: stack samples, times of page faults");
	else if (wants_privilege(r) && report->perfmon)
		add(report, FINDING_LIMITED, setting,
		    "sudo sysctl kernel.perf_event_paranoid=2, or add CAP_SYS_ADMIN",
		    "%s: perf events need CAP_SYS_ADMIN here; lost: stack samples, times of page faults",
		    line);
	else if (wants_privilege(r) && atoi(line) > 2)
		add(report, FINDING_OK, setting, "",
		    "%s: if CAP_PERFMON is not enough at this value, CAP_SYS_ADMIN is", line);
	else
		add(report, FINDING_OK, setting, "", "%s: has no effect with CAP_PERFMON", line);
}

static void check_settings(struct report *report)
{
	char line[128];

	if (!read_line("/sys/kernel/security/lockdown", line, sizeof(line))) {
		if (strstr(line, "[confidentiality]"))
			add(report, FINDING_FAILED, "lockdown", "boot with lockdown=integrity or none",
			    "kernel lockdown is set to confidentiality: BPF may not read kernel memory");
		else
			add(report, FINDING_OK, "lockdown", "",
			    "%s: tracepoints and user probes work in this mode", line);
	} else {
		add(report, FINDING_OK, "lockdown", "",
		    "this kernel does not report its lockdown mode, or securityfs is not mounted");
	}
	check_perf(report);
	add(report, FINDING_OK, "tracefs", "", "not needed");
}

static void check_psi(struct report *report)
{
	struct psi psi;
	int r = psi_read("/proc/pressure/io", &psi);

	if (r < 0)
		add(report, FINDING_LIMITED, "psi", "boot with psi=1 on a kernel built with CONFIG_PSI=y",
		    "no pressure stall information (PSI): %s", strerror(-r));
	else
		add(report, FINDING_OK, "psi", "", "the kernel has pressure stall information (PSI)");
}

/* Reports the GPU libraries as OK even if they are missing: a machine without a GPU lacks nothing. */
#define DRIVER "libcuda.so.1"

static bool is_in(const char *folder, size_t length, char *path, size_t size)
{
	if (!length || (size_t)snprintf(path, size, "%.*s/" DRIVER, (int)length, folder) >= size)
		return false;
	return access(path, R_OK) == 0;
}

/* Searches like the dynamic loader: LD_LIBRARY_PATH, then the usual folders. A job in a container has its
 * own library. */
static bool driver_find(char *path, size_t size)
{
	static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
					      "/usr/lib64",
					      "/usr/lib",
					      "/usr/lib/x86_64-linux-gnu/nvidia/current",
					      "/usr/local/nvidia/lib64",
					      "/usr/lib/wsl/lib",
					      "/run/opengl-driver/lib"};
	const char *at = getenv("LD_LIBRARY_PATH");

	while (at && *at) {
		size_t length = strcspn(at, ":");

		if (is_in(at, length, path, size))
			return true;
		at += length + (at[length] == ':');
	}
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (is_in(folders[i], strlen(folders[i]), path, size))
			return true;
	return false;
}

static void check_driver(struct report *report)
{
	struct gpu_probes probes;
	char path[512];
	int r;

	if (!driver_find(path, sizeof(path))) {
		add(report, FINDING_OK, "libcuda", "",
		    "no " DRIVER
		    " here: GPU waits cannot be told from other waits, unless the job brings its own copy");
		return;
	}
	r = gpu_probes_count(path, &probes);
	if (r < 0)
		add(report, FINDING_OK, "libcuda", "", "%s: %s", path, strerror(-r));
	else
		add(report, FINDING_OK, "libcuda", "",
		    "%s: %u functions to probe, %u of them at a higher cost, %u not in this driver", path,
		    probes.n_probed, probes.n_expensive, probes.n_missing);
}

static void check_gpu(struct report *report)
{
	struct error err = ERROR_INIT;
	struct nvml *nvml = NULL;

	check_driver(report);
	if (nvml_open(&nvml, &err) == 0)
		add(report, FINDING_OK, "nvml", "", "works");
	else
		add(report, FINDING_OK, "nvml", "", "%s: no GPU utilization to compare with the probes",
		    err.text);
	nvml_close(nvml);
}

static void check_sampler(struct report *report)
{
	struct sampler_source sources[SAMPLER_SOURCES_MAX];
	char name[32], line[16];
	size_t n = 0;
	int r = sampler_sources_find("/proc", sources, &n);

	report->sampled = r == 0;
	if (r < 0)
		add(report, FINDING_LIMITED, "sampler", "mount /proc without hidepid",
		    "without privilege, no job can be sampled: %s", strerror(-r));
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "sampler: %s", sources[i].name);
		if (sources[i].readable)
			add(report, FINDING_OK, name, "", "%s", sources[i].gives);
		else
			add(report, FINDING_LIMITED, name, "", "not readable; lost: %s",
			    sources[i].lost_without);
	}
	if (geteuid() != 0 && !read_line("/proc/sys/kernel/yama/ptrace_scope", line, sizeof(line)) &&
	    line[0] != '0')
		add(report, FINDING_LIMITED, "sampler: yama", "start the job with diesel-analyze -- COMMAND",
		    "with -p, the system calls in which threads sleep are hidden (ptrace_scope is %s)", line);
}

/* Returns true if the kernel has the hook, but refused its program or another one with the same loss. */
static bool is_refused(const struct report *report, const struct collector_hook *hook)
{
	for (size_t i = 0; i < report->n_refusals; i++)
		if (!strcmp(report->refusals[i].lost_without, hook->lost_without))
			return hook->present;
	return false;
}

static void print_text(const struct report *report, FILE *out)
{
	static const char *const words[] = {"ok", "limited", "FAILED"};
	struct utsname system;
	size_t missing = 0;

	uname(&system);
	fprintf(out, "%s %s, %s\n\n", system.sysname, system.release, system.machine);
	for (size_t i = 0; i < report->n; i++) {
		const struct finding *finding = &report->findings[i];

		fprintf(out, "%-8s %-20s %s\n", words[finding->state], finding->name, finding->detail);
		if (finding->advice[0])
			fprintf(out, "%-8s %-20s -> %s\n", "", "", finding->advice);
	}
	fprintf(out, "\n%s\n\n",
		report->exact     ? "Recordings here are exact."
		: report->sampled ? "Recordings here are sampled: they need no privilege, and results are "
				    "approximate, with error intervals."
				  : "No recording is possible here.");
	for (size_t i = 0; i < report->n_hooks; i++) {
		const struct collector_hook *hook = &report->hooks[i];

		bool refused = is_refused(report, hook);

		fprintf(out, "%-8s %-28s",
			refused          ? "refused"
			: hook->present  ? "ok"
			: hook->required ? "FAILED"
					 : "missing",
			hook->name);
		fprintf(out, " %s: %s\n", hook->present && !refused ? "without it" : "lost",
			hook->lost_without);
		missing += !hook->present;
	}
	if (report->n_hooks)
		fprintf(out, "\n%zu of %zu tracepoints present\n", report->n_hooks - missing,
			report->n_hooks);
}

static void print_json_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if ((unsigned char)*text < 0x20)
			fprintf(out, "\\u%04x", (unsigned)*text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

static void print_json(const struct report *report, FILE *out)
{
	static const char *const words[] = {"ok", "limited", "failed"};
	struct utsname system;

	uname(&system);
	fprintf(out, "{\n  \"schema\": \"diesel.check/1\",\n  \"kernel\": ");
	print_json_text(out, system.release);
	fprintf(out, ",\n  \"can_record\": %s,\n  \"mode\": %s,\n  \"findings\": [",
		report->exact || report->sampled ? "true" : "false",
		report->exact     ? "\"exact\""
		: report->sampled ? "\"sampled\""
				  : "null");
	for (size_t i = 0; i < report->n; i++) {
		const struct finding *finding = &report->findings[i];

		fprintf(out, "%s\n    {\"name\": \"%s\", \"state\": \"%s\", \"detail\": ", i ? "," : "",
			finding->name, words[finding->state]);
		print_json_text(out, finding->detail);
		fprintf(out, ", \"advice\": ");
		print_json_text(out, finding->advice);
		fputc('}', out);
	}
	fprintf(out, "\n  ],\n  \"hooks\": [");
	for (size_t i = 0; i < report->n_hooks; i++) {
		const struct collector_hook *hook = &report->hooks[i];

		fprintf(out,
			"%s\n    {\"name\": \"%s\", \"present\": %s, \"refused\": %s, \"required\": %s, "
			"\"lost_without\": ",
			i ? "," : "", hook->name, hook->present ? "true" : "false",
			is_refused(report, hook) ? "true" : "false", hook->required ? "true" : "false");
		print_json_text(out, hook->lost_without);
		fputc('}', out);
	}
	fprintf(out, "\n  ]\n}\n");
}

int check_run(const char *btf_path, bool json, FILE *out)
{
	struct report report = {.exact = true};

	check_btf(&report, btf_path);
	check_privilege(&report);
	check_load(&report, btf_path);
	check_settings(&report);
	check_psi(&report);
	check_gpu(&report);
	for (size_t i = 0; i < report.n; i++)
		report.exact = report.exact && report.findings[i].state != FINDING_FAILED;
	check_sampler(&report);
	if (json)
		print_json(&report, out);
	else
		print_text(&report, out);
	return report.exact || report.sampled ? 0 : 1;
}
