/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Huge pages (2 MiB) in shared memory (memfd). The kernel uses none there by default, but a process may
 * request them page by page (MADV_COLLAPSE, Linux 6.1). Filling memory in huge pages takes a third of the
 * time, and the first read a quarter: one page fault instead of 32, and fewer TLB misses. All functions fall
 * back to small pages, and none fails if there are no huge ones.
 *
 * In a virtual machine whose host reclaims free memory, huge pages cost more. The guest must first get a free
 * huge page from the host, which takes milliseconds, while small pages come from recently used memory.
 * Callers that request only cheap pages then get none for a while, until the next try. Any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)

/* Maps as mmap(NULL, bytes, prot, flags, fd, 0) does, at an address where the file's huge pages can be mapped
 * whole. */
void *huge_map(int fd, uint64_t bytes, int prot, int flags);

/* Excludes memory from core dumps, which administrators can read: for memory with samples or names of users,
 * with pages of any size. Memory mapped there later is not excluded. */
void huge_leave_out_of_core(const void *data, uint64_t bytes);

/* Requests huge pages wherever a complete one fits between data and data + bytes, in memory that
 * huge_map() mapped shared and writable. Holes become zeros, all other bytes stay unchanged. cheap: if true,
 * only while huge pages are cheap to allocate. */
void huge_pages_make(uint8_t *data, uint64_t bytes, bool cheap);

/* Writes as fd_write_at() does, to shared memory. Data that covers a whole huge page of the file goes to a
 * huge page, while these are cheap. */
int huge_write_at(int fd, const void *data, size_t bytes, uint64_t offset);
