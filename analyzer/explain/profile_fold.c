/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of rows: more would be too small to see. */
#define LIBRARIES_MAX 64
#define FUNCTIONS_MAX 256
#define STACKS_MAX    2000

/* A row of a table: the texts that make it distinct, and its samples. */
struct row {
	char *name, *library, *caller;
	uint64_t n_samples;
};

struct rows {
	struct row *items;
	size_t n;
};

static int text_compare(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "");
}

static int row_compare(const void *left, const void *right)
{
	const struct row *a = left, *b = right;
	int r = text_compare(a->name, b->name);

	if (r == 0)
		r = text_compare(a->library, b->library);
	return r != 0 ? r : text_compare(a->caller, b->caller);
}

static int count_compare(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	if (a->n_samples != b->n_samples)
		return a->n_samples > b->n_samples ? -1 : 1;
	return row_compare(left, right);
}

static void row_free(struct row *row)
{
	free(row->name);
	free(row->library);
	free(row->caller);
}

static void rows_free(struct rows *rows)
{
	for (size_t i = 0; i < rows->n; i++)
		row_free(&rows->items[i]);
	free(rows->items);
}

/* Texts are copied; "" becomes NULL. */
static int rows_add(struct rows *rows, const char *name, const char *library, const char *caller, uint64_t n)
{
	struct row *row = &rows->items[rows->n++];

	*row = (struct row){.n_samples = n};
	row->name = strdup(name);
	if (library && *library)
		row->library = strdup(library);
	if (caller && *caller)
		row->caller = strdup(caller);
	return row->name && (!library || !*library || row->library) && (!caller || !*caller || row->caller)
		   ? 0
		   : -ENOMEM;
}

/* Merges rows of one name, keeping the most frequent of the callers, and sorts the largest first. */
static void rows_merge(struct rows *rows)
{
	size_t n = 0;

	qsort(rows->items, rows->n, sizeof(*rows->items), row_compare);
	for (size_t i = 0; i < rows->n;) {
		struct row merged = rows->items[i];
		uint64_t best = 0, sum = 0;
		size_t k = i, winner = i;

		while (k < rows->n && !text_compare(rows->items[k].name, merged.name) &&
		       !text_compare(rows->items[k].library, merged.library)) {
			size_t first = k;
			uint64_t of_caller = 0;

			for (; k < rows->n && !row_compare(&rows->items[k], &rows->items[first]); k++)
				of_caller += rows->items[k].n_samples;
			if (of_caller > best) {
				best = of_caller;
				winner = first;
			}
			sum += of_caller;
		}
		merged = rows->items[winner];
		for (size_t j = i; j < k; j++)
			if (j != winner)
				row_free(&rows->items[j]);
		merged.n_samples = sum;
		rows->items[n++] = merged;
		i = k;
	}
	rows->n = n;
	if (n)
		qsort(rows->items, rows->n, sizeof(*rows->items), count_compare);
}

static int items_take(struct rows *rows, size_t max, struct profile_item **ret_items, size_t *ret_n)
{
	size_t n = rows->n < max ? rows->n : max;
	struct profile_item *items = calloc(n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct row *row = &rows->items[i];

		items[i] = (struct profile_item){row->name, row->library, row->caller, row->n_samples};
		*row = (struct row){0};
	}
	*ret_items = items;
	*ret_n = n;
	return 0;
}

static int stacks_take(struct rows *rows, struct profile *profile)
{
	size_t n = rows->n < STACKS_MAX ? rows->n : STACKS_MAX;

	profile->stacks = calloc(n + 1, sizeof(*profile->stacks));
	if (!profile->stacks)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		profile->stacks[i] = (struct profile_stack){rows->items[i].name, rows->items[i].n_samples};
		rows->items[i].name = NULL;
	}
	profile->n_stacks = n;
	return 0;
}

static int rows_fill(const struct profile_metadata *metadata, const struct profile_group *groups,
		     size_t n_groups, struct rows *libraries, struct rows *functions, struct rows *stacks,
		     struct profile *profile)
{
	struct profile_label *label = malloc(sizeof(*label));
	int r = label ? 0 : -ENOMEM;

	for (size_t i = 0; i < n_groups && r == 0; i++) {
		uint64_t n = groups[i].n_samples;

		profile_label(metadata, &groups[i], label);
		profile_images_add(metadata, &groups[i], &profile->images);
		profile->n_samples += n;
		if (label->library[0])
			r = rows_add(libraries, label->library, NULL, label->caller, n);
		else
			profile->n_unknown += n;
		if (r == 0 && label->function[0])
			r = rows_add(functions, label->function, label->file, label->caller, n);
		if (r == 0)
			r = rows_add(stacks, label->frames, NULL, NULL, n);
	}
	free(label);
	return r;
}

int profile_fold(const struct profile_metadata *metadata, const struct profile_group *groups, size_t n_groups,
		 struct profile *profile)
{
	struct rows libraries = {0}, functions = {0}, stacks = {0};
	int r = -ENOMEM;

	libraries.items = calloc(n_groups + 1, sizeof(struct row));
	functions.items = calloc(n_groups + 1, sizeof(struct row));
	stacks.items = calloc(n_groups + 1, sizeof(struct row));
	if (libraries.items && functions.items && stacks.items)
		r = rows_fill(metadata, groups, n_groups, &libraries, &functions, &stacks, profile);
	if (r == 0) {
		rows_merge(&libraries);
		rows_merge(&functions);
		rows_merge(&stacks);
		r = items_take(&libraries, LIBRARIES_MAX, &profile->libraries, &profile->n_libraries);
	}
	if (r == 0)
		r = items_take(&functions, FUNCTIONS_MAX, &profile->functions, &profile->n_functions);
	if (r == 0)
		r = stacks_take(&stacks, profile);
	rows_free(&libraries);
	rows_free(&functions);
	rows_free(&stacks);
	return r;
}

static void items_free(struct profile_item *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(items[i].name);
		free(items[i].library);
		free(items[i].caller);
	}
	free(items);
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	items_free(profile->libraries, profile->n_libraries);
	items_free(profile->functions, profile->n_functions);
	for (size_t i = 0; i < profile->n_stacks; i++)
		free(profile->stacks[i].frames);
	free(profile->stacks);
	free(profile);
}
