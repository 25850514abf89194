/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void view_table(struct model *model, struct screen *screen, int y, int rows, const char *message)
{
	struct table table;
	int page;

	if (rows < 1 || model_table(model, &table))
		return;
	if (!table.columns)
		return;
	page = table_draw(screen, y, rows, &table);
	model->page = page > 0 ? (size_t)page : 0;
	model->top[model->view] = table.top;
	if (!table.n && rows > 1)
		screen_text(screen, y + 1, 0, screen->cols, STYLE_DIM,
			    model->filter[0] ? "nothing matches the filter (F4 changes it)" : message);
	model_table_free(&table);
}

void view_list(struct screen *screen, int y, int rows, const struct table_columns *columns, const void *items,
	       size_t n)
{
	struct table table = {.columns = columns, .passive = true};

	table.rows = calloc(n + 1, sizeof(*table.rows));
	if (!table.rows)
		return;
	for (; table.n < n; table.n++)
		table.rows[table.n] = (const char *)items + table.n * columns->item_size;
	table_draw(screen, y, rows, &table);
	model_table_free(&table);
}

int view_text(struct screen *screen, int y, int x, int rows, int width, enum style style, const char *text)
{
	int line = 0;

	while (*text && line < rows && width > 0) {
		char piece[512];
		size_t n = 0, fits = 0;

		/* Takes as many whole words as fit. Cuts a word that is longer than a line. */
		while (text[n] && n < sizeof(piece) - 1) {
			n += strcspn(text + n, " ");
			if (n >= sizeof(piece))
				break;
			memcpy(piece, text, n);
			piece[n] = '\0';
			if (screen_text_width(piece, screen->charset) > width)
				break;
			fits = n;
			n += strspn(text + n, " ");
		}
		if (!fits)
			fits = strcspn(text, " ");
		snprintf(piece, sizeof(piece), "%.*s", (int)(fits < sizeof(piece) ? fits : sizeof(piece) - 1),
			 text);
		screen_text(screen, y + line++, x, width, style, piece);
		text += fits;
		text += strspn(text, " ");
	}
	return line;
}
