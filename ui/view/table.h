/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tables of samples: the columns, formatting and comparing their values, and drawing as many columns as fit.
 * Pure. */

#include <stdbool.h>
#include <stddef.h>

#include "screen.h"

enum column_kind {
	COLUMN_TEXT, /* char[] */
	COLUMN_PERCENT,
	COLUMN_SECONDS,
	COLUMN_BYTES,
	COLUMN_RATE,
	COLUMN_COUNT, /* type uint64_t; the others are double */
};

struct column {
	const char *key;   /* name for -s; lower case */
	const char *title; /* head of the column */
	enum column_kind kind;
	size_t offset;                     /* offset of the value in the item */
	double (*value)(const void *item); /* instead of offset; NULL: offset */
	int width;                         /* smallest */
	int rank;            /* columns of the highest rank are left out first; 0: never left out */
	bool grows;          /* takes the remaining width */
	const char *meaning; /* text for the help */
};

struct columns {
	const struct column *items;
	size_t n;
	size_t item_size;
};

/* Rows, order and cursor of a list on the screen. */
struct table {
	const struct columns *columns;
	const void **rows; /* items, sorted */
	int *depths;       /* depths in the tree; NULL: no tree */
	size_t n;
	size_t sort; /* column */
	bool invert;
	size_t cursor, top;               /* row under the cursor; first one drawn */
	bool passive;                     /* has no cursor and is not sorted */
	bool (*is_dim)(const void *item); /* drawn pale; NULL: none */
};

/* Returns the index of the column with this key; -1: none. */
int columns_find(const struct columns *columns, const char *key);

/* Writes the value of a column as text. size >= 64. */
void column_text(const struct column *column, const void *item, char *buffer, size_t size);

/* Sorts the rows: numbers descending, texts ascending, unknown values last. Stable. */
void table_sort(struct table *table);

/* Draws head and rows, scrolled so that the cursor is visible. Returns the number of rows that fit. */
int table_draw(struct screen *screen, int y, int rows, struct table *table);
