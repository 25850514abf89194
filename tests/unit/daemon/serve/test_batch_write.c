/* SPDX-License-Identifier: Apache-2.0 */
/* A batch in its buffer has every byte of every sample, of any size, and no byte outside is written. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/serve/batch.h"
#include "lib/cleanup.h"

#define N_ITEMS 11
#define GUARD   0xa5

static void write_and_compare(uint32_t bytes)
{
	const struct ring_layout layout = {.labels_offset = N_ITEMS * sizeof(struct ring_item),
					   .payload_offset = N_ITEMS * (sizeof(struct ring_item) + 8)};
	size_t payload = (size_t)N_ITEMS * bytes, stride = bytes + 13;
	struct batch_item items[N_ITEMS];
	struct batch b = {.items = items, .n_items = N_ITEMS};
	_cleanup_(freep) uint8_t *source = malloc(N_ITEMS * stride),
				 *buffer = malloc(layout.payload_offset + payload + 1);
	const struct ring_item *head = (const struct ring_item *)buffer;
	const int64_t *labels = (const int64_t *)(buffer + layout.labels_offset);

	for (size_t i = 0; i < N_ITEMS * stride; i++)
		source[i] = (uint8_t)(i * 131 >> 3);
	for (uint32_t i = 0; i < N_ITEMS; i++)
		items[i] = (struct batch_item){.source = source + (i * 7 % N_ITEMS) * stride,
					       .sample = 1000 + i,
					       .location = 5,
					       .bytes = bytes,
					       .label = -(int32_t)i};
	memset(buffer, GUARD, layout.payload_offset + payload + 1);
	batch_write(&b, buffer, &layout, bytes);
	for (uint32_t i = 0; i < N_ITEMS; i++) {
		assert_memory_equal(buffer + layout.payload_offset + (size_t)i * bytes, items[i].source,
				    bytes);
		assert_int_equal(head[i].sample, 1000 + i);
		assert_int_equal(head[i].location, 0);
		assert_int_equal(head[i].bytes, bytes);
		assert_int_equal(labels[i], -(int64_t)i);
	}
	assert_int_equal(buffer[layout.payload_offset + payload], GUARD);
}

TEST(samples_of_any_size)
{
	static const uint32_t sizes[] = {1,    2,    63,   64,   65,   127,  784,   2048,
					 4095, 4096, 4097, 4160, 8191, 8192, 10000, 110000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		write_and_compare(sizes[i]);
}

TEST(views_are_not_copied)
{
	const struct ring_layout layout = {.labels_offset = sizeof(struct ring_item), .payload_offset = 64};
	struct batch_item item = {.sample = 3, .location = 77, .bytes = 9, .label = 4};
	struct batch b = {.items = &item, .n_items = 1};
	uint8_t buffer[128] = {0};

	batch_write(&b, buffer, &layout, 0); /* an absent source is not read */
	assert_int_equal(((const struct ring_item *)buffer)->location, 77);
	assert_int_equal(buffer[64], 0);
}
