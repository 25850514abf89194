/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A progress bar on standard error for long work: bar, share, rate and time left, redrawn at most ten
 * times per second. Draws nothing unless standard error is a terminal, so logs stay clean.
 */

#include <stdbool.h>
#include <stdint.h>

/* Reports the progress of long work. what: borrowed text, the same pointer during the same work; done, total:
 * units of work, such as files or chunks; total is 0 while not known; bytes: 0 if there are none to count. */
typedef void progress_callback(const char *what, uint64_t done, uint64_t total, uint64_t bytes,
			       void *context);

struct progress { /* {0} at first */
	const char *what;
	uint64_t start_ns, drawn_ns;
	bool visible;
};

/* A progress_callback, whose context is a struct progress. A new `what` begins a new bar. */
void progress_show(const char *what, uint64_t done, uint64_t total, uint64_t bytes, void *progress);

/* Removes the bar from the screen, for a line of text: the next progress_show() draws it again. */
void progress_hide(struct progress *p);

/* Removes the bar: the next progress_show() begins a new one. */
void progress_end(struct progress *p);
