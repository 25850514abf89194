/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the serving path is told to do: the knobs that an operator sets and a tuner turns while sessions
 * run, and the entry that applies them.
 */

#include <stdbool.h>
#include <stdint.h>

struct serve_knobs {
	uint64_t cache_bytes;     /* segments, batch slots and snapshot copies together */
	uint32_t prefetch_chunks; /* read ahead of the windows that a session's next batch needs */
	uint32_t workers;         /* CPU threads that verify and gather */
};

struct serve_options {
	struct serve_knobs knobs;
	uint32_t window_chunks; /* default for sessions that do not ask for one */
	uint32_t n_slots;       /* batches that are kept ready, per session */
	bool use_io_uring;
};

struct server;

/* Takes effect at once; what no longer fits is given up as soon as nobody uses it. Loop thread only. */
void serve_apply_knobs(struct server *server, const struct serve_knobs *knobs);
