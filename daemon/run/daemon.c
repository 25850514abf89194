/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/notify.h"
#include "lib/units.h"

static void say(const char *state)
{
	int r = notify_send(state);

	if (r < 0)
		log_debug("the service manager cannot be told %s: %s", state, strerror(-r));
}

static void on_stop(uv_signal_t *handle, int number)
{
	struct daemon *s = handle->data;

	log_info("%s: stopping", strsignal(number));
	say("STOPPING=1");
	uv_close((uv_handle_t *)&s->sigterm, NULL);
	uv_close((uv_handle_t *)&s->sigint, NULL);
	uv_close((uv_handle_t *)&s->sighup, NULL);
	uv_close((uv_handle_t *)&s->watchdog, NULL);
	metrics_stop(s->metrics);
	sensor_stop(s->sensor);
	server_stop(s->server);
}

static void warn_fixed(const struct options *old, const struct options *new)
{
	const struct {
		const char *name;
		bool changed;
	} fixed[] = {
	    {"socket", strcmp(old->socket_path, new->socket_path) != 0},
	    {"metrics", strcmp(old->metrics, new->metrics) != 0},
	    {"history", strcmp(old->history, new->history) != 0},
	    {"history-max", old->history_max_bytes != new->history_max_bytes},
	    {"no-io-uring", old->serve.use_io_uring != new->serve.use_io_uring},
	};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (fixed[i].changed)
			log_warning("%s takes effect when dieseld is started again", fixed[i].name);
}

/* Everything that has effect while serving. Sessions that are open keep their window and batches: their order
 * and their memory depend on them. */
static void apply(struct daemon *s, struct options *new)
{
	char cache[16];

	warn_fixed(s->options, new);
	s->server->serving.options.window_chunks = new->serve.window_chunks;
	s->server->serving.options.n_slots = new->serve.n_slots;
	s->server->serving.options.user_share = new->serve.user_share;
	s->server->serving.options.require_digest = new->serve.require_digest;
	s->server->serving.options.knobs.prefetch_chunks = new->serve.knobs.prefetch_chunks;
	control_reconfigure(s->control, &new->settings, &new->serve.knobs);
	s->options->settings = new->settings;
	s->options->serve.knobs = new->serve.knobs;
	s->options->serve.window_chunks = new->serve.window_chunks;
	s->options->serve.n_slots = new->serve.n_slots;
	s->options->serve.user_share = new->serve.user_share;
	s->options->serve.require_digest = new->serve.require_digest;
	log_info("configuration read again: cache %s, prefetch %u chunk%s, %u worker%s",
		 units_format_bytes(cache, sizeof(cache), new->serve.knobs.cache_bytes),
		 new->serve.knobs.prefetch_chunks, units_plural(new->serve.knobs.prefetch_chunks),
		 new->serve.knobs.workers, units_plural(new->serve.knobs.workers));
}

static void on_reload(uv_signal_t *handle, int number)
{
	struct daemon *s = handle->data;
	struct error err = ERROR_INIT;
	struct options new;
	char state[80];

	(void)number;
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		 clock_monotonic_ns() / NS_PER_US);
	say(state);
	if (options_init(&new, s->memory_bytes, s->n_cpus) == 0 &&
	    options_parse(&new, s->argc, s->argv, &err) == 0)
		apply(s, &new);
	else
		log_error("%s; the configuration stays as it was", err.text);
	options_free(&new);
	say("READY=1");
}

static void on_watchdog(uv_timer_t *timer)
{
	say("WATCHDOG=1");
}

static void start_signal(uv_loop_t *loop, uv_signal_t *handle, int number, uv_signal_cb callback,
			 struct daemon *s)
{
	uv_signal_init(loop, handle);
	handle->data = s;
	uv_signal_start(handle, callback, number);
}

static void on_second(void *user, const struct stall_node *node, const struct stall_sample *samples, size_t n,
		      uint64_t now_ns)
{
	struct daemon *s = user;

	metrics_totals_add(&s->totals, node, samples, n);
	s->tuning.second(s->tuning.user, node, samples, n, now_ns);
}

struct sensor_handler daemon_handler(struct daemon *daemon)
{
	daemon->tuning = control_handler(daemon->control);
	return (struct sensor_handler){.second = on_second, .user = daemon};
}

void daemon_start(struct daemon *s, uv_loop_t *loop)
{
	struct error err = ERROR_INIT;
	const struct metrics_sources sources = {
	    .server = s->server, .totals = &s->totals, .control = s->control, .sensor = s->sensor};
	uint64_t period_ms = notify_watchdog_us() / 2000;

	start_signal(loop, &s->sigterm, SIGTERM, on_stop, s);
	start_signal(loop, &s->sigint, SIGINT, on_stop, s);
	start_signal(loop, &s->sighup, SIGHUP, on_reload, s);
	uv_timer_init(loop, &s->watchdog);
	if (period_ms)
		uv_timer_start(&s->watchdog, on_watchdog, period_ms, period_ms);
	if (strcmp(s->options->metrics, "off") != 0 &&
	    metrics_start(loop, s->options->metrics, &sources, &s->metrics, &err) < 0)
		log_warning("%s: no metrics; choose another --metrics, or off", err.text);
}

void daemon_ready(const struct daemon *s)
{
	char state[160];

	snprintf(state, sizeof(state), "READY=1\nSTATUS=serving on %s", s->options->socket_path);
	say(state);
}
