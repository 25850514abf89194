/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tables of samples: formats and compares the values of columns, and draws as many columns as fit. Pure. */

#include <stdbool.h>
#include <stddef.h>

#include "screen.h"

enum column_kind {
	COLUMN_TEXT, /* char[] */
	COLUMN_PERCENT,
	COLUMN_SECONDS,
	COLUMN_BYTES,
	COLUMN_RATE,
	COLUMN_COUNT, /* the value is a uint64_t; those of the other number kinds are doubles */
};

struct column {
	const char *key;   /* name of the column for -s, in lower case */
	const char *title; /* head of the column */
	enum column_kind kind;
	size_t offset;                     /* offset of the value in the item */
	double (*value)(const void *item); /* computes the value; NULL: the value is at offset */
	int width;                         /* smallest */
	int rank;            /* columns with the highest rank are left out first; 0: never left out */
	bool grows;          /* the column takes the remaining width */
	const char *meaning; /* explanation in the help */
};

struct table_columns {
	const struct column *items;
	size_t n;
	size_t item_size;
};

/* Rows, order and cursor of a list on the screen. */
struct table {
	const struct table_columns *columns;
	const void **rows; /* items, sorted */
	int *depths;       /* depths in the tree; NULL: no tree */
	size_t n;
	size_t sort; /* column */
	bool invert;
	size_t cursor, top;               /* row under the cursor; first row drawn */
	bool passive;                     /* has no cursor and is not sorted */
	bool (*is_dim)(const void *item); /* returns true for rows to draw pale; NULL: no such rows */
};

/* Returns the index of the column with this key; -1: none. */
int columns_find(const struct table_columns *columns, const char *key);

/* Writes the value of a column as text. size >= 64. */
void column_text(const struct column *column, const void *item, char *buffer, size_t size);

/* Sorts the rows: numbers descending, texts ascending, unknown values last. Stable. */
void table_sort(struct table *table);

/* Draws head and rows, scrolled so that the cursor is visible. Returns the number of rows that fit. */
int table_draw(struct screen *screen, int y, int rows, struct table *table);
