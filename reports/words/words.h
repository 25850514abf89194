/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Words that are the same in every report for people. Each function fills the buffer and returns it. */

#include <stddef.h>

#include "analyzer/analysis.h"

/* The name and explanation of a share. */
struct share_label {
	enum analysis_share share;
	const char *name, *meaning;
	const char *class_name; /* CSS class in the HTML report */
};

/* All shares in the order of bars and tables, from harmful to desired. */
extern const struct share_label share_labels[SHARE_COUNT];

/* Verdict: "65 % of step time is stall: fetch 57, preprocess 7". */
char *words_verdict(char *buffer, size_t size, const struct analysis *analysis);

/* "Warm-up is left out: 3 steps, 12.2 s (fetch stall 92 %)."; "": no warm-up. */
char *words_warmup(char *buffer, size_t size, const struct analysis *analysis);

/* "12.2 s of the recording have no detail, because --detail allows only 1 MiB per minute; --detail all
 * records everything."; "" if all was recorded. */
char *words_unrecorded(char *buffer, size_t size, const struct analysis *analysis);

/* "Over all 70.2 s: compiling 66 %, device 30 %." if the shares that are shown leave out compiling; else "".
 */
char *words_whole(char *buffer, size_t size, const struct analysis *analysis);

/* "Compiling took 12.3 s, once. Validation: 2 passes, 3.1 s, including 1.2 s of data wait. 3 such steps are
 * left out." */
char *words_excluded(char *buffer, size_t size, const struct analysis *analysis);

/* "80 steps, 0 lost events, tool cost 1.0 % of one CPU", or "about 80 steps counted by data waits, ...": how
 * far the report can be trusted, and its cost. */
char *words_trust(char *buffer, size_t size, const struct analysis *analysis);

/* "approximate: sampled at 75 Hz without privilege, +/- 4 points"; "" for an exact report. */
char *words_approximate(char *buffer, size_t size, const struct analysis *analysis);

/* "Steps during a save took 1.2 s longer in total, apart from the stalls: cpu starved 0.9 s (interpreter lock
 * 0.4 s), fetch stall 0.3 s."; "" if that is within the noise. */
char *words_tail(char *buffer, size_t size, const struct analysis *analysis);

/* "A save costs training 70 ms, give or take 9 ms. To spend at most 5 % of the time on checkpoints: save one
 * every 42 steps (4.9 %)."; "" if nothing is known. */
char *words_interval(char *buffer, size_t size, const struct analysis *analysis);

/* "Loading a checkpoint took 1.2 s before the first step, 98 MiB read by calls."; "" if none was seen. */
char *words_restored(char *buffer, size_t size, const struct analysis *analysis);

/* "Predicted 1.60x faster (1.40 to 1.80); confidence: high" */
char *words_gain(char *buffer, size_t size, const struct analysis_action *action);

/* How the job loads its data: "worker processes load the data". */
const char *words_loader(const struct analysis *analysis);

/* Lists the parts that the recording lacks: "page cache, profile"; "" if none is missing. */
char *words_missing(char *buffer, size_t size, const struct analysis *analysis);
