/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of a dataset's chunks in the daemon's memory, one entry per chunk. The daemon writes it; clients
 * map it for reading, and so read whole, verified chunks in place, without a request. Nothing is pinned: the
 * daemon takes the entry away before the memory gets other contents. So a copy is right if the entry was the
 * same before and after it (a sequence lock): load it with residents_look(), copy, and compare with
 * residents_again().
 *
 * An entry is the segment's id (WIRE_SEGMENT) below the number of the chunk's stay in memory, which differs
 * for each stay of the dataset's chunks; 0: not in memory, or only some samples of it.
 *
 * The daemon cannot see such reads. So each client has memory of its own with one byte per chunk, which it
 * sets when it has read from the chunk (residents_use()). The daemon clears the bytes when it looks for
 * chunks to evict, and takes those that were set as used.
 */

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t resident_entry;
typedef _Atomic uint8_t resident_use;

static inline uint32_t resident_segment(uint64_t entry)
{
	return (uint32_t)entry;
}

static inline uint64_t residents_look(const resident_entry *entry)
{
	return atomic_load_explicit(entry, memory_order_acquire);
}

static inline uint64_t residents_again(const resident_entry *entry)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(entry, memory_order_relaxed);
}

/* Writes only once between two looks of the daemon, so that readers do not take the cache line from each
 * other. */
static inline void residents_use(resident_use *use)
{
	if (!atomic_load_explicit(use, memory_order_relaxed))
		atomic_store_explicit(use, 1, memory_order_relaxed);
}
