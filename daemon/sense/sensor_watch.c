/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_watch.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "analyzer/live.h"
#include "bpf/collector.h"
#include "lib/capabilities.h"
#include "lib/error.h"
#include "lib/proc.h"
#include "lib/sandbox.h"
#include "sensor_keeper.h"
#include "sensor_watch_jobs.h"

#include <linux/capability.h>

#define RING_BYTES (UINT64_C(4) << 20)
#define EVENTS_MAX (UINT64_C(1) << 17) /* per job: 8 MiB; a slice is shorter if the job makes more */
#define POLL_MS    100

static void reply(struct watch *w, const struct sensor_reply *message)
{
	if (send(w->fd, message, sizeof(*message), MSG_NOSIGNAL) < 0)
		w->ended = true;
}

static uint64_t resident_bytes(void)
{
	struct proc_status status;

	return proc_status_read("/proc", getpid(), &status) == 0 ? status.resident_bytes : 0;
}

static void on_tick(struct watch *w)
{
	struct sensor_reply message = {.type = SENSOR_REPORTS};
	uint64_t now_ns = clock_monotonic_ns();
	struct collector_stats stats;
	size_t i = 0;

	while (i < w->n_jobs) {
		for (message.code = 0; i < w->n_jobs && message.code < SENSOR_REPORTS_MAX; i++)
			watch_report(w->jobs[i], now_ns, &message.reports[message.code++]);
		reply(w, &message);
	}
	collector_stats_get(w->collector, &stats);
	message = (struct sensor_reply){.type = SENSOR_TICKED};
	for (size_t k = 0; k < COLLECTOR_EVENT_TYPES; k++)
		message.ticked.n_lost += stats.lost[k];
	message.ticked.cpu_ns = watch_cpu_ns();
	message.ticked.bpf_run_ns = stats.sampled_ns ? stats.bpf_run_ns : 0;
	message.ticked.resident_bytes = resident_bytes();
	message.ticked.active_ns = stats.elapsed_ns;
	message.ticked.n_jobs = (uint32_t)w->n_jobs;
	reply(w, &message);
}

static void take_requests(struct watch *w)
{
	struct sensor_request request;

	while (!w->ended) {
		ssize_t n = recv(w->fd, &request, sizeof(request), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n != sizeof(request)) {
			w->ended = true;
			return;
		}
		switch ((enum sensor_request_type)request.type) {
		case SENSOR_ADD: watch_add(w, &request); break;
		case SENSOR_REMOVE: watch_remove(w, request.job); break;
		case SENSOR_TICK:
			watch_take_events(w);
			on_tick(w);
			break;
		case SENSOR_STOP: w->ended = true; break;
		case SENSOR_START: break;
		}
	}
}

static int watch_open(struct watch *w)
{
	const struct collector_options options = {.ring_bytes = RING_BYTES};
	struct error err = ERROR_INIT;
	struct sensor_reply message = {.type = SENSOR_READY};
	cpu_set_t cpus;
	int r;

	w->live = live_new(&(struct live_config){
	    .window_ns = WATCH_WINDOW_NS,
	    .n_events_max = EVENTS_MAX,
	    .n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1});
	r = w->live ? collector_open(&options, &w->collector, &err) : -ENOMEM;
	if (r == 0) {
		collector_detail(w->collector, false);
		r = capabilities_keep(sensor_keeper_capabilities() & ~CAPABILITY(CAP_BPF));
		(void)sandbox_filter(SANDBOX_SENSOR);
	}
	if (r < 0) {
		message = (struct sensor_reply){.type = SENSOR_REFUSED, .code = r};
		snprintf(message.why, sizeof(message.why), "%s", err.text[0] ? err.text : strerror(-r));
	}
	reply(w, &message);
	return r;
}

int sensor_watch_run(int fd, _Atomic uint32_t *beat)
{
	struct watch w = {.fd = fd};

	prctl(PR_SET_NAME, "dieseld-sensor");
	if (watch_open(&w) == 0) {
		while (!w.ended) {
			struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
					       {.fd = collector_fd(w.collector), .events = POLLIN}};

			atomic_fetch_add_explicit(beat, 1, memory_order_relaxed);
			(void)poll(fds, 2, watch_analyse_next(&w) ? 0 : POLL_MS);
			watch_take_events(&w);
			take_requests(&w);
			watch_plan(&w);
		}
	}
	watch_remove_all(&w);
	collector_close(w.collector);
	live_free(w.live);
	return 0;
}
