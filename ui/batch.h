/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs diesel-top without a screen: writes one sample as JSON, or a table for each sample, to standard
 * output. */

struct error;
struct feed;
struct top_options;
struct top_recording_writer;

int batch_once(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	       struct error *err);
int batch_run(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	      struct error *err);
