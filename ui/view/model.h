/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The display and the keys of diesel-top, without a terminal: takes samples and keys, and draws cells.
 * Pure: no clock, no I/O. frame_draw() (frame.h) draws it.
 */

#include <stdbool.h>
#include <stddef.h>

#include "ui/state/history.h"
#include "ui/state/sample.h"
#include "screen.h"

#include "table.h"

#define MODEL_INPUT_BYTES  80
#define MODEL_EXITED_S     10 /* time for which an ended job is shown, dimmed */
#define MODEL_INTERVAL_MIN 0.1
#define MODEL_INTERVAL_MAX 60.0

enum view {
	VIEW_JOBS,
	VIEW_WORKERS,
	VIEW_STORAGE, /* files and devices */
	VIEW_GPU,
	VIEW_DAEMON,
	VIEW_SELF,
	VIEW_COUNT,
};

enum overlay {
	OVERLAY_NONE,
	OVERLAY_HELP,
	OVERLAY_SETUP,
	OVERLAY_DETAIL,
};

enum prompt {
	PROMPT_NONE,
	PROMPT_SEARCH,
	PROMPT_FILTER,
	PROMPT_TIME, /* replay: asks for the time to jump to */
};

/* Keys that are not characters: values above Unicode's. */
enum model_key {
	MODEL_KEY_UP = 0x110000,
	MODEL_KEY_DOWN,
	MODEL_KEY_LEFT,
	MODEL_KEY_RIGHT,
	MODEL_KEY_PAGE_UP,
	MODEL_KEY_PAGE_DOWN,
	MODEL_KEY_HOME,
	MODEL_KEY_END,
	MODEL_KEY_BACKSPACE,
	MODEL_KEY_BACK_TAB,
	MODEL_KEY_F1, /* F2 ... F10 follow */
	MODEL_KEY_F10 = MODEL_KEY_F1 + 9,
};

/* Actions that the program must take after a key. */
enum model_action {
	MODEL_NOTHING,
	MODEL_REDRAW,
	MODEL_REFRESH, /* take a new sample now */
	MODEL_FORWARD, /* replay: move by one record */
	MODEL_BACKWARD,
	MODEL_FIRST,
	MODEL_LAST,
	MODEL_JUMP, /* replay: jump to the time in `input` */
	MODEL_QUIT,
};

struct model {
	struct charset charset;
	struct top_sample *sample; /* the latest sample; NULL: none yet */
	struct top_history history;
	enum view view;
	enum overlay overlay;
	enum prompt prompt;
	char input[MODEL_INPUT_BYTES]; /* text of the open prompt; after MODEL_JUMP the time */
	char filter[MODEL_INPUT_BYTES], search[MODEL_INPUT_BYTES];
	char selected[48]; /* job under the cursor */
	bool is_chosen;    /* the user moved the cursor, which stays on this job */
	size_t cursor[VIEW_COUNT], top[VIEW_COUNT];
	size_t sort[VIEW_COUNT];
	bool invert[VIEW_COUNT];
	size_t page;        /* number of rows of the table, as last drawn */
	size_t overlay_top; /* number of lines scrolled away at the top of the overlay */
	bool is_fleet;      /* the jobs are of many nodes (--nodes) */
	bool tree, threads, paused;
	double interval_s;
	bool is_replay, is_recording, at_end;
	size_t n_skipped;  /* number of damaged records in the replay */
	char message[160]; /* message in the last line until the next key; "": none */
};

void model_init(struct model *model, struct charset charset, double interval_s);
void model_destroy(struct model *model);

/* Takes over the sample, and adds to it jobs that ended less than MODEL_EXITED_S ago. On -ENOMEM, some of
 * these jobs are missing. */
int model_take(struct model *model, struct top_sample *sample);

/* Handles a key: a Unicode character or an enum model_key. */
enum model_action model_key(struct model *model, unsigned int key);

/* Switches to the columns for jobs of many nodes, sorted by time waited. Call it before or after such jobs
 * arrive. */
void model_set_fleet(struct model *model);

/* Returns the data that the view needs from the feed, an OR of enum feed_want. */
unsigned int model_wants(const struct model *model);

/* Returns the columns of the jobs view. */
const struct table_columns *model_job_columns(const struct model *model);

/* Sorts a view by the column with this key. -1: the view has no such column. */
int model_sort_by(struct model *model, enum view view, const char *key);

/* Builds the view's table, filtered and sorted, and sets its cursor. The caller frees it with
 * model_table_free(). -ENOMEM. */
int model_table(struct model *model, struct table *ret_table);
void model_table_free(struct table *table);

/* Returns the id of the job that a row of the view belongs to; "" if rows belong to no job. */
const char *model_item_job(enum view view, const void *item);

/* Returns the job under the cursor, or the job of the worker or file under it; NULL: none. */
const struct job_sample *model_selected(const struct model *model);
