/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's figures for Prometheus: GET /metrics over HTTP, in the text exposition format. Nothing is
 * labelled by step, process or path.
 *
 * Probes have /healthz, which is answered while the event loop runs, and /readyz: 503 and one line if
 * clients cannot connect. */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "lib/error.h"
#include "metrics_totals.h"

struct assist;
struct control;
struct job_events;
struct sensor;
struct server;
struct metrics_server;

/* Counts of reloads of the configuration (SIGHUP), by result. The start counts as the first reload. */
struct metrics_reloads {
	uint64_t n_taken, n_refused;
	bool refused; /* the last reload failed because of a mistake in the file */
	uint64_t taken_unix_ns;
};

/* Sources of the figures. All are borrowed. */
struct metrics_sources {
	const struct server *server;
	const struct metrics_totals *totals; /* NULL: no samples are taken */
	const struct control *control;       /* NULL: nothing is tuned */
	const struct sensor *sensor;         /* NULL: no sensor */
	const struct assist *assist;         /* NULL: --assist is off */
	const struct metrics_reloads *reloads;
	const struct job_events *events;
	const bool *hide_names; /* hides the names of users, programs, accounts and pods: anybody who reaches
				   the port can read the metrics */
};

/* Returns the text of all metrics, which the caller frees; NULL: no memory. */
char *metrics_text(const struct metrics_sources *sources, size_t *ret_length);

/* Checks an address. -EINVAL: it is not ADDRESS:PORT. */
int metrics_check_address(const char *address, struct error *err);

/* Answers from the loop's thread, on a socket that listens already (fd, which is taken over on success) or,
 * where that is negative, on address ("127.0.0.1:9467", "[::1]:9467"). -EINVAL: it is not an address;
 * -EADDRINUSE and the like. */
int metrics_start(uv_loop_t *loop, int fd, const char *address, const struct metrics_sources *sources,
		  struct metrics_server **ret_metrics, struct error *err);
/* Stops the server. Accepts NULL. The loop must run once more to close the handles. */
void metrics_stop(struct metrics_server *metrics);
