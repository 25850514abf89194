/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "lib/sorted.h"
#include "ui/state/sample.h"

#define COLUMNS_MAX 32

int columns_find(const struct table_columns *columns, const char *key)
{
	for (size_t i = 0; i < columns->n; i++)
		if (!strcasecmp(columns->items[i].key, key) || !strcasecmp(columns->items[i].title, key))
			return (int)i;
	return -1;
}

static double number(const struct column *column, const void *item)
{
	const void *at = (const char *)item + column->offset;
	uint64_t count;

	if (column->value)
		return column->value(item);
	if (column->kind != COLUMN_COUNT)
		return *(const double *)at;
	count = *(const uint64_t *)at;
	return count == SAMPLE_UNKNOWN ? NAN : (double)count;
}

void column_text(const struct column *column, const void *item, char *buffer, size_t size)
{
	char text[FORMAT_BYTES] = "";

	switch (column->kind) {
	case COLUMN_TEXT: snprintf(buffer, size, "%s", (const char *)item + column->offset); return;
	case COLUMN_PERCENT: format_percent(text, number(column, item)); break;
	case COLUMN_SECONDS: format_seconds(text, number(column, item)); break;
	case COLUMN_BYTES: format_bytes(text, number(column, item)); break;
	case COLUMN_RATE: format_rate(text, number(column, item)); break;
	case COLUMN_COUNT:
		format_count(text, *(const uint64_t *)((const char *)item + column->offset));
		break;
	}
	snprintf(buffer, size, "%s", text);
}

static int compare_items(const struct table *table, const void *a, const void *b)
{
	const struct column *column = &table->columns->items[table->sort];
	double x, y;
	int r;

	if (column->kind == COLUMN_TEXT) {
		r = strcmp((const char *)a + column->offset, (const char *)b + column->offset);
		return table->invert ? -r : r;
	}
	x = number(column, a);
	y = number(column, b);
	if (isnan(x) || isnan(y))
		return isnan(x) - isnan(y);
	r = (x < y) - (x > y);
	return table->invert ? -r : r;
}

/* Uses a binary insertion sort, which is stable; the lists are short and mostly sorted already. */
void table_sort(struct table *table)
{
	for (size_t i = 1; i < table->n; i++) {
		const void *item = table->rows[i];
		size_t to;

		if (compare_items(table, table->rows[i - 1], item) <= 0)
			continue;
		to = sorted_count(i, k, compare_items(table, table->rows[k], item) <= 0);
		memmove(&table->rows[to + 1], &table->rows[to], (i - to) * sizeof(*table->rows));
		table->rows[to] = item;
	}
}

/* Finds the widths of the columns that fit; 0: the column is left out. */
static void fit(const struct table_columns *columns, int space, int widths[COLUMNS_MAX])
{
	int used = -1, growing = 0, rank_max = 0;

	for (size_t i = 0; i < columns->n; i++)
		if (columns->items[i].rank > rank_max)
			rank_max = columns->items[i].rank;
	memset(widths, 0, COLUMNS_MAX * sizeof(*widths));
	for (int rank = 0; rank <= rank_max; rank++)
		for (size_t i = 0; i < columns->n && i < COLUMNS_MAX; i++) {
			const struct column *column = &columns->items[i];

			if (column->rank != rank || (rank && used + 1 + column->width > space))
				continue;
			widths[i] = column->width;
			used += 1 + column->width;
			growing += column->grows;
		}
	for (size_t i = 0; i < columns->n && i < COLUMNS_MAX && growing; i++)
		if (widths[i] && columns->items[i].grows) {
			int share = (space - used) / growing;

			if (share > 0) {
				widths[i] += share;
				used += share;
			}
			growing--;
		}
}

static void draw_head(struct screen *screen, int y, const struct table *table, const int *widths)
{
	int x = 0;

	screen_style(screen, y, 0, screen->cols, STYLE_HEADING);
	for (size_t i = 0; i < table->columns->n && i < COLUMNS_MAX; i++) {
		const struct column *column = &table->columns->items[i];
		enum style style = i == table->sort && !table->passive ? STYLE_SELECTED : STYLE_HEADING;

		if (!widths[i])
			continue;
		if (style == STYLE_SELECTED)
			screen_style(screen, y, x, widths[i], style);
		if (column->kind == COLUMN_TEXT)
			screen_text(screen, y, x, widths[i], style, column->title);
		else
			screen_text_right(screen, y, x, widths[i], style, column->title);
		x += widths[i] + 1;
	}
}

static void draw_row(struct screen *screen, int y, const struct table *table, size_t row, const int *widths)
{
	const void *item = table->rows[row];
	enum style style = table->is_dim && table->is_dim(item) ? STYLE_DIM : STYLE_NORMAL;
	bool is_indented = false; /* the tree is shown in the first column that grows */
	int x = 0;

	if (row == table->cursor && !table->passive)
		style = STYLE_SELECTED;
	screen_style(screen, y, 0, screen->cols, style);
	for (size_t i = 0; i < table->columns->n && i < COLUMNS_MAX; i++) {
		const struct column *column = &table->columns->items[i];
		int indent = column->grows && !is_indented && table->depths ? 2 * table->depths[row] : 0;
		char text[512];

		if (!widths[i])
			continue;
		is_indented |= column->grows;
		column_text(column, item, text, sizeof(text));
		if (column->kind == COLUMN_TEXT)
			screen_text(screen, y, x + indent, widths[i] - indent, style, text);
		else
			screen_text_right(screen, y, x, widths[i], style, text);
		x += widths[i] + 1;
	}
}

int table_draw(struct screen *screen, int y, int rows, struct table *table)
{
	int widths[COLUMNS_MAX];
	size_t space = rows > 1 ? (size_t)rows - 1 : 0;

	if (rows < 1)
		return 0;
	if (table->n && table->cursor >= table->n)
		table->cursor = table->n - 1;
	if (table->cursor < table->top)
		table->top = table->cursor;
	if (space && table->cursor >= table->top + space)
		table->top = table->cursor - space + 1;
	if (table->n <= space)
		table->top = 0;
	fit(table->columns, screen->cols, widths);
	draw_head(screen, y, table, widths);
	for (size_t i = 0; i < space && table->top + i < table->n; i++)
		draw_row(screen, y + 1 + (int)i, table, table->top + i, widths);
	return (int)space;
}
