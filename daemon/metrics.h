/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's figures for Prometheus: GET /metrics over HTTP, in the text exposition format. Never labelled
 * by step, process or path. */

#include <stddef.h>
#include <uv.h>

#include "lib/error.h"

struct server;
struct metrics;

/* malloc'ed text of all figures; NULL: no memory. */
char *metrics_text(const struct server *server, size_t *ret_length);

/* -EINVAL: no ADDRESS:PORT. */
int metrics_check_address(const char *address, struct error *err);

/* Answers on address ("127.0.0.1:9467", "[::1]:9467") from the loop's thread. -EINVAL: no such address;
 * -EADDRINUSE and the like. */
int metrics_start(uv_loop_t *loop, const char *address, const struct server *server,
		  struct metrics **ret_metrics, struct error *err);

/* NULL is fine. The loop must run once more to close the handles. */
void metrics_stop(struct metrics *metrics);
