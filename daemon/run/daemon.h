/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon as a service: signals, the service manager (sd_notify(3), its watchdog), the metrics endpoint,
 * the configuration, which SIGHUP reads again, and the exit of an unused daemon. A configuration with a
 * mistake changes nothing.
 */

#include <uv.h>

#include "daemon/assist/assist.h"
#include "daemon/control/control.h"
#include "job_events.h"
#include "metrics.h"
#include "options.h"
#include "daemon/sandboxed/plugin.h"
#include "daemon/sense/sensor.h"
#include "daemon/server/server.h"

/* The search for names that the machine does not know yet; loop thread only. */
struct unknown_names {
	struct server *server;
	struct admin_choice *admin;
	uv_timer_t timer;
	struct name_search *search; /* search in progress; NULL: none */
	uint32_t pause_s, left_s;
};

struct daemon {
	struct server *server;
	struct control *control;
	struct sensor *sensor; /* NULL: none */
	struct fork_server assist_keeper, cluster_keeper;
	struct assist *assist; /* NULL: none */
	struct sensor_handler tuning;
	struct fork_server sensor_keeper, fork_server;
	struct plugins plugins;
	struct fd_store_items items;    /* descriptors from the service manager */
	char child_problem[240];        /* why the sensor does not run, or "" */
	struct daemon_options *options; /* options in force; replaced by a reload */
	int argc;
	char **argv;
	uint64_t memory_bytes; /* memory size, for defaults */
	uint32_t n_cpus;
	int metrics_fd; /* listening socket from the service manager; < 0: none */
	struct metrics_server *metrics;
	struct metrics_totals totals; /* totals of the sensor's samples */
	struct metrics_reloads reloads;
	struct job_events events;
	struct unknown_names names;
	uv_signal_t sigterm, sigint, sighup;
	uv_timer_t watchdog, idle;
};

/* The handler for sensor_new(): samples go to the metrics and to the control. */
struct sensor_handler daemon_handler(struct daemon *daemon);

/* Called after server_start(), with the fields that it borrows filled in. If metrics cannot be served, that
 * is a warning: a port that is taken must not stop serving. */
void daemon_start(struct daemon *daemon, uv_loop_t *loop);

/* Tells the service manager that the daemon serves. */
void daemon_ready(const struct daemon *daemon);
