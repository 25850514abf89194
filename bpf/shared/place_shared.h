/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/* Sums of the job's reads. The kernel side (usage.h) adds to them, and the collector (places.c) removes
 * them. */

#include "bpf/event.h"

#define PLACE_NAME   56
#define READ_CLASSES 24 /* sizes of reads, by powers of two */

struct place_key {
	uint64_t inode;
	uint32_t device;
	uint32_t folder; /* 1: the inode is a folder's */
};

struct read_place {
	uint64_t accessed_pages, missed_pages;
	uint64_t n_reads, used_bytes, direct_bytes;
	uint64_t parent; /* inode of the folder; for the root of the file system its own inode */
	char name[PLACE_NAME];
};

struct job_totals {
	uint64_t accessed_pages, missed_pages;
	uint64_t n_minor_faults, n_major_faults, fault_ns;
	uint64_t n_reads, used_bytes, direct_bytes, network_bytes;
	uint64_t read_sizes[READ_CLASSES];
};

#ifndef __BPF__
_Static_assert(sizeof(struct place_key) == 16 && sizeof(struct read_place) == 104 &&
		   sizeof(struct job_totals) == 264,
	       "the BPF programs use this layout");
#endif
