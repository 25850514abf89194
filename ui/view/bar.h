/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shares as pictures. Each share has a style of its own, and without colour a letter. */

#include "ui/state/history.h"
#include "screen.h"

/* Draws shares stacked from left to right, in `width` columns. If they are not known, draws only N/A. */
void bar_draw(struct screen *screen, int y, int x, int width, const double share[SHARE_COUNT]);

/* Explains the styles and letters. With share, adds the size of each: "fetch 12", ... */
void bar_legend(struct screen *screen, int y, int x, const double *share);
int bar_legend_cols(void);

/* Draws a column of `rows` lines for each sample, the newest on the right, stalls from the bottom up, so
 * that the possible gain stands out. series may be NULL. */
void bar_plot(struct screen *screen, int y, int x, int rows, int width, const struct history_series *series);

/* Computes how many of `total` cells each share gets. The numbers sum to total; the largest remainders are
 * rounded up. */
void bar_deal(const double share[SHARE_COUNT], int total, int ret_cells[SHARE_COUNT]);
