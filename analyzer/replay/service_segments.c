/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "analyzer/timeline/calls.h"
#include "lib/array.h"
#include "service.h"
#include "analyzer/shares/walk.h"

#define GROUP_GAP_NS UINT64_C(300000) /* longest gap between two file calls of one sample */

/* Reading from memory never sleeps; the fastest disks take longer than this. */
#define WAIT_MIN_NS UINT64_C(10000)

/* An interval of reading: a call, or a page fault on a mapped file. */
struct segment_reading {
	uint64_t begin_ns, end_ns;
	uint64_t bytes;
	uint32_t n_files;    /* opened */
	uint64_t compute_ns; /* computing between the calls of a recorded group */
};

struct cursor {
	const struct timeline_thread *thread;
	size_t call, off;
	uint64_t end_ns;
	uint64_t done_ns; /* end of the last read; the record of a whole fault includes its sleeps */
};

static bool call_reads(const struct timeline_call *call)
{
	return call_is_file_read(call) || call_is_socket(call) ||
	       (call_is_close(call) && call->file_type == EVENT_FILE_REG);
}

static bool next_reading(struct cursor *cursor, struct segment_reading *reading)
{
	const struct timeline_thread *thread = cursor->thread;
	const struct timeline_call *call = NULL;
	const struct timeline_off *off = NULL;

	while (cursor->call < thread->n_calls && thread->calls[cursor->call].begin_ns < cursor->end_ns &&
	       !call_reads(&thread->calls[cursor->call]))
		cursor->call++;
	if (cursor->call < thread->n_calls && thread->calls[cursor->call].begin_ns < cursor->end_ns)
		call = &thread->calls[cursor->call];
	while (cursor->off < thread->n_offs && thread->offs[cursor->off].begin_ns < cursor->end_ns &&
	       (!(thread->offs[cursor->off].flags & EVENT_FLAG_MAJOR_FAULT) ||
		thread->offs[cursor->off].begin_ns < cursor->done_ns))
		cursor->off++;
	if (cursor->off < thread->n_offs && thread->offs[cursor->off].begin_ns < cursor->end_ns)
		off = &thread->offs[cursor->off];
	if (!call && !off)
		return false;
	if (call && (!off || call->begin_ns <= off->begin_ns)) {
		*reading =
		    (struct segment_reading){.begin_ns = call->begin_ns,
					     .end_ns = call->end_ns,
					     .bytes = call_read_bytes(call),
					     .n_files = (uint32_t)call_opens(call),
					     .compute_ns = call->end_ns - call->begin_ns - call->busy_ns};
		cursor->call++;
	} else {
		*reading = (struct segment_reading){.begin_ns = off->begin_ns, .end_ns = off->end_ns};
		cursor->off++;
	}
	if (reading->end_ns > cursor->end_ns)
		reading->end_ns = cursor->end_ns;
	cursor->done_ns = reading->end_ns;
	return true;
}

static int segment_add(struct service *service, const struct model_segment *segment)
{
	if (array_reserve(service->segments, service->n_segments, service->n_segments_allocated) < 0)
		return -ENOMEM;
	service->segments[service->n_segments++] = *segment;
	return 0;
}

static int request_add(struct service *service, const struct timeline_thread *thread, uint64_t at_ns,
		       uint64_t wait_ns, uint64_t bytes)
{
	if (array_reserve(service->requests, service->n_requests, service->n_requests_allocated) < 0)
		return -ENOMEM;
	service->requests[service->n_requests++] =
	    (struct service_request){.request = {.at_ns = (double)at_ns,
						 .wait_ns = (double)wait_ns,
						 .bytes = (double)bytes,
						 .reader = thread->tid},
				     .segment = service->n_segments};
	return 0;
}

/* A thread that waits for a core while the job does not use all cores waits for another program, or is just
 * waking up. The replay itself reproduces the rest of the queue. */
uint64_t service_foreign_queue_ns(const struct service *service, const struct timeline_thread *thread,
				  uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t ns = 0;

	for (uint64_t at_ns = begin_ns; at_ns < end_ns;) {
		struct timeline_piece piece = timeline_piece_at(thread, at_ns, end_ns);

		if (piece.state == STATE_QUEUE)
			ns += piece.end_ns - piece.begin_ns -
			      cores_full(&service->cores, piece.begin_ns, piece.end_ns);
		at_ns = piece.end_ns;
	}
	return ns;
}

#define HELP_MIN 0.1 /* minimum fraction of the time; threads that compute less do something else */

/*
 * Adds the threads that help, while the thread computes or waits for them. Their time is subtracted from the
 * delay, which needs no core, and adds to the width of computing. Their waits for cores that the job itself
 * used are left out: the replay has waits of its own.
 */
static void add_help(struct service *service, uint64_t begin_ns, uint64_t end_ns,
		     struct model_segment *segment)
{
	double exec_ns = 0, longest_ns = 0, queue_ns = 0, own_ns = segment->compute_ns, helped_ns, n = 0;

	for (size_t i = 0; i < service->n_helpers; i++) {
		struct timeline_account help = timeline_account(service->helpers[i], begin_ns, end_ns);

		if (!help.exec_ns)
			continue;
		exec_ns += (double)help.exec_ns;
		longest_ns = fmax(longest_ns, (double)help.exec_ns);
		queue_ns += (double)help.queue_ns;
		queue_ns -= (double)service_foreign_queue_ns(service, service->helpers[i], begin_ns, end_ns);
		n++;
	}
	if (exec_ns < HELP_MIN * (double)(end_ns - begin_ns) || n < 1)
		return;
	helped_ns = fmin(segment->delay_ns, fmax(longest_ns, exec_ns / service->cores.n_cpus));
	segment->delay_ns = fmax(0, segment->delay_ns - helped_ns - fmax(0, queue_ns) / n);
	segment->compute_ns += helped_ns;
	segment->width = fmax(1, (own_ns + exec_ns) / fmax(1, segment->compute_ns));
	service->helpers_ns += exec_ns;
}

/* Adds a segment with computing in [begin_ns, group.begin_ns), then the group; an empty group ends the batch.
 */
static int segment_of(struct service *service, const struct timeline_thread *thread, uint64_t begin_ns,
		      const struct segment_reading *group)
{
	struct timeline_account before = timeline_account(thread, begin_ns, group->begin_ns);
	struct timeline_account within = timeline_account(thread, group->begin_ns, group->end_ns);
	uint64_t wait_ns = within.sleep_ns + within.block_ns;
	uint64_t compute_ns = group->compute_ns < within.exec_ns ? group->compute_ns : within.exec_ns;
	struct model_segment segment = {.compute_ns = (double)(before.exec_ns + compute_ns),
					.delay_ns = (double)(before.sleep_ns + before.block_ns),
					.fetch_cpu_ns = (double)(within.exec_ns - compute_ns),
					.size_bytes = (double)group->bytes};

	uint64_t foreign_ns = service_foreign_queue_ns(service, thread, begin_ns, group->begin_ns);
	uint64_t foreign_within_ns =
	    service_foreign_queue_ns(service, thread, group->begin_ns, group->end_ns);

	add_help(service, begin_ns, group->begin_ns, &segment);
	service->foreign_ns += foreign_ns;
	segment.delay_ns += (double)foreign_ns;
	/* A thread that did not sleep has no wake-up latency. */
	*(wait_ns < WAIT_MIN_NS ? &segment.delay_ns : &segment.latency_ns) += (double)foreign_within_ns;
	if (wait_ns < WAIT_MIN_NS) {
		segment.delay_ns += (double)wait_ns;
		wait_ns = 0;
	}
	segment.latency_ns += (double)wait_ns;
	if ((wait_ns > 0 || group->bytes > 0) &&
	    request_add(service, thread, group->begin_ns, wait_ns, group->bytes) < 0)
		return -ENOMEM;
	service->compute_ns += before.exec_ns + compute_ns;
	return segment_add(service, &segment);
}

int service_segments_add(const struct timeline_thread *thread, uint64_t begin_ns, uint64_t end_ns,
			 struct service *service, struct service_batch *batch)
{
	struct cursor cursor = {
	    .thread = thread, .call = timeline_call_from(thread, begin_ns), .end_ns = end_ns};
	const struct timeline_off *before = timeline_off_before(thread, begin_ns);
	struct segment_reading group = {0}, reading;
	uint64_t at_ns = begin_ns;

	cursor.off = before ? (size_t)(before - thread->offs) : 0;
	batch->first_segment = service->n_segments;
	while (next_reading(&cursor, &reading)) {
		if (reading.begin_ns < at_ns)
			reading.begin_ns = at_ns;
		if (reading.end_ns <= reading.begin_ns)
			continue;
		batch->n_files += reading.n_files;
		if (group.end_ns && reading.begin_ns < group.end_ns + GROUP_GAP_NS) {
			if (reading.end_ns > group.end_ns)
				group.end_ns = reading.end_ns;
			group.bytes += reading.bytes;
			group.compute_ns += reading.compute_ns;
			continue;
		}
		if (group.end_ns) {
			if (segment_of(service, thread, at_ns, &group) < 0)
				return -ENOMEM;
			at_ns = group.end_ns;
		}
		group = reading;
	}
	if (group.end_ns) {
		if (segment_of(service, thread, at_ns, &group) < 0)
			return -ENOMEM;
		at_ns = group.end_ns;
	}
	group = (struct segment_reading){.begin_ns = end_ns, .end_ns = end_ns};
	if (at_ns < end_ns && segment_of(service, thread, at_ns, &group) < 0)
		return -ENOMEM;
	batch->n_segments = service->n_segments - batch->first_segment;
	return 0;
}
