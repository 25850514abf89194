/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the activity of the machine's disks from /proc/diskstats. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct top_sample;

struct disk {
	char name[32];
	uint64_t reads, read_sectors, read_ms, writes, written_sectors, busy_ms, queue_ms;
};

/* counters at the last call of devices_sample(), for rates */
struct devices {
	struct disk *disks;
	size_t n;
	uint64_t at_ns;
};

/* Adds to the sample all disks with I/O since the machine started; none if /proc cannot be read. -ENOMEM. */
int devices_sample(struct devices *devices, const char *root, uint64_t now_ns, struct top_sample *sample);
static inline void devices_free(struct devices *devices)
{
	free(devices->disks);
	*devices = (struct devices){0};
}
