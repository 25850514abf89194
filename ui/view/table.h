/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tables of samples: the columns, how their values look and compare, and drawing as many as there is room
 * for. Pure. */

#include <stdbool.h>
#include <stddef.h>

#include "screen.h"

enum column_kind {
	COLUMN_TEXT, /* char[] */
	COLUMN_PERCENT,
	COLUMN_SECONDS,
	COLUMN_BYTES,
	COLUMN_RATE,
	COLUMN_COUNT, /* uint64_t; the others are double */
};

struct column {
	const char *key;   /* for -s; lower case */
	const char *title; /* head of the column */
	enum column_kind kind;
	size_t offset;                     /* of the value in the item */
	double (*value)(const void *item); /* instead of offset; NULL: offset */
	int width;                         /* smallest */
	int rank;                          /* the higher, the sooner it is left out; 0: never */
	bool grows;                        /* takes what room is left */
	const char *meaning;               /* for the help */
};

struct columns {
	const struct column *items;
	size_t n;
	size_t item_size;
};

/* What is shown of a list. */
struct table {
	const struct columns *columns;
	const void **rows; /* items, sorted */
	int *depths;       /* in the tree; NULL: no tree */
	size_t n;
	size_t sort; /* column */
	bool invert;
	size_t cursor, top;               /* row under the cursor; first one drawn */
	bool passive;                     /* has no cursor and is not sorted */
	bool (*is_dim)(const void *item); /* drawn pale; NULL: none */
};

/* -1: no such key. */
int columns_find(const struct columns *columns, const char *key);

/* size >= 64. */
void column_text(const struct column *column, const void *item, char *buffer, size_t size);

/* Numbers descending, texts ascending; unknown ones last. Stable in the order of the list. */
void table_sort(struct table *table);

/* Draws head and rows, scrolled so that the cursor is visible. Returns the number of rows that fit. */
int table_draw(struct screen *screen, int y, int rows, struct table *table);
