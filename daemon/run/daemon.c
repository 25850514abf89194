/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/notify.h"
#include "lib/units.h"

/*
 * Names of users and groups in the configuration that the machine does not know yet, because the service that
 * resolves them (SSSD, LDAP) starts after dieseld: serving does not wait for that. A thread of its own looks
 * them up, since the answer may take long: after 5 s, then after twice as long each time, up to five minutes.
 */
#define NAMES_TICK_MS     1000
#define NAMES_PAUSE_S     5
#define NAMES_PAUSE_MAX_S 300

struct name_search {
	struct cache_quotas quotas;
	struct admin_choice admin;
	atomic_bool is_done;
};

static void *search_names(void *user)
{
	struct name_search *s = user;

	cache_quotas_find(&s->quotas);
	if (s->admin.is_unknown && admin_find(s->admin.name, false, &s->admin.uid) == 0 &&
	    s->admin.uid != admin_overflow_id("uid"))
		s->admin.is_unknown = false;
	atomic_store(&s->is_done, true);
	return NULL;
}

static void start_search(struct unknown_names *n)
{
	struct name_search *s = malloc(sizeof(*s));
	pthread_t thread;

	if (!s)
		return;
	*s = (struct name_search){.quotas = n->server->serving.cache.quotas, .admin = *n->admin};
	if (pthread_create(&thread, NULL, search_names, s) != 0) {
		free(s);
		return;
	}
	pthread_detach(thread);
	n->search = s;
}

/* Returns how many names are not known. */
static uint32_t count_unknown(const struct unknown_names *n)
{
	const struct cache_quotas *q = &n->server->serving.cache.quotas;
	uint32_t unknown = n->admin->is_unknown;

	for (uint32_t i = 0; i < q->n; i++)
		unknown += q->rows[i].is_unknown;
	return unknown;
}

static void take_names(struct unknown_names *n, struct name_search *s)
{
	struct cache_quotas quotas = n->server->serving.cache.quotas;
	uint32_t before = count_unknown(n);

	cache_quotas_remember(&quotas, &s->quotas);
	server_set_quotas(n->server, &quotas);
	if (n->admin->is_unknown && !s->admin.is_unknown) {
		*n->admin = s->admin;
		admin_choose(n->admin);
	}
	if (count_unknown(n) == 0)
		log_info(
		    "all names in cache-quota and admin-user are known now, and their settings in force");
	else if (count_unknown(n) < before)
		log_info("%u of the names in cache-quota and admin-user are still unknown", count_unknown(n));
}

static void on_names_tick(uv_timer_t *timer)
{
	struct unknown_names *n = timer->data;
	struct name_search *s = n->search;

	if (s && !atomic_load(&s->is_done))
		return;
	if (s) {
		n->search = NULL;
		take_names(n, s);
		free(s);
		n->pause_s = n->pause_s * 2 < NAMES_PAUSE_MAX_S ? n->pause_s * 2 : NAMES_PAUSE_MAX_S;
		n->left_s = n->pause_s;
		if (count_unknown(n) == 0)
			uv_timer_stop(timer);
	} else if (--n->left_s == 0) {
		n->left_s = 1;
		start_search(n);
	}
}

/* Call when the quotas have changed. Logs as names_start(). */
static void names_changed(struct unknown_names *n)
{
	const struct cache_quotas *q = &n->server->serving.cache.quotas;
	_cleanup_(freep) char *list = NULL;
	size_t size;
	FILE *f;

	if (count_unknown(n) == 0) {
		uv_timer_stop(&n->timer);
		return;
	}
	f = open_memstream(&list, &size);
	if (f) {
		for (uint32_t i = 0; i < q->n; i++)
			if (q->rows[i].is_unknown)
				fprintf(f, "%s (cache-quota), ", q->rows[i].name);
		if (n->admin->is_unknown)
			fprintf(f, "%s (admin-user), ", n->admin->name);
		fclose(f);
	}
	log_warning("this machine does not know %sso the settings for these names are not in force; dieseld "
		    "looks the names up again by itself. Run `dieseld --check-config` to print the line",
		    list ? list : "all names, ");
	n->pause_s = n->left_s = NAMES_PAUSE_S;
	uv_timer_start(&n->timer, on_names_tick, NAMES_TICK_MS, NAMES_TICK_MS);
}

/* Starts the look-ups. Borrows server and admin. Logs one line with the names that are not known. */
static void names_start(struct unknown_names *n, uv_loop_t *loop, struct server *server,
			struct admin_choice *admin)
{
	*n = (struct unknown_names){.server = server, .admin = admin};
	uv_timer_init(loop, &n->timer);
	n->timer.data = n;
	uv_unref((uv_handle_t *)&n->timer);
	names_changed(n);
}

/* Stops the look-ups. The loop must run once more. A running search is left to end with the process. */
static void names_stop(struct unknown_names *n)
{
	uv_close((uv_handle_t *)&n->timer, NULL);
}

static void say(const char *state)
{
	int r = notify_send(state);

	if (r < 0)
		log_debug("cannot send %s to the service manager: %s", state, strerror(-r));
}

static void stop(struct daemon *d)
{
	say("STOPPING=1");
	uv_close((uv_handle_t *)&d->sigterm, NULL);
	uv_close((uv_handle_t *)&d->sigint, NULL);
	uv_close((uv_handle_t *)&d->sighup, NULL);
	uv_close((uv_handle_t *)&d->watchdog, NULL);
	uv_close((uv_handle_t *)&d->idle, NULL);
	job_events_stop(&d->events);
	names_stop(&d->names);
	metrics_stop(d->metrics);
	sensor_stop(d->sensor);
	assist_stop(d->assist);
	server_stop(d->server);
}

static void on_stop(uv_signal_t *handle, int number)
{
	log_info("%s: stopping", strsignal(number));
	stop(handle->data);
}

static void watch_idle(struct daemon *d);

static void on_idle(uv_timer_t *timer)
{
	struct daemon *d = timer->data;
	uint32_t limit_s = d->options->exit_when_idle_s;

	if (server_idle_ms(d->server) < limit_s * UINT64_C(1000)) {
		watch_idle(d);
		return;
	}
	log_info("no client for %u s: dieseld exits", limit_s);
	stop(d);
}

/* Checks again when the idle limit may have been reached, and not before: an unused daemon should rarely
 * wake up. */
static void watch_idle(struct daemon *d)
{
	uint64_t limit_ms = d->options->exit_when_idle_s * UINT64_C(1000),
		 idle_ms = server_idle_ms(d->server);

	if (limit_ms)
		uv_timer_start(&d->idle, on_idle, idle_ms < limit_ms ? limit_ms - idle_ms : 1, 0);
	else
		uv_timer_stop(&d->idle);
}

/* Applies everything that can change while serving. Open sessions keep their window and number of batches:
 * their order and memory depend on these. */
static void apply(struct daemon *d, struct daemon_options *new)
{
	char cache[16];

	cache_quotas_remember(&new->serve.quotas, &d->server->serving.cache.quotas);
	server_set_quotas(d->server, &new->serve.quotas);
	options_reload(d->options, new);
	serving_set_options(&d->server->serving, &d->options->serve);
	names_changed(&d->names);
	control_reconfigure(d->control, &new->settings, &new->serve.knobs);
	watch_idle(d);
	log_info("configuration read again: cache %s, prefetch %u chunk%s, %u worker%s",
		 units_format_bytes(cache, sizeof(cache), new->serve.knobs.cache_bytes),
		 new->serve.knobs.prefetch_chunks, units_plural(new->serve.knobs.prefetch_chunks),
		 new->serve.knobs.workers, units_plural(new->serve.knobs.workers));
}

static void note_taken(struct metrics_reloads *reloads)
{
	reloads->n_taken++;
	reloads->refused = false;
	reloads->taken_unix_ns = clock_realtime_ns();
}

static void on_reload(uv_signal_t *handle, int number)
{
	struct daemon *d = handle->data;
	struct error err = ERROR_INIT;
	struct daemon_options new;
	char state[80];
	int r;

	(void)number;
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		 clock_monotonic_ns() / NS_PER_US);
	say(state);
	r = options_init(&new, d->memory_bytes, d->n_cpus);
	new.settings.space.machine_bytes = d->options->settings.space.machine_bytes;
	if (r == 0)
		r = options_parse(&new, d->argc, d->argv, &err);
	if (r == 0) {
		apply(d, &new);
		note_taken(&d->reloads);
	} else {
		log_error("%s; the configuration stays as it was", err.text);
		d->reloads.n_refused++;
		d->reloads.refused = true;
	}
	options_free(&new);
	say("READY=1");
}

static void on_watchdog(uv_timer_t *timer)
{
	say("WATCHDOG=1");
}

static void start_signal(uv_loop_t *loop, uv_signal_t *handle, int number, uv_signal_cb callback,
			 struct daemon *d)
{
	uv_signal_init(loop, handle);
	handle->data = d;
	uv_signal_start(handle, callback, number);
}

/* Updates the metrics first: they count the measurements, whatever the tuner does with them. */
static void count_and_tune_second(void *user, const struct stall_node *node,
				  const struct stall_sample *samples, size_t n, uint64_t now_ns)
{
	struct daemon *d = user;

	metrics_totals_add(&d->totals, node, samples, n);
	d->tuning.second(d->tuning.user, node, samples, n, now_ns);
}

struct sensor_handler daemon_handler(struct daemon *daemon)
{
	daemon->tuning = control_handler(daemon->control);
	return (struct sensor_handler){.second = count_and_tune_second, .user = daemon};
}

static void start_metrics(struct daemon *d, uv_loop_t *loop, const struct metrics_sources *sources)
{
	const char *address = d->options->metrics;
	struct error err = ERROR_INIT;

	if (strcmp(address, "off") == 0) {
		closep(&d->metrics_fd);
		return;
	}
	if (metrics_start(loop, d->metrics_fd, address, sources, &d->metrics, &err) < 0)
		log_warning("%s: no metrics are served. Choose another --metrics, or off", err.text);
}

void daemon_start(struct daemon *d, uv_loop_t *loop)
{
	const struct metrics_sources sources = {.server = d->server,
						.totals = &d->totals,
						.control = d->control,
						.sensor = d->sensor,
						.assist = d->assist,
						.reloads = &d->reloads,
						.events = &d->events,
						.hide_names = &d->options->hide_names};
	uint64_t period_ms = notify_watchdog_us() / 2000;

	job_events_start(&d->events, d->server);
	names_start(&d->names, loop, d->server, &d->options->admin);
	note_taken(&d->reloads);
	start_signal(loop, &d->sigterm, SIGTERM, on_stop, d);
	start_signal(loop, &d->sigint, SIGINT, on_stop, d);
	start_signal(loop, &d->sighup, SIGHUP, on_reload, d);
	uv_timer_init(loop, &d->watchdog);
	uv_timer_init(loop, &d->idle);
	d->idle.data = d;
	watch_idle(d);
	if (period_ms)
		uv_timer_start(&d->watchdog, on_watchdog, period_ms, period_ms);
	start_metrics(d, loop, &sources);
}

void daemon_ready(const struct daemon *d)
{
	char state[160];

	snprintf(state, sizeof(state), "READY=1\nSTATUS=serving on %s", d->options->socket_path);
	say(state);
}
