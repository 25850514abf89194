/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_shape.h"

#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "lib/units.h"

#define BAR_CELLS 30

static unsigned size_class(uint32_t bytes)
{
	return bytes ? 32 - (unsigned)__builtin_clz(bytes) : 0;
}

static uint64_t round_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

static void add_chunk(const struct snapshot *s, const struct snapshot_chunk *chunk, struct shape *shape)
{
	uint64_t live = 0;

	for (uint64_t i = 0; i < chunk->n_samples; i++) {
		struct snapshot_sample sample;

		if (snapshot_sample_get(s, chunk->first_sample + i, &sample) < 0)
			continue; /* cannot happen: the snapshot was verified */
		live = round_up(live, CHUNK_SAMPLE_ALIGN) + sample.stored_bytes;
		shape->n_samples[size_class(sample.bytes)]++;
		shape->bytes[size_class(sample.bytes)] += sample.bytes;
	}
	uint64_t needed = chunk->payload_offset + round_up(live, CHUNK_ALIGN);

	if (chunk->file_bytes > needed) {
		shape->n_holes++;
		shape->hole_bytes += chunk->file_bytes - needed;
	}
}

struct rest {
	const struct snapshot *snapshot;
	uint64_t next; /* place in the chunk table: ids ascend in both */
	struct shape *shape;
};

static int add_rest(const struct meta_chunk *chunk, void *context)
{
	struct rest *rest = context;
	struct snapshot_chunk used;

	if (snapshot_chunk_get(rest->snapshot, rest->next, &used) == 0 &&
	    memcmp(&used.id, &chunk->id, sizeof(used.id)) == 0) {
		rest->next++;
		return 0;
	}
	rest->shape->n_rest++;
	rest->shape->rest_bytes += chunk->file_bytes;
	return 0;
}

static int take_oldest(const struct change *change, void *context)
{
	*(struct change *)context = *change;
	return 0;
}

void shape_collect(const struct snapshot *s, struct meta *meta, struct shape *ret)
{
	struct shape shape = {0};
	struct snapshot_chunk chunk;
	struct rest rest = {.snapshot = s, .shape = &shape};
	struct change newest = {0};

	for (uint64_t i = 0; snapshot_chunk_get(s, i, &chunk) == 0; i++)
		add_chunk(s, &chunk, &shape);
	shape.knows_rest = meta && meta_each_chunk(meta, add_rest, &rest, NULL) == 0;
	/* The newest entry says it, if no program that writes none came after it. */
	if (meta && meta_each_change(meta, take_oldest, &newest, NULL) == 0 &&
	    newest.version == snapshot_info(s)->version)
		shape.oldest = newest.oldest;
	*ret = shape;
}

static void print_size(unsigned i, const struct shape *shape, uint64_t most, uint64_t all)
{
	char from[24], below[24], bytes[24], range[64], bar[BAR_CELLS + 1];
	uint64_t n = shape->n_samples[i];
	int cells = (int)((n * BAR_CELLS + most - 1) / most);

	if (i == 0)
		snprintf(range, sizeof(range), "empty");
	else
		snprintf(range, sizeof(range), "%s to %s",
			 units_format_bytes(from, sizeof(from), (uint64_t)1 << (i - 1)),
			 units_format_bytes(below, sizeof(below), (uint64_t)1 << i));
	memset(bar, '#', (size_t)cells);
	bar[cells] = '\0';
	printf("  %-20s %-*s %5.1f %%  %llu, %s\n", range, BAR_CELLS, bar, 100.0 * (double)n / (double)all,
	       (unsigned long long)n, units_format_bytes(bytes, sizeof(bytes), shape->bytes[i]));
}

static void print_sizes(const struct shape *shape)
{
	unsigned first = SHAPE_SIZES, last = 0;
	uint64_t most = 0, all = 0;

	for (unsigned i = 0; i < SHAPE_SIZES; i++) {
		if (!shape->n_samples[i])
			continue;
		first = first < i ? first : i;
		last = i;
		most = most > shape->n_samples[i] ? most : shape->n_samples[i];
		all += shape->n_samples[i];
	}
	if (!all)
		return;
	puts("sizes");
	for (unsigned i = first; i <= last; i++)
		print_size(i, shape, most, all);
}

void shape_print(const struct ctl_verb *verb, const struct shape *shape, uint64_t version)
{
	struct error text = ERROR_INIT;
	char bytes[24];

	if (shape->n_holes)
		printf("holes     %s in %llu chunk%s, of deleted and replaced samples\n",
		       units_format_bytes(bytes, sizeof(bytes), shape->hole_bytes),
		       (unsigned long long)shape->n_holes, units_plural(shape->n_holes));
	else
		puts("holes     none");
	if (shape->n_rest)
		printf("unused    %llu chunk%s without a sample, %s\n", (unsigned long long)shape->n_rest,
		       units_plural(shape->n_rest),
		       units_format_bytes(bytes, sizeof(bytes), shape->rest_bytes));
	if (shape->oldest && shape->oldest < version)
		error_set(&text, 0, "versions  %llu to %llu can be read: `dieselctl log` lists them\n",
			  (unsigned long long)shape->oldest, (unsigned long long)version);
	ctl_print_advice(stdout, verb, text.text);
	print_sizes(shape);
}

void shape_print_json(const struct shape *shape)
{
	bool first = true;

	fputs("\"sizes\": [", stdout);
	for (unsigned i = 0; i < SHAPE_SIZES; i++) {
		if (!shape->n_samples[i])
			continue;
		printf("%s{\"from\": %llu, \"below\": %llu, \"samples\": %llu, \"bytes\": %llu}",
		       first ? "" : ", ", i ? 1ull << (i - 1) : 0ull, 1ull << i,
		       (unsigned long long)shape->n_samples[i], (unsigned long long)shape->bytes[i]);
		first = false;
	}
	printf("], \"holes\": {\"chunks\": %llu, \"bytes\": %llu}, ", (unsigned long long)shape->n_holes,
	       (unsigned long long)shape->hole_bytes);
	if (shape->knows_rest)
		printf("\"unused\": {\"chunks\": %llu, \"bytes\": %llu}, ", (unsigned long long)shape->n_rest,
		       (unsigned long long)shape->rest_bytes);
	else
		fputs("\"unused\": null, ", stdout);
	if (shape->oldest)
		printf("\"oldest_version\": %llu, ", (unsigned long long)shape->oldest);
	else
		fputs("\"oldest_version\": null, ", stdout);
}
