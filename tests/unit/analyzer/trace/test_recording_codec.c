/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "analyzer/trace/recording_codec.h"

static uint64_t random_state = 88172645463325252U;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Makes events like those of a job, with few threads and growing times and CPU time. */
static struct event *plausible_events(size_t n)
{
	struct event *events = calloc(n + 1, sizeof(*events));
	uint64_t now_ns = 1234567890123;

	assert_non_null(events);
	for (size_t i = 0; i < n; i++) {
		events[i] = (struct event){.end_ns = now_ns += random_next() % 50000,
					   .tid = 4000 + (uint32_t)(random_next() % 8),
					   .tgid = 4000,
					   .type = EVENT_SWITCH,
					   .cpu = (uint32_t)(random_next() % 4)};
		events[i].start_ns = events[i].end_ns - random_next() % 100000;
		events[i].sw.waking_ns = events[i].start_ns + 100;
		events[i].sw.exec_ns = i * 10000;
		events[i].sw.waker_tid = 4001;
		events[i].sw.state = 1;
	}
	return events;
}

static void check_round_trip(struct recording_codec *codec, const struct event *events, size_t n)
{
	_cleanup_(freep) struct event *decoded = NULL;
	const void *block;
	size_t size, n_decoded = 0;

	assert_int_equal(recording_codec_encode(codec, events, n, &block, &size), 0);
	assert_int_equal(recording_codec_decode(codec, block, size, &decoded, &n_decoded), 0);
	assert_int_equal(n_decoded, n);
	assert_memory_equal(decoded, events, n * sizeof(*events));
}

TEST(events_decode_as_encoded)
{
	struct recording_codec *codec = recording_codec_new();
	const size_t sizes[] = {1, 2, 1000, 8192, RECORDING_CODEC_EVENTS_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct event *events = plausible_events(sizes[i]);

		check_round_trip(codec, events, sizes[i]);
		free(events);
	}
	recording_codec_free(codec);
}

/* Nothing is assumed about the values: no order, no known type, not even that start is before end. */
TEST(any_bytes_survive)
{
	struct recording_codec *codec = recording_codec_new();
	struct event events[300];

	for (size_t i = 0; i < sizeof(events) / 8; i++)
		((uint64_t *)events)[i] = random_next();
	check_round_trip(codec, events, 300);
	memset(events, 0xff, sizeof(events));
	check_round_trip(codec, events, 300);
	recording_codec_free(codec);
}

TEST(events_take_a_fifth_of_their_size)
{
	struct recording_codec *codec = recording_codec_new();
	_cleanup_(freep) struct event *events = plausible_events(8192);
	const void *block;
	size_t size;

	assert_int_equal(recording_codec_encode(codec, events, 8192, &block, &size), 0);
	assert_true(size < 8192 * sizeof(*events) / 5);
	recording_codec_free(codec);
}

TEST(too_many_events_are_refused)
{
	struct recording_codec *codec = recording_codec_new();
	struct event *events = plausible_events(RECORDING_CODEC_EVENTS_MAX + 1), *decoded;
	const void *block;
	size_t size, n;

	assert_int_equal(recording_codec_encode(codec, events, RECORDING_CODEC_EVENTS_MAX + 1, &block, &size),
			 -EINVAL);
	assert_int_equal(recording_codec_encode(codec, events, 0, &block, &size), 0);
	assert_int_equal(recording_codec_decode(codec, block, size, &decoded, &n), -EBADMSG);
	free(events);
	recording_codec_free(codec);
}

TEST(every_flipped_bit_is_noticed)
{
	struct recording_codec *codec = recording_codec_new(), *reader = recording_codec_new();
	struct event *events = plausible_events(200), *decoded;
	const void *block;
	size_t size, n;

	assert_int_equal(recording_codec_encode(codec, events, 200, &block, &size), 0);
	_cleanup_(freep) uint8_t *copy = malloc(size);
	assert_non_null(copy);
	for (size_t bit = 0; bit < 8 * size; bit++) {
		memcpy(copy, block, size);
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (recording_codec_decode(reader, copy, size, &decoded, &n) == 0) {
			/* The bit is one that zstd does not use, so the events are the same. */
			assert_int_equal(n, 200);
			assert_memory_equal(decoded, events, n * sizeof(*events));
			free(decoded);
		}
	}
	for (size_t cut = 0; cut < size; cut++)
		assert_int_equal(recording_codec_decode(reader, block, cut, &decoded, &n), -EBADMSG);
	free(events);
	recording_codec_free(codec);
	recording_codec_free(reader);
}
