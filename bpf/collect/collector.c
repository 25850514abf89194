/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_shared.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "majors.h"
#include "places.h"
#include "phase_shared.h"
#include "probes.h"
#include "profiler.h"
#include "recorder.skel.h"

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

	if (collector->sink && collector->sink->note)
		collector->sink->note(collector->sink->user, kind, key, data, size);
}

/* Stack samples are optional: the rest is measured without the clock too. */
static int start_profile(struct collector *collector, struct error *err)
{
	int r;

	collector->profiler = profiler_new(collector->recorder->obj);
	if (!collector->profiler)
		return error_set(err, -ENOMEM, "no memory for the collector");
	r = ring_buffer__add(collector->rings, bpf_map__fd(collector->recorder->maps.stack_ring), on_sample,
			     collector);
	if (r < 0)
		return error_errno(err, r, "cannot map the ring of samples");
	collector->profile_error = profiler_start(collector->profiler, collector->profile_hz);
	if (collector->profile_error)
		collector->profile_hz = 0;
	return 0;
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
		return error_set(err, -ENOMEM, "no memory for the collector");
	r = ring_buffer__add(collector->rings, bpf_map__fd(recorder->maps.data_ring), collector_record,
			     collector);
	if (r < 0)
		return error_errno(err, r, "cannot map the ring");
	collector->places = places_new(bpf_map__fd(recorder->maps.totals), bpf_map__fd(recorder->maps.places),
				       emit, take_note, collector, clock_monotonic_ns());
	if (!collector->places)
		return error_set(err, -ENOMEM, "no memory for the collector");
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
		return error_set(err, -ENOMEM, "no memory for the collector");
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

/* Reports that records were lost, and that it was between the last two polls. */
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
	/* Most records come without a wakeup, so look in any case. */
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
	/* In reverse: interrupt entries go before their exits, so that no context is left open. */
	majors_close(collector->majors);
	collector->majors = NULL;
	while (collector->n_links > 0)
		bpf_link__destroy(collector->links[--collector->n_links]);
	if (collector->probes)
		probes_detach(collector->probes);
	if (collector->profiler)
		profiler_stop(collector->profiler);
}

/* Writes a record for each process that used a GPU, also for those that ended. */
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
	r = collector_walk(collector, collector->recorder->progs.close_tasks);
	collector_flush_pending(collector);
	report_losses(collector);
	gpu_totals(collector);
	places_step(collector->places, (pid_t)collector->recorder->bss->tag_tgid, clock_monotonic_ns(), true);
	collector->sink = NULL;
	if (r < 0)
		return error_errno(err, r, "cannot read the last totals of the job's threads");
	return n < 0 ? error_errno(err, n, "cannot read the ring") : 0;
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
	stats.missed = cost_missed(collector->recorder->obj);
	stats.n_probes = probes_count(collector->probes);
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
