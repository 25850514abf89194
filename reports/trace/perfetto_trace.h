/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A Perfetto trace, packet by packet, gzipped onto a stream: track descriptors first, then track events in
 * any order of time but with each track's own events in order. Field numbers are those of
 * protos/perfetto/trace of Perfetto, which never change. All times are CLOCK_MONOTONIC ns.
 */

#include <stdint.h>
#include <stdio.h>

#include "lib/clock.h"
#include "protobuf.h"

struct perfetto_trace;

/* Writes the clocks. -ENOMEM. snapshot may be of zeros: then the trace's own clock is all there is. */
int perfetto_trace_new(FILE *stream, const struct clock_snapshot *snapshot,
		       struct perfetto_trace **ret_trace);

/* Writes what is left; 0, -ENOMEM, or the stream's error. Frees in every case; NULL is fine. */
int perfetto_trace_finish(struct perfetto_trace *trace);

/* Tracks. Names may be from outside. uuids are the caller's, not 0. */
void perfetto_process(struct perfetto_trace *trace, uint64_t uuid, uint32_t pid, const char *name, int rank);
void perfetto_thread(struct perfetto_trace *trace, uint64_t uuid, uint64_t process, uint32_t pid,
		     uint32_t tid, const char *name, int rank);
void perfetto_track(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name, int rank);
void perfetto_counter(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name,
		      int rank);

/* A value shown with a slice; at most PERFETTO_ARGUMENTS_MAX, ended by a NULL name. */
#define PERFETTO_ARGUMENTS_MAX 8
struct perfetto_argument {
	const char *name;
	double value;
};

struct perfetto_slice {
	uint64_t track, begin_ns, end_ns;
	const char *name;
	const struct perfetto_argument *arguments; /* NULL: none */
};

void perfetto_slice(struct perfetto_trace *trace, const struct perfetto_slice *slice);
/* A moment that an arrow leaves (`arrives` false) or ends in. flow: an id of its own for each arrow. */
void perfetto_arrow(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, const char *name,
		    uint64_t flow, bool arrives);
void perfetto_value(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, int64_t value);
