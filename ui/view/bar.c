/* SPDX-License-Identifier: Apache-2.0 */
#include "bar.h"

#include <math.h>
#include <string.h>

#include "format.h"

struct look {
	char letter;
	enum style style;
	const char *name;
};

static const struct look looks[SHARE_COUNT] = {
    [SHARE_DEVICE] = {'d', STYLE_DEVICE, "device"},
    [SHARE_FETCH_STALL] = {'F', STYLE_FETCH, "fetch"},
    [SHARE_PREP_STALL] = {'P', STYLE_PREP, "prep"},
    [SHARE_CHECKPOINT_STALL] = {'C', STYLE_CHECKPOINT, "checkpoint"},
    [SHARE_CPU_STARVED] = {'S', STYLE_STARVED, "starved"},
    [SHARE_OTHER] = {'o', STYLE_OTHER, "other"},
    [SHARE_COMPILING] = {'K', STYLE_COMPILING, "compiling"},
};

/* Order of the shares, from the left or the bottom: stalls come first. */
static const enum analysis_share order[SHARE_COUNT] = {
    SHARE_FETCH_STALL, SHARE_PREP_STALL, SHARE_CHECKPOINT_STALL, SHARE_COMPILING, SHARE_CPU_STARVED,
    SHARE_OTHER,       SHARE_DEVICE};

static double positive(double value)
{
	return isfinite(value) && value > 0 ? fmin(value, 1e6) : 0;
}

void bar_deal(const double share[SHARE_COUNT], int total, int ret_cells[SHARE_COUNT])
{
	double sum = 0, rest[SHARE_COUNT];
	int given = 0;

	for (int i = 0; i < SHARE_COUNT; i++)
		sum += positive(share[i]);
	for (int i = 0; i < SHARE_COUNT; i++) {
		double exact = sum > 0 ? positive(share[i]) / sum * total : 0;

		ret_cells[i] = (int)exact;
		rest[i] = exact - ret_cells[i];
		given += ret_cells[i];
	}
	for (; sum > 0 && given < total; given++) {
		int best = 0;

		for (int i = 1; i < SHARE_COUNT; i++)
			if (rest[i] > rest[best])
				best = i;
		ret_cells[best]++;
		rest[best] = -1;
	}
}

static void draw_cell(struct screen *screen, int y, int x, enum analysis_share share)
{
	wchar_t character = (wchar_t)looks[share].letter;

	if (screen->charset.colour && screen->charset.unicode)
		character = L'█';
	screen_put(screen, y, x, looks[share].style, character);
}

static bool is_known(const double share[SHARE_COUNT])
{
	for (int i = 0; i < SHARE_COUNT; i++)
		if (isfinite(share[i]))
			return true;
	return false;
}

void bar_draw(struct screen *screen, int y, int x, int width, const double share[SHARE_COUNT])
{
	int cells[SHARE_COUNT];

	if (width < 3)
		return;
	screen_put(screen, y, x, STYLE_DIM, L'[');
	screen_put(screen, y, x + width - 1, STYLE_DIM, L']');
	if (!is_known(share)) {
		screen_text(screen, y, x + 1, width - 2, STYLE_DIM, "N/A");
		return;
	}
	bar_deal(share, width - 2, cells);
	x++;
	for (int i = 0; i < SHARE_COUNT; i++)
		for (int k = 0; k < cells[order[i]]; k++)
			draw_cell(screen, y, x++, order[i]);
}

int bar_legend_cols(void)
{
	int cols = 0;

	for (int i = 0; i < SHARE_COUNT; i++)
		cols += (int)strlen(looks[i].name) + 4;
	return cols - 2;
}

void bar_legend(struct screen *screen, int y, int x, const double *share)
{
	for (int i = 0; i < SHARE_COUNT; i++) {
		const struct look *look = &looks[order[i]];
		char percent[FORMAT_BYTES];

		draw_cell(screen, y, x, order[i]);
		x += 2;
		x +=
		    screen_text(screen, y, x, screen->cols - x, share ? STYLE_NORMAL : STYLE_DIM, look->name);
		if (share)
			x += screen_print(screen, y, x, screen->cols - x, STYLE_BOLD, " %s",
					  format_percent(percent, share[order[i]]));
		x += 2;
	}
}

void bar_plot(struct screen *screen, int y, int x, int rows, int width, const struct history_series *series)
{
	for (int column = 0; series && column < width; column++) {
		const struct top_history_point *point = history_point(series, (size_t)(width - 1 - column));
		double share[SHARE_COUNT];
		int cells[SHARE_COUNT], row = rows - 1;

		if (!point)
			continue;
		for (int i = 0; i < SHARE_COUNT; i++)
			share[i] = (double)point->share[i];
		if (!is_known(share)) {
			screen_put(screen, y + rows - 1, x + column, STYLE_DIM, L'.');
			continue;
		}
		bar_deal(share, rows, cells);
		for (int i = 0; i < SHARE_COUNT; i++)
			for (int k = 0; k < cells[order[i]]; k++)
				draw_cell(screen, y + row--, x + column, order[i]);
	}
}
