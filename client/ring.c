/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_MASK  (RING_MAX_SLOTS - 1)
#define PAGE_BYTES UINT64_C(4096)

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) & ~(alignment - 1);
}

struct ring_layout ring_layout(uint32_t batch, uint32_t item_bytes)
{
	struct ring_layout layout;

	layout.labels_offset = align_up((uint64_t)batch * sizeof(struct ring_item), 64);
	layout.payload_offset = align_up(layout.labels_offset + (uint64_t)batch * sizeof(int64_t), 64);
	layout.slot_bytes = align_up(layout.payload_offset + (uint64_t)batch * item_bytes, PAGE_BYTES);
	return layout;
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void ring_publish(struct ring_control *control, uint32_t *counter, const struct ring_descriptor *descriptor)
{
	control->descriptors[*counter & RING_MASK] = *descriptor;
	(*counter)++;
	atomic_store(&control->published, *counter);
	if (atomic_load(&control->sleeping) && atomic_exchange(&control->sleeping, 0))
		futex(&control->published, FUTEX_WAKE, INT_MAX, NULL);
}

void ring_daemon_waits(struct ring_control *control)
{
	atomic_store(&control->daemon_waits, 1);
}

uint32_t ring_ready(const struct ring_control *control, uint32_t counter)
{
	return atomic_load_explicit(&control->published, memory_order_acquire) - counter;
}

int ring_wait(struct ring_control *control, uint32_t counter, uint32_t timeout_ms)
{
	struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
	int r = 0;

	atomic_store(&control->sleeping, 1);
	if (atomic_load(&control->published) == counter &&
	    futex(&control->published, FUTEX_WAIT, counter, &timeout) < 0 && errno != EAGAIN)
		r = -errno;
	atomic_store(&control->sleeping, 0);
	return r;
}

static bool change(struct ring_control *control, uint32_t slot, uint32_t from, uint32_t to)
{
	return atomic_compare_exchange_strong(&control->slot_state[slot], &from, to);
}

bool ring_take(struct ring_control *control, uint32_t slot)
{
	return change(control, slot, RING_SLOT_HELD, RING_SLOT_TAKEN);
}

void ring_revoke(struct ring_control *control, uint32_t slot)
{
	(void)change(control, slot, RING_SLOT_HELD, RING_SLOT_FREE);
}

void ring_release(struct ring_control *control, uint32_t slot)
{
	atomic_store(&control->slot_state[slot], RING_SLOT_FREE);
}

bool ring_wants_kick(struct ring_control *control, uint32_t ready)
{
	return atomic_load(&control->daemon_waits) && ready <= control->wake_below &&
	       atomic_exchange(&control->daemon_waits, 0);
}
