/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample_fields.h"

struct sample *sample_new(void)
{
	struct sample *sample = calloc(1, sizeof(*sample));

	if (!sample)
		return NULL;
	sample->time_s = sample->interval_s = NAN;
	for (size_t i = 0; i < SAMPLE_OBJECTS; i++)
		fields_clear(&sample_objects[i], (char *)sample + sample_objects[i].items_offset);
	return sample;
}

static void **items_of(struct sample *sample, const struct field_table *table)
{
	return (void **)((char *)sample + table->items_offset);
}

static size_t *n_of(struct sample *sample, const struct field_table *table)
{
	return (size_t *)((char *)sample + table->n_offset);
}

struct sample *sample_free(struct sample *sample)
{
	if (!sample)
		return NULL;
	for (size_t i = 0; i < SAMPLE_LISTS; i++)
		free(*items_of(sample, &sample_lists[i]));
	free(sample);
	return NULL;
}

void *sample_add(struct sample *sample, enum sample_list list)
{
	const struct field_table *table = &sample_lists[list];
	void **items = items_of(sample, table);
	size_t *n = n_of(sample, table);
	char *item;

	/* Room doubles, so it is full whenever n is 0 or a power of two. */
	if (!(*n & (*n - 1))) {
		void *grown = reallocarray(*items, *n ? 2 * *n : 1, table->item_size);

		if (!grown)
			return NULL;
		*items = grown;
	}
	item = (char *)*items + *n * table->item_size;
	fields_clear(table, item);
	(*n)++;
	return item;
}

double sample_stall(const struct job_sample *job)
{
	return job->share[SHARE_FETCH_STALL] + job->share[SHARE_PREP_STALL] +
	       job->share[SHARE_CHECKPOINT_STALL] + job->share[SHARE_CPU_STARVED];
}

const struct job_sample *sample_job(const struct sample *sample, const char *id)
{
	for (size_t i = 0; i < sample->n_jobs; i++)
		if (!strcmp(sample->jobs[i].id, id))
			return &sample->jobs[i];
	return NULL;
}
