/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shares as pictures. Each share has a style of its own, and without colour a letter. */

#include "history.h"
#include "screen.h"

/* Stacked from left to right, in `width` columns; shares that are not known leave it blank but for N/A. */
void bar_draw(struct screen *screen, int y, int x, int width, const double share[SHARE_COUNT]);

/* What the styles and letters mean, and how many columns that takes. With share: "fetch 12", ... */
void bar_legend(struct screen *screen, int y, int x, const double *share);
int bar_legend_cols(void);

/* One column a sample, the newest on the right, stalls from the bottom up, so that what can be won stands
 * out; one line each sample `rows` high. series may be NULL. */
void bar_plot(struct screen *screen, int y, int x, int rows, int width, const struct history_series *series);

/* How many of `total` cells each share gets: sums to total, largest remainders first. */
void bar_deal(const double share[SHARE_COUNT], int total, int ret_cells[SHARE_COUNT]);
