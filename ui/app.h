/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs diesel-top on a terminal, in one loop over keys, signals, the feed's work and the clock. */

struct error;
struct feed;
struct top_options;
struct top_recording_writer;

/* Runs until a key or a signal ends the program. *ret_signal: the signal, or 0 for a key. recording may be
 * NULL. 0 or -errno. */
int app_run(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	    int *ret_signal, struct error *err);
