/* SPDX-License-Identifier: Apache-2.0 */
/* dieseld: the node's data daemon. */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/limits.h"
#include "lib/log.h"
#include "lib/sandbox.h"
#include "lib/units.h"
#include "daemon/run/options.h"
#include "daemon/run/options_table.h"
#include "daemon/sense/sensor.h"
#include "daemon/server/server.h"
#include "daemon/run/daemon.h"
#include "daemon/helpers/helper.h"
#include "lib/capabilities.h"

static void print_settings_that_apply(enum option_applies when, const char *title)
{
	printf(".SS %s\n", title);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		_cleanup_(freep) char *help = option_help_new(row);

		if (row->command || row->applies != when)
			continue;
		printf(".TP\n.B %s\n", row->name);
		option_print_text(stdout, ".IP", help ? help : row->help, true);
	}
}

static void print_file(void)
{
	fputs(
	    "# dieseld's configuration. Made from the table of options; see man dieseld.conf. A line with ; "
	    "in\n"
	    "# front shows the default, or an example where the default depends on the machine. After a "
	    "change:\n"
	    "#   dieseld --check-config --config /etc/diesel/dieseld.conf && systemctl reload dieseld\n"
	    "# As it is, dieseld tunes itself. A value from `dieselctl set` overrides this file until\n"
	    "# `dieselctl set --unset NAME`; `dieselctl status` names the source of each value.\n\n"
	    "[dieseld]\n",
	    stdout);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		_cleanup_(freep) char *text = option_about_new(row);

		if (row->command)
			continue;
		if (row->group)
			printf("\n# ---- %s ----\n", row->group);
		fputs("\n# ", stdout);
		option_print_text(stdout, "# ", text ? text : row->help, false);
		printf(";%s = %s\n", row->name, row->usual ? row->usual : row->example);
	}
}

/* Prints the options on standard output: "settings" (of dieseld.conf(5)) as roff, "file" (dieseld.conf),
 * or a form of option_print(). -ENOENT: no such form. */
static int options_print(const char *form)
{
	if (strcmp(form, "file") == 0) {
		print_file();
	} else if (strcmp(form, "settings") == 0) {
		print_settings_that_apply(OPTION_RELOAD, "Applied by a reload (SIGHUP)");
		print_settings_that_apply(OPTION_SESSIONS,
					  "Applied to datasets and sessions opened after a reload");
		print_settings_that_apply(OPTION_START, "Applied when dieseld restarts");
	} else {
		return option_print(stdout, &dieseld_program, form);
	}
	return 0;
}

static void print_capabilities(const struct helper_rights *r)
{
	static const struct {
		uint64_t bit;
		const char *name;
	} names[] = {{CAPABILITY(CAP_DAC_READ_SEARCH), "DAC_READ_SEARCH"},
		     {CAPABILITY(CAP_BPF), "BPF"},
		     {CAPABILITY(CAP_PERFMON), "PERFMON"},
		     {CAPABILITY(CAP_SYS_PTRACE), "SYS_PTRACE"},
		     {CAPABILITY(CAP_SYS_ADMIN), "SYS_ADMIN"},
		     {CAPABILITY(CAP_SYS_CHROOT), "SYS_CHROOT"},
		     {CAPABILITY(CAP_SETUID), "SETUID"},
		     {CAPABILITY(CAP_SETGID), "SETGID"},
		     {CAPABILITY(CAP_KILL), "KILL"},
		     {CAPABILITY(CAP_NET_BIND_SERVICE), "NET_BIND_SERVICE"}};
	const char *between = "";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(r->capabilities & names[i].bit))
			continue;
		printf("%s`%s`", between, names[i].name);
		between = ", ";
	}
	if (!*between)
		printf("none");
}

static void print_rights(const struct helper_row *row)
{
	printf("| `dieseld-%s` | %s | ", row->name, row->user ? row->user : "the daemon's");
	print_capabilities(&row->begins);
	printf(" | ");
	print_capabilities(&row->works);
	printf(" | %s |\n", row->may);
}

/* Prints a table of docs/explanation/security.md ("rights") or docs/reference/processes.md ("ends"). -EINVAL:
 * no such table. */
static int helper_print(const char *what)
{
	bool rights = strcmp(what, "rights") == 0;

	if (!rights && strcmp(what, "ends") != 0)
		return -EINVAL;
	puts(rights ? "| process | user | capabilities as it begins | at work | allowed actions |\n"
		      "|---|---|---|---|---|"
		    : "| process | in `ps` | effect of its death |\n|---|---|---|");
	for (size_t i = 0; i < HELPER_N_KINDS; i++) {
		const struct helper_row *row = &helper_rows[i];

		if (rights)
			print_rights(row);
		else
			printf("| `dieseld-%s` | `dieseld: %s` | %s |\n", row->name, helper_title_of(row),
			       row->end);
	}
	return 0;
}

static uint32_t count_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* Raises the limit on open files: every chunk in memory takes a descriptor. */
static void raise_file_limit(uint64_t cache_bytes)
{
	struct rlimit limit;
	uint64_t wanted = cache_bytes / (4u << 20) + 1024;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < wanted)
		log_warning("at most %llu files may be open, but a cache full of small chunks needs %llu. "
			    "Raise the limit (ulimit -n, LimitNOFILE=) to use all of --cache",
			    (unsigned long long)limit.rlim_cur, (unsigned long long)wanted);
}

static void announce(const struct daemon *daemon)
{
	const struct daemon_options *o = daemon->options;
	const struct server *s = daemon->server;
	char cache[16];
	ssize_t n = 0;

	if (s->io_why < 0)
		log_warning("io_uring is not available (%s): reading with threads", strerror(-s->io_why));
	log_info("cache %s, prefetch %u chunk%s, %u worker%s, reads by %s",
		 units_format_bytes(cache, sizeof(cache), o->serve.knobs.cache_bytes),
		 o->serve.knobs.prefetch_chunks, units_plural(o->serve.knobs.prefetch_chunks),
		 o->serve.knobs.workers, units_plural(o->serve.knobs.workers),
		 s->serving.cache.readers.use_uring ? "io_uring" : "threads");
	if (o->serve.observe)
		log_info("dieseld only observes and serves no jobs");
	log_info("ready on %s", s->socket_path);
	if (o->ready_fd >= 0) {
		n = write(o->ready_fd, "ready\n", 6);
		close(o->ready_fd);
	}
	if (n < 0)
		log_warning("nobody reads --ready-fd %d", o->ready_fd);
	daemon_ready(daemon);
}

/* Starts the sensor. Serving does not depend on it: without the sensor or its child, decisions only have less
 * data. */
static void start_sensing(struct daemon *daemon, uv_loop_t *loop)
{
	const struct sensor_options options = {.root = "",
					       .no_child =
						   daemon->child_problem[0] ? daemon->child_problem : NULL,
					       .handler = daemon_handler(daemon)};
	int r = sensor_new(loop, &daemon->server->serving, &daemon->sensor_keeper, &options, &daemon->sensor);

	if (r < 0)
		log_warning("jobs are not measured, so nothing is tuned: %s", strerror(-r));
}

static void start_assisting(struct daemon *daemon, uv_loop_t *loop)
{
	int r;

	if (daemon->assist_keeper.fd < 0)
		return;
	r = assist_start(loop, &daemon->assist_keeper, &daemon->assist);
	if (r < 0)
		log_warning("--assist: no files are prefetched: %s", strerror(-r));
}

static void start_sharing(struct daemon *daemon)
{
	int r = 0;

	if (daemon->cluster_keeper.fd >= 0)
		r = server_start_sharing(daemon->server, &daemon->cluster_keeper);
	if (r < 0)
		log_error("--cluster: this node reads all its chunks itself: %s", strerror(-r));
}

static int serve(struct daemon *daemon)
{
	const struct daemon_options *o = daemon->options;
	struct error err = ERROR_INIT;
	struct server server;
	uv_loop_t loop;
	int r = uv_loop_init(&loop);

	if (r < 0) {
		log_error("cannot make an event loop: %s", strerror(-r));
		return 1;
	}
	r = server_start(&server, &loop, o->socket_path, &o->serve, &daemon->fork_server, &daemon->items,
			 &err);
	fd_store_items_free(&daemon->items);
	if (r < 0) {
		log_error("%s", err.text);
		server_free(&server);
		uv_run(&loop, UV_RUN_DEFAULT); /* closes all handles */
		uv_loop_close(&loop);
		return 1;
	}
	if (strcmp(o->admin_socket, "off") && server_open_admin(&server, o->admin_socket, &err) < 0)
		log_error("--admin-socket: nobody can connect to it: %s", err.text);
	server.control = daemon->control;
	daemon->server = &server;
	start_sensing(daemon, &loop);
	start_assisting(daemon, &loop);
	start_sharing(daemon);
	control_start(daemon->control, &server.serving, daemon->sensor);
	control_assist(daemon->control, daemon->assist);
	daemon_start(daemon, &loop);
	announce(daemon);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	sensor_free(daemon->sensor);
	assist_free(daemon->assist);
	server_free(&server);
	return server.failed;
}

/* As fork_sensing(). Serving does not depend on other nodes. */
static void fork_cluster(struct daemon *daemon)
{
	struct error err = ERROR_INIT;

	daemon->cluster_keeper = FORK_SERVER_NONE;
	if (cluster_fork(&daemon->options->share, &daemon->cluster_keeper, &err) < 0)
		log_error("this node reads all its chunks itself: %s", err.text);
}

/* As fork_sensing(): runs before the first thread, and before dropping privileges. */
static void fork_assisting(struct daemon *daemon)
{
	struct error err = ERROR_INIT;

	daemon->assist_keeper = FORK_SERVER_NONE;
	if (daemon->options->assist &&
	    assist_fork(daemon->options->serve.observe, &daemon->assist_keeper, &err) < 0)
		log_warning("%s", err.text);
}

/* Called before the first thread starts: the child must have a single thread, and privileges are per
 * thread. */
static void fork_sensing(struct daemon *daemon)
{
	struct error err = ERROR_INIT;

	daemon->sensor_keeper = FORK_SERVER_NONE;
	if (settings_get(&daemon->options->settings, WIRE_SET_TUNE) == WIRE_TUNE_OFF) {
		snprintf(daemon->child_problem, sizeof(daemon->child_problem),
			 "tuning was off when dieseld started");
	} else if (sensor_fork(&daemon->sensor_keeper, &err) < 0) {
		snprintf(daemon->child_problem, sizeof(daemon->child_problem), "%s", err.text);
		log_warning("%s", err.text);
	}
	if (sensor_drop_privileges(&err) < 0)
		log_warning("%s", err.text);
}

static void load_codecs(struct daemon *daemon)
{
	struct daemon_options *o = daemon->options;
	struct plugins *p = &daemon->plugins;

	plugins_start(p, &daemon->fork_server, o->codecs, o->n_codecs);
	o->serve.plugins = p;
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->all[i].name[0])
			log_info("codec %s, from %s", p->all[i].name, p->all[i].path);
		else
			log_error("%s", p->all[i].problem.text);
	}
}

/* --check-config */
static int check(const struct daemon_options *o)
{
	struct error err = ERROR_INIT;

	if (options_check(o, &err) < 0) {
		log_error("%s", err.text);
		return 2;
	}
	puts("the configuration is valid");
	return 0;
}

static int tune_and_serve(struct daemon *daemon)
{
	struct error err = ERROR_INIT;
	const struct daemon_options *o = daemon->options;
	const struct control_options control = {.settings = o->settings,
						.knobs = o->serve.knobs,
						.socket = o->socket_path,
						.history = strcmp(o->history, "off") ? o->history : NULL,
						.history_max_bytes = o->history_max_bytes};
	int r;

	admin_choose(&o->admin);
	fork_assisting(daemon);
	fork_cluster(daemon);
	fork_sensing(daemon);
	r = fork_server_fork(&daemon->fork_server, &err);
	if (r < 0) {
		log_error("%s", err.text);
		return 1;
	}
	r = sandbox_filter(SANDBOX_DAEMON);
	if (r < 0)
		log_warning("this system refuses seccomp filters (%s): dieseld and its helper processes run "
			    "without them",
			    strerror(-r));
	load_codecs(daemon);
	r = control_new(&control, &daemon->control);
	if (r < 0) {
		log_error("cannot tune: %s", strerror(-r));
		return 1;
	}
	r = serve(daemon);
	control_free(daemon->control);
	plugins_free(&daemon->plugins);
	fork_server_end(&daemon->fork_server);
	return r;
}

int main(int argc, char **argv)
{
	struct error err = ERROR_INIT;
	struct limits limits;
	struct daemon_options options;
	int r;

	if (argc == 3 && strcmp(argv[1], "--print-options") == 0) /* used by the build */
		return options_print(argv[2]) < 0 ? 2 : 0;
	if (argc == 3 && strcmp(argv[1], "--print-helpers") == 0) /* used to make docs/ */
		return helper_print(argv[2]) < 0 ? 2 : 0;
	helper_titles(argc, argv);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL); /* the parent may have blocked SIGTERM */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* signal of broken leases: shared_memory_copy_is_held() */
	log_init("dieseld", LOG_LEVEL_INFO);
	limits_read("", &limits);
	if (options_init(&options, limits.memory_limit_bytes, count_cpus()) < 0)
		return 1;
	options.settings.space.machine_bytes = limits.machine_bytes;
	r = options_parse(&options, argc, argv, &err);
	if (r < 0) {
		log_error("%s", err.text);
		options_free(&options);
		return 2;
	}
	log_init("dieseld", options.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	if (options.show_help) {
		option_print_help(stdout, &dieseld_program, dieseld_program.self);
	} else if (options.show_version) {
		printf("dieseld %s\n", DIESEL_VERSION);
	} else if (options.check_only) {
		r = check(&options);
	} else {
		struct daemon daemon = {.options = &options,
					.argc = argc,
					.argv = argv,
					.memory_bytes = limits.memory_limit_bytes,
					.n_cpus = count_cpus()};

		if (limits.memory_limit_bytes && options.serve.knobs.cache_bytes > limits.memory_limit_bytes)
			log_warning("--cache is larger than the memory this process may use (%llu MiB)",
				    (unsigned long long)(limits.memory_limit_bytes >> 20));
		raise_file_limit(options.serve.knobs.cache_bytes);
		log_never_wait();
		/* Runs before the first fork: a child that inherits these descriptors would keep their
		 * memory allocated. */
		if (fd_store_take(&daemon.items) < 0)
			log_warning("out of memory: no chunks are restored after the restart");
		daemon.metrics_fd = fd_store_steal(&daemon.items, "metrics");
		r = tune_and_serve(&daemon);
	}
	options_free(&options);
	return r;
}
