/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A Perfetto trace, written packet by packet and gzipped onto a stream. Track descriptors come first, then
 * track events, which must be in order of time within each track. Field numbers are those of Perfetto's
 * protos/perfetto/trace, which never change. All times are CLOCK_MONOTONIC ns.
 */

#include <stdint.h>
#include <stdio.h>

#include "lib/clock.h"
#include "protobuf.h"

struct perfetto_trace;

/* Starts a trace and writes the clocks, unless snapshot is all zeros. 0 or -ENOMEM. */
int perfetto_trace_new(FILE *stream, const struct clock_snapshot *snapshot,
		       struct perfetto_trace **ret_trace);

/* Writes what is left, and frees the trace in any case. 0, -ENOMEM, or the stream's error. NULL is fine. */
int perfetto_trace_finish(struct perfetto_trace *trace);

/* Tracks. Names may come from outside. The caller chooses the uuids, which are not 0. */
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
/* A moment at which an arrow starts or, with arrives, ends. Each arrow has a flow id of its own. */
void perfetto_arrow(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, const char *name,
		    uint64_t flow, bool arrives);
void perfetto_value(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, int64_t value);
