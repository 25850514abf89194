/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/shared/gpu_shared.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "bpf/shared/phase_shared.h"
#include "places.h"
#include "bpf/probes/probes.h"
#include "profiler.h"
#include "recorder.skel.h"
#include "recorder_without_cast.skel.h"
#include "refusal.h"
#include "bpf/shared/stack_sample.h"

#define SAMPLE_NS     (100 * NS_PER_MS)
#define SAMPLE_MAX_NS (5 * NS_PER_S)    /* maximum time between samples */
#define SAMPLE_MIN_NS (500 * NS_PER_MS) /* time between the first samples: gives short jobs a value, too */

static uint64_t cost_own_cpu_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * NS_PER_US;
}

static bool program_info(const struct bpf_program *program, struct bpf_prog_info *ret_info)
{
	struct bpf_prog_info info = {0};
	unsigned length = sizeof(info);

	if (bpf_program__fd(program) < 0 || bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &length))
		return false;
	*ret_info = info;
	return true;
}

/* Sums over all programs whose run times the kernel counts. */
struct cost_sums {
	uint64_t run_ns, missed;
};

static struct cost_sums cost_sum(struct bpf_object *object)
{
	struct cost_sums sums = {0};
	struct bpf_program *program;
	struct bpf_prog_info info;

	bpf_object__for_each_program(program, object)
	{
		if (!program_info(program, &info))
			continue;
		sums.run_ns += info.run_time_ns;
		sums.missed += info.recursion_misses;
	}
	return sums;
}

/* Returns true if the kernel always counts run times. Enabling the counts takes CAP_SYS_ADMIN. */
static bool always_counted(void)
{
	int fd = open("/proc/sys/kernel/bpf_stats_enabled", O_RDONLY | O_CLOEXEC);
	char value = '0';
	bool on = fd >= 0 && read(fd, &value, 1) == 1 && value == '1';

	if (fd >= 0)
		close(fd);
	return on;
}

/* Returns the pause before the next sample. Samples become rarer up to a limit, because an early one matters
 * little later on. */
static uint64_t pause_ns(const struct cost *cost, uint64_t now_ns)
{
	uint64_t pause = (now_ns - cost->start_ns) / 2;

	if (pause > SAMPLE_MAX_NS)
		return SAMPLE_MAX_NS;
	return pause < SAMPLE_MIN_NS ? SAMPLE_MIN_NS : pause;
}

/* Ends a sample, which represents the time since the previous one, because a job's start is busier than
 * its steps, and is sampled more often. */
static void cost_end(struct cost *cost, struct bpf_object *object, uint64_t now_ns)
{
	if (!cost->begin_ns || now_ns <= cost->begin_ns)
		return;
	cost->next_ns = now_ns + pause_ns(cost, now_ns);
	if (cost->stats_fd < 0 && !always_counted()) {
		cost->begin_ns = 0; /* counting was switched off during the sample, at an unknown time */
		return;
	}
	cost->rate =
	    (double)(cost_sum(object).run_ns - cost->begin_run_ns) / (double)(now_ns - cost->begin_ns);
	cost->estimate_ns += cost->rate * (double)(now_ns - cost->known_ns);
	cost->known_ns = now_ns;
	cost->sampled_ns += now_ns - cost->begin_ns;
	cost->begin_ns = 0;
	if (cost->stats_fd >= 0)
		close(cost->stats_fd);
	cost->stats_fd = -1;
}

static void cost_step(struct cost *cost, struct bpf_object *object, uint64_t now_ns)
{
	if (!cost->start_ns) {
		cost->start_ns = cost->known_ns = now_ns;
		cost->next_ns = now_ns + SAMPLE_MIN_NS;
	}
	if (cost->begin_ns) {
		if (now_ns - cost->begin_ns >= SAMPLE_NS)
			cost_end(cost, object, now_ns);
		return;
	}
	if (now_ns < cost->next_ns)
		return;
	cost->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (cost->stats_fd < 0 && !always_counted()) {
		cost->next_ns = now_ns + SAMPLE_MAX_NS; /* not permitted: the cost stays unknown for now */
		return;
	}
	cost->begin_run_ns = cost_sum(object).run_ns;
	cost->begin_ns = now_ns;
}

static uint64_t cost_estimate_ns(const struct cost *cost, uint64_t now_ns)
{
	double rest_ns = now_ns > cost->known_ns ? (double)(now_ns - cost->known_ns) : 0;

	return cost->sampled_ns ? (uint64_t)(cost->estimate_ns + cost->rate * rest_ns) : 0;
}

/* The kernel's software event for major page faults, on every CPU. It notifies the recorder of the end of
 * each fault. */

struct majors {
	int n;
	struct bpf_link *links[]; /* one for each CPU; NULL for an offline CPU */
};

static struct bpf_link *cpu_open(const struct bpf_program *program, int cpu)
{
	struct perf_event_attr attr = {
	    .type = PERF_TYPE_SOFTWARE,
	    .size = sizeof(attr),
	    .config = PERF_COUNT_SW_PAGE_FAULTS_MAJ,
	    .sample_period = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	struct bpf_link *link;

	if (fd < 0) {
		log_debug("cannot open the perf event for major page faults on CPU %d: %s", cpu,
			  strerror(errno));
		return NULL;
	}
	link = bpf_program__attach_perf_event(program, fd);
	if (!link) {
		log_debug("cannot attach the program for major page faults on CPU %d: %s", cpu,
			  strerror(errno));
		close(fd); /* an attached link would own it */
	}
	return link;
}

/* Returns NULL if the kernel refuses: then only the sleeps in faults are known. */
static struct majors *majors_open(const struct bpf_program *program)
{
	int n = libbpf_num_possible_cpus();
	struct majors *majors =
	    n > 0 ? calloc(1, sizeof(*majors) + (size_t)n * sizeof(majors->links[0])) : NULL;

	if (!majors)
		return NULL;
	majors->n = n;
	for (int cpu = 0; cpu < n; cpu++)
		majors->links[cpu] = cpu_open(program, cpu);
	return majors;
}

/* Returns the number of CPUs on which the event is open. */
static int majors_count(const struct majors *majors)
{
	int n = 0;

	for (int cpu = 0; majors && cpu < majors->n; cpu++)
		n += majors->links[cpu] != NULL;
	return n;
}

static void majors_close(struct majors *majors)
{
	if (!majors)
		return;
	for (int cpu = 0; cpu < majors->n; cpu++)
		bpf_link__destroy(majors->links[cpu]);
	free(majors);
}

#define DEFAULT_RING_BYTES (UINT64_C(8) << 20)
#define MIN_RING_BYTES     UINT64_C(4096)
#define MAX_RING_BYTES     (UINT64_C(1) << 30)

static uint64_t ring_size(uint64_t wanted_bytes)
{
	uint64_t bytes = MIN_RING_BYTES;

	if (!wanted_bytes)
		wanted_bytes = DEFAULT_RING_BYTES;
	while (bytes < wanted_bytes && bytes < MAX_RING_BYTES)
		bytes <<= 1;
	return bytes;
}

/* Returns the ring size for the records that all CPUs write in 200 ms, four times a caller's polling
 * interval. */
static uint64_t stack_ring_size(uint32_t rate_hz)
{
	uint64_t n_cpus = (uint64_t)sysconf(_SC_NPROCESSORS_CONF);

	return ring_size(n_cpus * (rate_hz / 5 + 1) * (sizeof(struct stack_sample) + 8));
}

/* Both objects are made from one source, so one's skeleton describes the other. */
_Static_assert(sizeof(struct recorder) == sizeof(struct recorder_without_cast),
	       "both recorders must have the same maps and programs");

/* Opens the object that this kernel can load: an object that names a kernel function needs that function in
 * the kernel. */
static int open_recorder(const char *btf_path, bool can_cast, struct recorder **ret_recorder)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = btf_path);
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	int r = recorder ? recorder__create_skeleton(recorder) : -ENOMEM;

	if (r == 0 && !can_cast)
		recorder->skeleton->data =
		    (void *)recorder_without_cast__elf_bytes(&recorder->skeleton->data_sz);
	if (r == 0)
		r = bpf_object__open_skeleton(recorder->skeleton, &opts);
	if (r < 0)
		recorder__destroy(recorder);
	else
		*ret_recorder = recorder;
	return r;
}

static int prepare(const struct collector *collector, const struct collector_options *options,
		   struct error *err)
{
	struct recorder *recorder = collector->recorder;
	uint64_t ring_bytes = ring_size(options->ring_bytes);
	int r;

	recorder->rodata->recorder_tgid = (uint32_t)getpid();
	recorder->rodata->wakeup_bytes = ring_bytes / 8;
	recorder->rodata->no_children = options->no_children;
	recorder->rodata->recording_start_boottime_ns = clock_snapshot_take().boottime_ns;
	r = bpf_map__set_max_entries(recorder->maps.data_ring, (uint32_t)ring_bytes);
	if (r < 0)
		return error_errno(err, r, "cannot set the size of the ring buffer for events");
	r = bpf_map__set_max_entries(recorder->maps.stack_ring,
				     (uint32_t)stack_ring_size(collector->profile_hz));
	return r < 0 ? error_errno(err, r, "cannot set the size of the ring buffer for stack samples") : 0;
}

/* Explains in the user's terms why the kernel did not accept the programs. */
static int load_error(int r, struct error *err)
{
	const struct refusal *refusal = refusal_get();

	if (refusal_of_privilege(r))
		return error_set(err, -EPERM,
				 "no privilege to load BPF programs: run as root (sudo), or give the program "
				 "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
	if (refusal->program[0])
		return error_set(err, -ENOSYS,
				 "the kernel refused the recorder's program %s: %s (diesel-analyze -v record "
				 "shows the kernel's log)",
				 refusal->program, refusal->reason);
	return error_errno(err, r,
			   "the kernel did not load the recorder's BPF programs (diesel-analyze -v record "
			   "shows the kernel's log)");
}

/* Returns true if the recorder can work without the refused program, and stores the refusal. */
static bool leave_out(struct collector *collector, int r)
{
	const struct refusal *refusal = refusal_get();
	const struct collector_hook *hook = hooks_of_program(refusal->program);
	struct collector_refusal *left_out = &collector->refusals[collector->n_refusals];

	if (!hook || hook->required || r == -ENOMEM || r == -EINTR || refusal_of_privilege(r) ||
	    collector->n_refusals == COLLECTOR_REFUSALS_MAX)
		return false;
	snprintf(left_out->program, sizeof(left_out->program), "%s", hook->name);
	memcpy(left_out->reason, refusal->reason, sizeof(left_out->reason));
	left_out->lost_without = hook->lost_without;
	collector->n_refusals++;
	return true;
}

/* Excludes from loading all programs with this lost_without, because a partial measurement is useless. */
static void hooks_leave_out(struct bpf_object *object, const char *lost_without)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		const struct collector_hook *hook = hooks_of_program(bpf_program__name(program));

		if (hook && !strcmp(hook->lost_without, lost_without))
			bpf_program__set_autoload(program, false);
	}
}

/* Loads the recorder once. *refused: the kernel refused the load, or libbpf failed before it; err is not
 * set yet. */
static int load_once(struct collector *collector, const struct collector_options *options,
		     const struct btf *btf, bool *refused, struct error *err)
{
	const char *btf_path = options->btf_path ? options->btf_path : DEFAULT_BTF;
	int r;

	*refused = false;
	refusal_listen();
	r = open_recorder(btf_path, hooks_can_cast(btf), &collector->recorder);
	if (r < 0)
		return error_errno(err, r, "cannot open the recorder's BPF programs");
	r = hooks_select(collector->recorder->obj, btf, collector->profile_hz > 0, err);
	for (size_t i = 0; r == 0 && i < collector->n_refusals; i++)
		hooks_leave_out(collector->recorder->obj, collector->refusals[i].lost_without);
	if (r == 0)
		r = prepare(collector, options, err);
	if (r < 0)
		return r;
	refusal_listen();
	r = recorder__load(collector->recorder);
	*refused = r < 0;
	return r;
}

static bool is_admin(void)
{
	struct proc_status status;

	return proc_status_read("/proc", getpid(), &status) == 0 &&
	       status.effective_capabilities & 1ULL << CAP_SYS_ADMIN;
}

/* Returns 0, or -errno if the running kernel cannot take stack samples. */
static int hooks_can_profile(void)
{
	static const enum bpf_func_id needed[] = {BPF_FUNC_task_pt_regs, BPF_FUNC_task_storage_get,
						  BPF_FUNC_get_current_task_btf};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		int r = libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, needed[i], NULL);

		if (r <= 0)
			return r < 0 ? r : -EOPNOTSUPP;
	}
	return 0;
}

/* Loads the recorder, without the optional programs that this kernel refuses. */
static int load_recorder(struct collector *collector, const struct collector_options *options,
			 struct error *err)
{
	_cleanup_(btf_freep) struct btf *btf = NULL;
	bool refused = false;
	int r = hooks_btf(options->btf_path ? options->btf_path : DEFAULT_BTF, &btf, err);

	if (r < 0)
		return r;
	collector->no_probes = !hooks_can_probe(btf) && !is_admin();
	if (options->profile_hz)
		collector->profile_error = hooks_can_profile();
	if (!collector->profile_error)
		collector->profile_hz = options->profile_hz;
	r = load_once(collector, options, btf, &refused, err);
	while (refused && leave_out(collector, r)) {
		recorder__destroy(collector->recorder);
		collector->recorder = NULL;
		r = load_once(collector, options, btf, &refused, err);
	}
	if (refused)
		return load_error(r, err);
	if (r == 0 && collector->profile_hz &&
	    !bpf_program__autoload(collector->recorder->progs.sample_cpu)) {
		collector->profile_hz = 0;
		collector->profile_error = -EOPNOTSUPP;
	}
	return r;
}

int collector_record(void *user, void *data, size_t size)
{
	struct collector *collector = user;
	const struct event *event = data;
	struct event phase;

	if (size < sizeof(*event))
		return 0;
	if (event->type == EVENT_PHASE && size >= sizeof(struct phase_record)) {
		phase = probes_phase(collector->probes, data);
		event = &phase;
	}
	collector->events[event->type % COLLECTOR_EVENT_TYPES]++;
	probes_event(collector->probes, event);
	if (collector->profiler)
		profiler_event(collector->profiler, event);
	if (collector->sink)
		collector->sink->event(collector->sink->user, event);
	return 0;
}

static int on_sample(void *user, void *data, size_t size)
{
	struct collector *collector = user;
	struct event event;

	if (size == sizeof(struct stack_sample) &&
	    profiler_sample(collector->profiler, data, collector->sink, &event))
		return collector_record(collector, &event, sizeof(event));
	return 0;
}

static void emit(void *user, const struct event *event)
{
	struct event copy = *event;

	collector_record(user, &copy, sizeof(copy));
}

static void take_note(void *user, const char *kind, uint64_t key, const void *data, size_t size)
{
	const struct collector *collector = user;

	if (collector->sink && collector->sink->metadata)
		collector->sink->metadata(collector->sink->user, kind, key, data, size);
}

/* Stack samples are optional: all other measurements work without this clock. */
static int start_profile(struct collector *collector, struct error *err)
{
	int r;

	collector->profile_error =
	    profiler_open(collector->recorder->obj, collector->profile_hz, &collector->profiler);
	if (collector->profile_error) {
		collector->profile_hz = 0;
		return 0;
	}
	r = ring_buffer__add(collector->rings, bpf_map__fd(collector->recorder->maps.stack_ring), on_sample,
			     collector);
	return r < 0 ? error_errno(err, r, "cannot map the ring buffer for stack samples") : 0;
}

static int start(struct collector *collector, struct error *err)
{
	struct recorder *recorder = collector->recorder;
	int r;

	collector->probes = probes_new(recorder->obj, bpf_map__fd(recorder->maps.members),
				       bpf_map__fd(recorder->maps.libraries));
	collector->rings =
	    ring_buffer__new(bpf_map__fd(recorder->maps.life_ring), collector_record, collector, NULL);
	if (!collector->probes || !collector->rings)
		return error_set(err, -ENOMEM, "not enough memory to start the recorder");
	r = ring_buffer__add(collector->rings, bpf_map__fd(recorder->maps.data_ring), collector_record,
			     collector);
	if (r < 0)
		return error_errno(err, r, "cannot map the ring buffer for events");
	collector->places = places_new(bpf_map__fd(recorder->maps.totals), bpf_map__fd(recorder->maps.places),
				       emit, take_note, collector, clock_monotonic_ns());
	if (!collector->places)
		return error_set(err, -ENOMEM, "not enough memory to start the recorder");
	collector->majors = majors_open(recorder->progs.major_fault);
	r = hooks_attach(collector, recorder->obj, err);
	if (r == 0 && collector->profile_hz)
		r = start_profile(collector, err);
	return r;
}

int collector_open(const struct collector_options *options, struct collector **ret_collector,
		   struct error *err)
{
	static const struct collector_options defaults;
	struct collector *collector = calloc(1, sizeof(*collector));
	int r;

	if (!collector)
		return error_set(err, -ENOMEM, "not enough memory to start the recorder");
	collector->cost.stats_fd = -1;
	r = load_recorder(collector, options ? options : &defaults, err);
	if (r == 0)
		r = start(collector, err);
	if (r < 0) {
		collector_close(collector);
		return r;
	}
	collector->start_ns = collector->polled_ns = clock_monotonic_ns();
	collector->start_cpu_ns = cost_own_cpu_ns();
	*ret_collector = collector;
	return 0;
}

static uint64_t n_lost(const struct collector *collector)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++)
		sum += __atomic_load_n(&collector->recorder->bss->lost[i], __ATOMIC_RELAXED);
	return sum;
}

/* Reports that records were lost between the last two polls. */
static void report_losses(struct collector *collector)
{
	uint64_t lost = n_lost(collector), now_ns = clock_monotonic_ns();
	struct event event = {
	    .type = EVENT_LOSS, .start_ns = collector->polled_ns, .end_ns = now_ns, .tid = 1, .tgid = 1};

	event.loss.n = lost - collector->polled_lost;
	if (event.loss.n)
		collector_record(collector, &event, sizeof(event));
	collector->polled_lost = lost;
	collector->polled_ns = now_ns;
}

int collector_poll(struct collector *collector, int timeout_ms, const struct collector_sink *sink)
{
	int r, n;

	collector->sink = sink;
	collector_flush_pending(collector);
	r = ring_buffer__poll(collector->rings, timeout_ms);
	/* Most records cause no wake-up, so check the ring in any case. */
	n = ring_buffer__consume(collector->rings);
	report_losses(collector);
	if (probes_step(collector->probes, sink, collector->recorder->bss->n_frequent, clock_monotonic_ns()))
		collector->recorder->bss->gpu_work_unseen = 1;
	places_step(collector->places, (pid_t)collector->recorder->bss->tag_tgid, clock_monotonic_ns(),
		    false);
	collector->sink = NULL;
	cost_step(&collector->cost, collector->recorder->obj, clock_monotonic_ns());
	if (r < 0)
		return r;
	return n < 0 ? n : r + n;
}

uint64_t collector_detail(struct collector *collector, bool wanted)
{
	uint64_t now_ns = clock_monotonic_ns();

	__atomic_store_n(&collector->recorder->data->detail_until_ns, wanted ? UINT64_MAX : now_ns,
			 __ATOMIC_RELAXED);
	return now_ns;
}

int collector_fd(const struct collector *collector)
{
	return ring_buffer__epoll_fd(collector->rings);
}

bool collector_times_faults(const struct collector *collector)
{
	return majors_count(collector->majors) > 0;
}

uint64_t collector_alive(const struct collector *collector)
{
	int64_t n = __atomic_load_n(&collector->recorder->bss->n_members, __ATOMIC_RELAXED);

	return n > 0 ? (uint64_t)n : 0;
}

static void detach(struct collector *collector)
{
	/* Detaches in reverse order: interrupt entries before their exits, so that no context stays open. */
	majors_close(collector->majors);
	collector->majors = NULL;
	while (collector->n_links > 0)
		bpf_link__destroy(collector->links[--collector->n_links]);
	if (collector->probes)
		probes_detach(collector->probes);
	if (collector->profiler)
		profiler_stop(collector->profiler);
}

/* Writes a record for each process that used a GPU, including ended processes. */
static void gpu_totals(struct collector *collector)
{
	int fd = bpf_map__fd(collector->recorder->maps.gpu_processes);
	uint32_t *previous = NULL, tgid;

	while (!bpf_map_get_next_key(fd, previous, &tgid)) {
		struct gpu_process process;
		struct event event = {.type = EVENT_GPU_TOTALS, .tid = tgid, .tgid = tgid};

		previous = &tgid;
		if (bpf_map_lookup_elem(fd, &tgid, &process))
			continue;
		event.start_ns = event.end_ns = clock_monotonic_ns();
		event.gpu_totals.n_launches = process.n_launches;
		event.gpu_totals.n_copies = process.n_copies;
		event.gpu_totals.n_waits = process.n_waits;
		event.gpu_totals.wait_ns = process.wait_ns;
		collector_record(collector, &event, sizeof(event));
	}
}

int collector_stop(struct collector *collector, const struct collector_sink *sink, struct error *err)
{
	int r, n;

	collector->sink = sink;
	collector_flush_pending(collector);
	ring_buffer__consume(collector->rings);
	cost_end(&collector->cost, collector->recorder->obj, clock_monotonic_ns());
	detach(collector);
	n = ring_buffer__consume(collector->rings);
	r = collector_iterate(collector, collector->recorder->progs.close_tasks);
	collector_flush_pending(collector);
	report_losses(collector);
	gpu_totals(collector);
	places_step(collector->places, (pid_t)collector->recorder->bss->tag_tgid, clock_monotonic_ns(), true);
	collector->sink = NULL;
	if (r < 0)
		return error_errno(err, r, "cannot read the last totals of the job's threads");
	return n < 0 ? error_errno(err, n, "cannot read the ring buffer for events") : 0;
}

void collector_close(struct collector *collector)
{
	if (!collector)
		return;
	if (collector->cost.stats_fd >= 0)
		close(collector->cost.stats_fd);
	detach(collector);
	probes_free(collector->probes);
	places_free(collector->places);
	profiler_free(collector->profiler);
	ring_buffer__free(collector->rings);
	recorder__destroy(collector->recorder);
	free(collector->pending);
	free(collector);
}

void collector_stats_get(struct collector *collector, struct collector_stats *ret_stats)
{
	const struct cost *cost = &collector->cost;
	struct collector_stats stats = {0};

	memcpy(stats.events, collector->events, sizeof(stats.events));
	for (size_t i = 0; i < COLLECTOR_EVENT_TYPES; i++)
		stats.lost[i] = __atomic_load_n(&collector->recorder->bss->lost[i], __ATOMIC_RELAXED);
	stats.storage_failures = collector->recorder->bss->n_storage_failures;
	stats.missed = cost_sum(collector->recorder->obj).missed;
	stats.clock_start = collector->start_ns;
	stats.elapsed_ns = clock_monotonic_ns() - collector->start_ns;
	stats.own_cpu_ns = cost_own_cpu_ns() - collector->start_cpu_ns;
	stats.sampled_ns = cost->sampled_ns;
	stats.bpf_run_ns = cost_estimate_ns(cost, collector->start_ns + stats.elapsed_ns);
	stats.profile_hz = collector->profile_hz;
	stats.profile_error = collector->profile_error;
	stats.refusals = collector->refusals;
	stats.n_refusals = collector->n_refusals;
	stats.no_probes = collector->no_probes;
	*ret_stats = stats;
}
