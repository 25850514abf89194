/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Draws the whole screen: the header, the view or an overlay, and the line of keys. Pure. */

struct model;
struct screen;

#define FRAME_ROWS_MIN 8
#define FRAME_COLS_MIN 40

/* Clears and fills the screen, whatever its size. Sets model->page, the rows of the table. */
void frame_draw(struct model *model, struct screen *screen);
