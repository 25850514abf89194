/* SPDX-License-Identifier: Apache-2.0 */
#include "devices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/proc.h"
#include "ui/state/sample.h"

#define SECTOR_BYTES 512.0 /* unit of the counters in diskstats, whatever the disk's sector size */
#define DISKS_MAX    256

/* Parses one line. Returns false if the disk has done no I/O, or the line is not one of diskstats. */
static bool parse(const char *line, struct disk *ret_disk)
{
	struct disk d = {0};
	unsigned int major, minor;

	if (sscanf(line,
		   " %u %u %31s %" SCNu64 " %*u %" SCNu64 " %" SCNu64 " %" SCNu64 " %*u %" SCNu64
		   " %*u %*u %" SCNu64 " %" SCNu64,
		   &major, &minor, d.name, &d.reads, &d.read_sectors, &d.read_ms, &d.writes,
		   &d.written_sectors, &d.busy_ms, &d.queue_ms) != 10)
		return false;
	if (!d.reads && !d.writes)
		return false;
	*ret_disk = d;
	return true;
}

static const struct disk *find(const struct devices *devices, const char *name)
{
	for (size_t i = 0; i < devices->n; i++)
		if (!strcmp(devices->disks[i].name, name))
			return &devices->disks[i];
	return NULL;
}

static int add(const struct disk *now, const struct disk *before, double s, struct top_sample *sample)
{
	struct device_sample *to = sample_add(sample, SAMPLE_DEVICES);

	if (!to)
		return -ENOMEM;
	snprintf(to->name, sizeof(to->name), "%s", now->name);
	snprintf(to->kind, sizeof(to->kind), "disk");
	/* The counters of a disk that was removed and inserted again start from zero. */
	if (!before || s <= 0 || now->reads < before->reads || now->busy_ms < before->busy_ms)
		return 0;
	to->read_bytes_per_s = (double)(now->read_sectors - before->read_sectors) * SECTOR_BYTES / s;
	to->write_bytes_per_s = (double)(now->written_sectors - before->written_sectors) * SECTOR_BYTES / s;
	to->reads_per_s = (double)(now->reads - before->reads) / s;
	if (now->reads > before->reads)
		to->await_s =
		    (double)(now->read_ms - before->read_ms) / 1e3 / (double)(now->reads - before->reads);
	to->queue = (double)(now->queue_ms - before->queue_ms) / 1e3 / s;
	to->busy_ratio = (double)(now->busy_ms - before->busy_ms) / 1e3 / s;
	return 0;
}

int devices_sample(struct devices *devices, const char *root, uint64_t now_ns, struct top_sample *sample)
{
	double s = devices->at_ns ? (double)(now_ns - devices->at_ns) / 1e9 : 0;
	_cleanup_(freep) char *text = NULL;
	struct disk *disks;
	size_t length, n = 0;
	char path[4200], *rest;
	int r = 0;

	snprintf(path, sizeof(path), "%s/diskstats", root);
	if (proc_read_file(path, 1 << 18, &text, &length))
		return 0;
	disks = calloc(DISKS_MAX, sizeof(*disks));
	if (!disks)
		return -ENOMEM;
	rest = text;
	for (const char *line; r == 0 && n < DISKS_MAX && (line = strsep(&rest, "\n"));)
		if (parse(line, &disks[n])) {
			r = add(&disks[n], find(devices, disks[n].name), s, sample);
			n++;
		}
	free(devices->disks);
	*devices = (struct devices){disks, n, now_ns};
	return r;
}
