/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/huge_pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/kernel_calls.h"

#define PAGE_BYTES 4096
/* Time from which a huge page is expensive: its small pages take 0.7 to 0.9 ms. */
#define DEAR_NS NS_PER_MS
/* After an expensive huge page, wait REST times its duration before the next try. Bounds the cost to 1/16 of
 * the time. */
#define REST        16
#define NO_PAGES_NS NS_PER_S /* wait after a failed allocation before the next try */

static _Atomic uint64_t cheap_from_ns;

static uint64_t up(uint64_t at)
{
	return (at + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

void *huge_map(int fd, uint64_t bytes, int prot, int flags)
{
	uint64_t space = bytes + HUGE_PAGE_BYTES, before;
	uint8_t *all, *data;

	if (bytes < HUGE_PAGE_BYTES)
		return mmap(NULL, bytes, prot, flags, fd, 0);
	all = mmap(NULL, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED) /* maps without alignment: the address space may be limited */
		return mmap(NULL, bytes, prot, flags, fd, 0);
	before = up((uintptr_t)all) - (uintptr_t)all;
	data = mmap(all + before, bytes, prot, flags | MAP_FIXED, fd, 0);
	if (data == MAP_FAILED) {
		int error = errno;

		munmap(all, space);
		errno = error;
		return MAP_FAILED;
	}
	if (before > 0)
		munmap(all, before);
	bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	if (before + bytes < space)
		munmap(data + bytes, space - before - bytes);
	return data;
}

void huge_leave_out_of_core(const void *data, uint64_t bytes)
{
	(void)madvise((void *)(uintptr_t)data, bytes, MADV_DONTDUMP); /* never fails for mapped memory */
}

/* Collapses memory that is not empty into one huge page. Returns false if the memory stays in small pages. */
static bool collapse(void *data, bool cheap)
{
	uint64_t begin = clock_monotonic_ns(), took, rest = 0;
	bool done;

	if (cheap && begin < atomic_load_explicit(&cheap_from_ns, memory_order_relaxed))
		return false;
	done = kernel_collapse(data, HUGE_PAGE_BYTES) == 0;
	took = clock_monotonic_ns() - begin;
	if (!done)
		rest = NO_PAGES_NS;
	else if (took > DEAR_NS)
		rest = REST * took;
	if (rest > 0)
		atomic_store_explicit(&cheap_from_ns, begin + took + rest, memory_order_relaxed);
	return done;
}

void huge_pages_make(uint8_t *data, uint64_t bytes, bool cheap)
{
	uint8_t *end = data + bytes;

	for (data = (uint8_t *)up((uintptr_t)data); data + HUGE_PAGE_BYTES <= end; data += HUGE_PAGE_BYTES) {
		(void)*(volatile uint8_t *)data; /* touches the page, because a hole would stay a hole */
		if (!collapse(data, cheap))
			return;
	}
}

/* Writes the huge page at this offset. write() writes the first small page, so that a lack of memory is
 * reported as an error. */
static int write_one(int fd, const uint8_t *data, uint64_t offset)
{
	uint8_t *all, *at;
	size_t done = 0;
	int r = fd_write_at(fd, data, PAGE_BYTES, offset);

	if (r < 0)
		return r;
	all = mmap(NULL, 2 * HUGE_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all != MAP_FAILED) {
		at = mmap((void *)up((uintptr_t)all), HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
		if (at != MAP_FAILED && collapse(at, true)) {
			memcpy(at, data, HUGE_PAGE_BYTES);
			done = HUGE_PAGE_BYTES;
		}
		munmap(all, 2 * HUGE_PAGE_BYTES);
	}
	return done ? 0 : fd_write_at(fd, data, HUGE_PAGE_BYTES, offset);
}

int huge_write_at(int fd, const void *data, size_t bytes, uint64_t offset)
{
	const uint8_t *from = data;
	int r = 0;

	while (bytes > 0 && r == 0) {
		uint64_t border = up(offset + 1), n = border - offset;

		if (n > bytes)
			n = bytes;
		r = n == HUGE_PAGE_BYTES ? write_one(fd, from, offset) : fd_write_at(fd, from, n, offset);
		from += n;
		offset += n;
		bytes -= n;
	}
	return r;
}
