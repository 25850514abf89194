/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A progress bar on standard error for long work: bar, share, rate and time left, redrawn at most ten
 * times per second. Draws nothing unless standard error is a terminal, so logs stay clean.
 */

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *label; /* borrowed */
	uint64_t total;    /* in units of work; 0: unknown, shows a count instead of a bar */
	uint64_t start_ns, drawn_ns;
	bool visible;
};

/* total: how many units of work (files, chunks) there are, 0 when that is not known. */
void progress_start(struct progress *p, const char *label, uint64_t total, uint64_t now_ns);

/* The bar follows done / total; bytes and bytes per second are shown beside it. */
void progress_update(struct progress *p, uint64_t done, uint64_t done_bytes, uint64_t now_ns);

/* Removes the bar from the screen. */
void progress_end(struct progress *p);
