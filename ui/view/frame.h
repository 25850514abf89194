/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The whole picture: header, the view or what lies over it, and the line of keys. Pure. */

struct model;
struct screen;

#define FRAME_ROWS_MIN 8
#define FRAME_COLS_MIN 40

/* Clears and fills the screen, whatever its size. The model learns how many rows a page has. */
void frame_draw(struct model *model, struct screen *screen);
