/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads of the job in the window, by place and kind: sums over all threads of the job.
 *
 * A page is `accessed` each time a read or a fault looks it up, and `missed` when the access made the kernel
 * read it from storage. `cold_bytes` came from storage; `used_bytes` were returned by read calls or touched
 * by faults. An excess of cold over used bytes is unused read-ahead. O_DIRECT and sockets bypass the page
 * cache: their bytes are cold, and also count in `direct_bytes` and `network_bytes`.
 */

#include <stddef.h>
#include <stdint.h>

#define PAGE_CACHE_SIZES     24 /* read sizes: [k] counts reads of 2^k to 2^(k+1)-1 bytes; [0] has 0 and 1 */
#define PAGE_CACHE_TOP_FILES 16

struct page_cache_place {
	char *path; /* path of a file, or of a folder with "/" at the end; "?": not known. Never NULL */
	uint64_t accessed_pages, missed_pages;
	uint64_t used_bytes, cold_bytes;
	uint64_t n_reads;
};

/* Reads of files that are mapped into memory. */
struct page_cache_mapped {
	uint64_t n_major_faults, n_minor_faults;
	uint64_t fault_ns; /* thread-time in major faults */
	uint64_t read_ahead_pages;
	uint64_t n_read_aheads;
	double random_ratio; /* share of major faults that do not follow the previous one; NAN: no faults */
	uint64_t n_wakeups, n_context_switches; /* counts of the faulting threads, during faults */
};

struct page_cache {
	uint32_t page_bytes;
	uint64_t accessed_pages, missed_pages;
	uint64_t used_bytes, cold_bytes, direct_bytes, network_bytes;
	uint64_t n_reads; /* read calls, completed */
	uint64_t read_sizes[PAGE_CACHE_SIZES];
	struct page_cache_mapped mapped;
	struct page_cache_place *files; /* sorted by cold, then used bytes, descending */
	struct page_cache_place *folders;
	size_t n_files, n_folders;
};

/* Returns 1 - missed / accessed; NAN without accesses. */
double page_cache_hit_ratio(uint64_t accessed_pages, uint64_t missed_pages);

/* Returns the ratio of bytes read from storage to bytes used, if unused read-ahead makes a difference; 0
 * if the excess is too small to mention. */
double page_cache_excess(const struct page_cache *cache);

void page_cache_free(struct page_cache *cache);
