/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/ring.h"
#include "lib/cleanup.h"

static struct ring_control *control_new(uint32_t n_slots)
{
	struct ring_control *c = aligned_alloc(64, sizeof(*c));

	assert_non_null(c);
	memset(c, 0, sizeof(*c));
	c->n_slots = n_slots;
	c->wake_below = n_slots / 2;
	return c;
}

TEST(the_layout_is_aligned_and_bounded)
{
	struct ring_layout packed = ring_layout(256, 4096), views = ring_layout(1, 0);
	struct ring_layout largest = ring_layout(1u << 20, UINT32_MAX);

	assert_int_equal(packed.labels_offset, 256 * 24);
	assert_int_equal(packed.payload_offset % 64, 0);
	assert_true(packed.payload_offset >= packed.labels_offset + 256 * 8);
	assert_true(packed.slot_bytes >= packed.payload_offset + 256 * 4096);
	assert_int_equal(packed.slot_bytes % 4096, 0);
	assert_int_equal(views.slot_bytes, 4096); /* space for an error text */
	assert_true(largest.slot_bytes > (uint64_t)UINT32_MAX << 20);
}

TEST(publish_and_ready)
{
	_cleanup_(freep) struct ring_control *c = control_new(4);
	struct ring_descriptor d = {.epoch = 1, .index = 2};
	uint32_t published = UINT32_MAX - 1, consumed = UINT32_MAX - 1; /* the counters wrap */

	atomic_store(&c->published, published);
	assert_int_equal(ring_ready(c, consumed), 0);
	for (uint32_t i = 0; i < 4; i++)
		ring_publish(c, &published, &d);
	assert_int_equal(ring_ready(c, consumed), 4);
	assert_int_equal(published, 2);
	assert_int_equal(c->descriptors[(RING_MAX_SLOTS - 2)].index, 2);
	assert_int_equal(c->descriptors[1].index, 2);
	/* A batch is ready, so there is no sleep. */
	assert_int_equal(ring_wait(c, consumed, 10000), 0);
	assert_int_equal(ring_wait(c, published, 1), -ETIMEDOUT);
}

TEST(kick_only_when_asked)
{
	_cleanup_(freep) struct ring_control *c = control_new(8);

	assert_false(ring_wants_kick(c, 0));
	ring_daemon_waits(c);
	assert_false(ring_wants_kick(c, 5)); /* plenty is ready */
	assert_true(ring_wants_kick(c, 4));
	assert_false(ring_wants_kick(c, 0)); /* the daemon was told already */
}

/* Two threads play daemon and client over a small ring. The client sleeps, and the daemon waits for slots. */
struct duel {
	struct ring_control *c;
	/* An eventfd, as a condition variable of glibc before 2.41 may lose a signal (its bug 25847). */
	int kicks;
	uint32_t rounds;
	uint64_t seen[RING_MAX_SLOTS]; /* the contents of the slots */
};

static void *play_daemon(void *argument)
{
	struct duel *d = argument;
	uint32_t published = 0;
	eventfd_t n_kicks;

	for (uint32_t i = 0; i < d->rounds; i++) {
		uint32_t slot = i % d->c->n_slots;
		struct ring_descriptor descriptor = {.index = i, .slot = slot};

		while (atomic_load(&d->c->slot_state[slot]) != RING_SLOT_FREE) {
			ring_daemon_waits(d->c);
			if (atomic_load(&d->c->slot_state[slot]) == RING_SLOT_FREE)
				break;
			eventfd_read(d->kicks, &n_kicks);
		}
		d->seen[slot] = i * 3;
		atomic_store(&d->c->slot_state[slot], RING_SLOT_HELD);
		ring_publish(d->c, &published, &descriptor);
	}
	return NULL;
}

static void tell_daemon(struct duel *d, uint32_t ready)
{
	if (ring_wants_kick(d->c, ready))
		eventfd_write(d->kicks, 1);
}

TEST(nothing_is_lost_between_two_sleepers)
{
	struct duel d = {.c = control_new(3), .kicks = eventfd(0, EFD_CLOEXEC), .rounds = 20000};
	pthread_t daemon;

	assert_int_equal(pthread_create(&daemon, NULL, play_daemon, &d), 0);
	for (uint32_t i = 0; i < d.rounds; i++) {
		struct ring_descriptor descriptor;

		while (ring_ready(d.c, i) == 0) {
			tell_daemon(&d, 0);
			/* A lost wake-up shows as a time-out. */
			assert_int_not_equal(ring_wait(d.c, i, 20000), -ETIMEDOUT);
		}
		descriptor = d.c->descriptors[i % RING_MAX_SLOTS];
		assert_int_equal(descriptor.index, i);
		assert_int_equal(d.seen[descriptor.slot], i * 3);
		ring_release(d.c, descriptor.slot);
		tell_daemon(&d, ring_ready(d.c, i + 1));
	}
	pthread_join(daemon, NULL);
	close(d.kicks);
	free(d.c);
}

TEST(the_farthest_cause_of_a_sleep_counts)
{
	assert_int_equal(ring_cause_of_both(RING_CAUSE_NONE, RING_CAUSE_PREP), RING_CAUSE_PREP);
	assert_int_equal(ring_cause_of_both(RING_CAUSE_STAGING, RING_CAUSE_PREP), RING_CAUSE_STAGING);
	assert_int_equal(ring_cause_of_both(RING_CAUSE_STAGING, RING_CAUSE_PEERS), RING_CAUSE_PEERS);
	assert_int_equal(ring_cause_of_both(RING_CAUSE_FETCH, RING_CAUSE_PEERS), RING_CAUSE_FETCH);
	assert_int_equal(ring_cause_of_both(RING_CAUSE_PREP, UINT32_MAX), RING_CAUSE_PREP);
	assert_false(ring_cause_fetches(RING_CAUSE_PREP));
	assert_false(ring_cause_fetches(RING_CAUSE_STAGING + 1));
	assert_true(ring_cause_fetches(RING_CAUSE_PEERS));
}
