/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Draws shares as bars and plots. Each share has a style of its own, or without colour a letter. */

#include "ui/state/history.h"
#include "screen.h"

/* Draws shares stacked from left to right, in `width` columns. If they are not known, draws only N/A. */
void bar_draw(struct screen *screen, int y, int x, int width, const double share[SHARE_COUNT]);

/* Draws a legend of styles and letters. If share is not NULL, adds the size of each: "fetch 12", ... */
void bar_legend(struct screen *screen, int y, int x, const double *share);
int bar_legend_cols(void);

/* Draws a column of `rows` lines for each sample, with the newest on the right. Stalls are at the bottom, so
 * that the possible gain stands out. series may be NULL. */
void bar_plot(struct screen *screen, int y, int x, int rows, int width, const struct history_series *series);

/* Computes how many of `total` cells each share gets. The numbers sum to total; the largest remainders are
 * rounded up. */
void bar_deal(const double share[SHARE_COUNT], int total, int ret_cells[SHARE_COUNT]);
