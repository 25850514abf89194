/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Input of the later parts of an analysis, once the shares are known. All pointers are borrowed. */

struct analysis_input;
struct timeline;
struct roles;
struct data_waits;
struct window;
struct service;
struct split;
struct partition;
struct analysis;
struct stack_samples;

/* Extends the recording to cover the window: the last records may be later than the stop of the recorder's
 * clock. */
void analysis_cover_window(struct analysis *analysis);

struct study {
	const struct analysis_input *input;
	const struct timeline *timeline;
	const struct roles *roles;
	const struct data_waits *waits;
	const struct window *window;
	const struct window *run; /* the part of the window that service covers */
	const struct service *service;
	const struct split *split;
	const struct partition *partition;
	const struct stack_samples *samples;
};
