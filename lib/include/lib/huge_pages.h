/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Huge pages (2 MiB) in shared memory (memfd). The kernel has none there unless an administrator switches
 * them on for all; but a process may ask for them, page by page (MADV_COLLAPSE, Linux 6.1). To fill memory in
 * huge pages takes a third of the time, and to read it for the first time a quarter: one page fault instead
 * of 32, and fewer misses of the TLB. What cannot be had is done with small pages: nothing here fails for
 * want of huge ones.
 *
 * A virtual machine whose host takes free memory back pays more: a free huge page is first to be had from the
 * host there, which takes milliseconds, while small ones come from what the system has used just before. Who
 * asks for cheap pages goes without for a while then, and tries again. Any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)

/* As mmap(NULL, bytes, prot, flags, fd, 0), at an address where the file's huge pages can be mapped whole. */
void *huge_map(int fd, uint64_t bytes, int prot, int flags);

/* Leaves memory out of a core, which goes to whoever looks after the node: for what has samples or names of
 * users in it. It need not be of huge pages; memory that is mapped there later is not meant. */
void huge_leave_out_of_core(const void *data, uint64_t bytes);

/* Asks for huge pages wherever a whole one lies between data and data + bytes, in memory that huge_map() has
 * mapped shared and for writing. Holes become zeros, all else stays as it is. cheap: only while they are. */
void huge_pages_make(uint8_t *data, uint64_t bytes, bool cheap);

/* As fd_write_at(), to shared memory: what covers a whole huge page of the file is written to one, while
 * these are cheap. */
int huge_write_at(int fd, const void *data, size_t bytes, uint64_t offset);
