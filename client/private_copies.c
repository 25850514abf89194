/* SPDX-License-Identifier: Apache-2.0 */
#include "private_copies.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define WORTH_ASKING (1 << 20) /* threshold in bytes: below it, page faults cost less than the query */
#define REGIONS      32

/* linux/fs.h of Linux 6.7. */
struct page_region {
	uint64_t start, end, categories;
};

struct page_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN_PAGEMAP _IOWR('f', 16, struct page_scan)
#define IS_FILE      (UINT64_C(1) << 2)
#define IS_PRESENT   (UINT64_C(1) << 3)
#define IS_SWAPPED   (UINT64_C(1) << 4)

/* Drops the written pages that the kernel reports. Returns 0, or -1 if the kernel cannot report them. */
static int drop_known(uint64_t begin, uint64_t end)
{
	struct page_region regions[REGIONS];
	_cleanup_(closep) int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while (begin < end) {
		struct page_scan scan = {
		    .size = sizeof(scan),
		    .start = begin,
		    .end = end,
		    .vec = (uintptr_t)regions,
		    .vec_len = REGIONS,
		    .category_inverted = IS_FILE,
		    .category_mask = IS_FILE,
		    .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
		    .return_mask = IS_PRESENT | IS_SWAPPED,
		};
		int n = ioctl(fd, SCAN_PAGEMAP, &scan);

		if (n < 0 || scan.walk_end <= begin)
			return -1;
		for (int i = 0; i < n; i++)
			madvise((void *)(uintptr_t)regions[i].start, regions[i].end - regions[i].start,
				MADV_DONTNEED);
		begin = scan.walk_end;
	}
	return 0;
}

void private_copies_drop(void *data, size_t bytes)
{
	uint64_t begin = (uintptr_t)data;

	if (bytes < WORTH_ASKING || drop_known(begin, begin + bytes) < 0)
		madvise(data, bytes, MADV_DONTNEED);
}
