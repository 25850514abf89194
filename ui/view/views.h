/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions that draw parts of the screen, each in rows [y, y + rows). Private to frame.c. */

#include "model.h"

/* Draws the table of the model's view, or message if it has no rows. */
void view_table(struct model *model, struct screen *screen, int y, int rows, const char *message);

/* Returns the daemon's socket if it serves jobs and is not the node's own daemon; else "". */
const char *view_daemon_place(const struct daemon_sample *d);

/* Draws a list without a cursor. */
void view_list(struct screen *screen, int y, int rows, const struct table_columns *columns, const void *items,
	       size_t n);

/* Draws a text on several lines, broken at blanks. Returns the lines used, at most rows. */
int view_text(struct screen *screen, int y, int x, int rows, int width, enum style style, const char *text);
