/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"
#include "lib/clock.h"
#include "protobuf.h"

/*
 * A Perfetto trace, written packet by packet and gzipped onto a stream. Track descriptors precede track
 * events, which must be in chronological order within each track. Field numbers are those of Perfetto's
 * protos/perfetto/trace, which never change. All times are CLOCK_MONOTONIC ns.
 */

/* A value shown with a slice. A list has at most PERFETTO_ARGUMENTS_MAX of them, and ends with a NULL name.
 */
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

#define SEQUENCE   1 /* sequence id of all packets, which have the same writer */
#define NAMES_MAX  64
#define GZIP_FLAGS (15 + 16) /* zlib's window bits: largest window, with a gzip header */

/* Field numbers, by message. */
enum { TRACE_PACKET = 1 };
enum {
	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE_ID = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED_DATA = 12,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_CLOCK_ID = 58,
	PACKET_TRACK_DESCRIPTOR = 60,
};
enum { SEQUENCE_CLEARED = 1, SEQUENCE_NEEDS_STATE = 2 };
enum { SNAPSHOT_CLOCKS = 1, SNAPSHOT_PRIMARY = 2, CLOCK_ID = 1, CLOCK_TIMESTAMP = 2 };
enum { CLOCK_IS_REALTIME = 1, CLOCK_IS_MONOTONIC = 3, CLOCK_IS_BOOTTIME = 6 };
enum {
	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_THREAD = 4,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,
	TRACK_ORDERING = 11,
	TRACK_RANK = 12,
};
enum { ORDERING_EXPLICIT = 3 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum { COUNTER_UNIT = 3, UNIT_COUNT = 2 };
enum {
	EVENT_ARGUMENT = 4,
	EVENT_KIND = 9,
	EVENT_NAME_IID = 10,
	EVENT_TRACK = 11,
	EVENT_VALUE = 30,
	EVENT_FLOW = 47,
	EVENT_FLOW_END = 48,
};
enum { KIND_BEGIN = 1, KIND_END = 2, KIND_INSTANT = 3, KIND_COUNTER = 4 };
enum { ARGUMENT_DOUBLE = 5, ARGUMENT_NAME = 10 };
enum { INTERNED_NAMES = 2, NAME_IID = 1, NAME_TEXT = 2 };

struct perfetto_trace {
	FILE *stream;
	z_stream zip;
	int error;
	struct protobuf packet, body, part; /* buffers of the packet in progress */
	char *names[NAMES_MAX];             /* interned names; a name's iid is its index + 1 */
	size_t n_names;
};

static void squeeze(struct perfetto_trace *trace, const uint8_t *bytes, size_t n, int flush)
{
	unsigned char out[16384];

	trace->zip.next_in = (unsigned char *)bytes;
	trace->zip.avail_in = (unsigned int)n;
	do {
		trace->zip.next_out = out;
		trace->zip.avail_out = sizeof(out);
		deflate(&trace->zip, flush);
		if (fwrite(out, 1, sizeof(out) - trace->zip.avail_out, trace->stream) !=
			sizeof(out) - trace->zip.avail_out &&
		    !trace->error)
			trace->error = errno ? -errno : -EIO;
	} while (!trace->zip.avail_out);
}

static void packet_begin(struct perfetto_trace *trace)
{
	protobuf_reset(&trace->packet);
	protobuf_reset(&trace->body);
	protobuf_reset(&trace->part);
}

static void packet_end(struct perfetto_trace *trace)
{
	struct protobuf framed = {0};

	protobuf_varint(&trace->packet, PACKET_SEQUENCE_ID, SEQUENCE);
	protobuf_message(&framed, TRACE_PACKET, &trace->packet);
	if (framed.failed && !trace->error)
		trace->error = -ENOMEM;
	if (!trace->error)
		squeeze(trace, framed.bytes, framed.n, Z_NO_FLUSH);
	protobuf_free(&framed);
}

static void add_clock(struct perfetto_trace *trace, uint64_t id, uint64_t at_ns)
{
	protobuf_reset(&trace->part);
	protobuf_varint(&trace->part, CLOCK_ID, id);
	protobuf_varint(&trace->part, CLOCK_TIMESTAMP, at_ns);
	protobuf_message(&trace->body, SNAPSHOT_CLOCKS, &trace->part);
}

static void write_clocks(struct perfetto_trace *trace, const struct clock_snapshot *snapshot)
{
	packet_begin(trace);
	add_clock(trace, CLOCK_IS_MONOTONIC, snapshot->monotonic_ns);
	if (snapshot->boottime_ns)
		add_clock(trace, CLOCK_IS_BOOTTIME, snapshot->boottime_ns);
	if (snapshot->realtime_ns)
		add_clock(trace, CLOCK_IS_REALTIME, snapshot->realtime_ns);
	protobuf_varint(&trace->body, SNAPSHOT_PRIMARY, CLOCK_IS_MONOTONIC);
	protobuf_message(&trace->packet, PACKET_CLOCK_SNAPSHOT, &trace->body);
	protobuf_varint(&trace->packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_CLEARED);
	packet_end(trace);
}

/* Starts a trace and writes the clocks, unless snapshot is all zeros. 0 or -ENOMEM. */
static int perfetto_trace_new(FILE *stream, const struct clock_snapshot *snapshot,
			      struct perfetto_trace **ret_trace)
{
	struct perfetto_trace *trace = calloc(1, sizeof(*trace));

	if (!trace || deflateInit2(&trace->zip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_FLAGS, 8,
				   Z_DEFAULT_STRATEGY) != Z_OK) {
		free(trace);
		return -ENOMEM;
	}
	trace->stream = stream;
	write_clocks(trace, snapshot);
	*ret_trace = trace;
	return 0;
}

/* Writes the rest, and frees the trace in any case. 0, -ENOMEM, or the stream's error. NULL is fine. */
static int perfetto_trace_finish(struct perfetto_trace *trace)
{
	int r;

	if (!trace)
		return 0;
	if (!trace->error)
		squeeze(trace, NULL, 0, Z_FINISH);
	deflateEnd(&trace->zip);
	r = trace->error;
	for (size_t i = 0; i < trace->n_names; i++)
		free(trace->names[i]);
	protobuf_free(&trace->packet);
	protobuf_free(&trace->body);
	protobuf_free(&trace->part);
	free(trace);
	return r;
}

static void add_text(struct perfetto_trace *trace, struct protobuf *buffer, uint32_t field, const char *text)
{
	char *utf8 = escape_utf8(text);

	if (utf8)
		protobuf_string(buffer, field, utf8);
	else
		trace->error = -ENOMEM;
	free(utf8);
}

/* Describes a track. If part_field is not 0, `part` holds the description of that kind of track. */
static void write_track(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name,
			uint32_t part_field, int rank)
{
	protobuf_varint(&trace->body, TRACK_UUID, uuid);
	if (parent)
		protobuf_varint(&trace->body, TRACK_PARENT, parent);
	if (name)
		add_text(trace, &trace->body, TRACK_NAME, name);
	if (part_field)
		protobuf_message(&trace->body, part_field, &trace->part);
	protobuf_varint(&trace->body, TRACK_ORDERING, ORDERING_EXPLICIT);
	protobuf_varint(&trace->body, TRACK_RANK, (uint64_t)rank);
	protobuf_message(&trace->packet, PACKET_TRACK_DESCRIPTOR, &trace->body);
	packet_end(trace);
}

/* Functions that describe tracks. Names may be untrusted. The caller chooses the uuids, which must not be 0.
 */
static void perfetto_process(struct perfetto_trace *trace, uint64_t uuid, uint32_t pid, const char *name,
			     int rank)
{
	packet_begin(trace);
	protobuf_varint(&trace->part, PROCESS_PID, pid);
	add_text(trace, &trace->part, PROCESS_NAME, name);
	write_track(trace, uuid, 0, NULL, TRACK_PROCESS, rank);
}

static void perfetto_thread(struct perfetto_trace *trace, uint64_t uuid, uint64_t process, uint32_t pid,
			    uint32_t tid, const char *name, int rank)
{
	packet_begin(trace);
	protobuf_varint(&trace->part, THREAD_PID, pid);
	protobuf_varint(&trace->part, THREAD_TID, tid);
	add_text(trace, &trace->part, THREAD_NAME, name);
	write_track(trace, uuid, process, NULL, TRACK_THREAD, rank);
}

static void perfetto_track(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name,
			   int rank)
{
	packet_begin(trace);
	write_track(trace, uuid, parent, name, 0, rank);
}

static void perfetto_counter(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name,
			     int rank)
{
	packet_begin(trace);
	protobuf_varint(&trace->part, COUNTER_UNIT, UNIT_COUNT);
	write_track(trace, uuid, parent, name, TRACK_COUNTER, rank);
}

/* Returns the name's id, or 0 if the table is full. If the name is new, the packet that is being made defines
 * it. */
static uint64_t intern(struct perfetto_trace *trace, const char *name)
{
	struct protobuf entry = {0}, data = {0};
	uint64_t iid;

	for (size_t i = 0; i < trace->n_names; i++)
		if (!strcmp(trace->names[i], name))
			return i + 1;
	if (trace->n_names == NAMES_MAX)
		return 0;
	trace->names[trace->n_names] = strdup(name);
	if (!trace->names[trace->n_names]) {
		trace->error = -ENOMEM;
		return 0;
	}
	iid = ++trace->n_names;
	protobuf_varint(&entry, NAME_IID, iid);
	protobuf_string(&entry, NAME_TEXT, name);
	protobuf_message(&data, INTERNED_NAMES, &entry);
	protobuf_message(&trace->packet, PACKET_INTERNED_DATA, &data);
	protobuf_free(&entry);
	protobuf_free(&data);
	return iid;
}

/* Writes the event. Its other fields are already in `body`. */
static void write_event(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, unsigned int kind,
			const char *name)
{
	uint64_t iid = name ? intern(trace, name) : 0;

	protobuf_varint(&trace->body, EVENT_KIND, kind);
	protobuf_varint(&trace->body, EVENT_TRACK, track);
	if (iid)
		protobuf_varint(&trace->body, EVENT_NAME_IID, iid);
	protobuf_varint(&trace->packet, PACKET_TIMESTAMP, at_ns);
	protobuf_varint(&trace->packet, PACKET_CLOCK_ID, CLOCK_IS_MONOTONIC);
	protobuf_message(&trace->packet, PACKET_TRACK_EVENT, &trace->body);
	protobuf_varint(&trace->packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_NEEDS_STATE);
	packet_end(trace);
}

static void perfetto_slice(struct perfetto_trace *trace, const struct perfetto_slice *slice)
{
	const struct perfetto_argument *argument = slice->arguments;

	packet_begin(trace);
	for (size_t i = 0; argument && i < PERFETTO_ARGUMENTS_MAX && argument->name; i++, argument++) {
		protobuf_reset(&trace->part);
		protobuf_string(&trace->part, ARGUMENT_NAME, argument->name);
		protobuf_double(&trace->part, ARGUMENT_DOUBLE, argument->value);
		protobuf_message(&trace->body, EVENT_ARGUMENT, &trace->part);
	}
	write_event(trace, slice->track, slice->begin_ns, KIND_BEGIN, slice->name);
	packet_begin(trace);
	write_event(trace, slice->track, slice->end_ns, KIND_END, NULL);
}

/* Writes an instant at which an arrow starts or, if `arrives`, ends. Each arrow has its own flow id. */
static void perfetto_arrow(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, const char *name,
			   uint64_t flow, bool arrives)
{
	packet_begin(trace);
	protobuf_fixed64(&trace->body, arrives ? EVENT_FLOW_END : EVENT_FLOW, flow);
	write_event(trace, track, at_ns, KIND_INSTANT, name);
}

static void perfetto_value(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, int64_t value)
{
	packet_begin(trace);
	protobuf_varint(&trace->body, EVENT_VALUE, (uint64_t)value);
	write_event(trace, track, at_ns, KIND_COUNTER, NULL);
}

/* Ids of tracks. Each kind has a range of its own; id 0 is reserved by Perfetto. */
enum track_base {
	TRACKS_OF_JOB = 1,
	TRACK_STEPS = 2,
	TRACK_WAITS = 3,
	TRACK_CHECKPOINTS = 4,
	TRACK_READY = 5,
	TRACKS_OF_PROCESSES = 1000,
	TRACKS_OF_LANES = 2000,
	TRACKS_OF_BATCHES = 3000,
	TRACKS_OF_GPU = 4000,
};

struct perfetto {
	struct perfetto_trace *trace;
	const struct analysis *analysis;
};

/* Returns the id of a lane's process: the first id for the trainer's process, else an id by the first lane of
 * the process. */
static uint64_t process_of(const struct perfetto *perfetto, size_t lane)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lane; i++)
		if (lanes->items[i].tgid == lanes->items[lane].tgid)
			return TRACKS_OF_PROCESSES + i;
	return TRACKS_OF_PROCESSES + lane;
}

static void declare_lanes(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lanes->n_items; i++) {
		const struct lane *lane = &lanes->items[i];
		uint64_t process = process_of(perfetto, i);

		if (process == TRACKS_OF_PROCESSES + i)
			perfetto_process(perfetto->trace, process, lane->tgid, lane->name, (int)i);
		perfetto_thread(perfetto->trace, TRACKS_OF_LANES + i, process, lane->tgid, lane->tid,
				lane->name, (int)(10 + i));
		if (lane->n_batches)
			perfetto_track(perfetto->trace, TRACKS_OF_BATCHES + i, process, "batches", 1);
		for (size_t k = 0; k < lanes->n_gpu_calls; k++)
			if (lanes->gpu_calls[k].lane == i) {
				perfetto_track(perfetto->trace, TRACKS_OF_GPU + i, process, "GPU waits", 5);
				break;
			}
	}
}

static void declare_job(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;
	uint64_t trainer = lanes && lanes->n_items ? TRACKS_OF_PROCESSES : 0;

	perfetto_track(perfetto->trace, TRACK_STEPS, trainer, "steps", 1);
	if (lanes && lanes->n_waits)
		perfetto_track(perfetto->trace, TRACK_WAITS, trainer, "data waits", 2);
	if (perfetto->analysis->checkpoints)
		perfetto_track(perfetto->trace, TRACK_CHECKPOINTS, trainer, "checkpoints", 3);
	if (lanes && lanes->n_levels)
		perfetto_counter(perfetto->trace, TRACK_READY, trainer, "ready batches", 4);
}

static double ms(uint64_t ns)
{
	return (double)ns / (double)NS_PER_MS;
}

static void write_steps(const struct perfetto *perfetto)
{
	for (size_t i = 0; i < perfetto->analysis->n_steps; i++) {
		const struct analysis_step *step = &perfetto->analysis->steps[i];
		const struct perfetto_argument arguments[] = {
		    {"number", (double)i + 1},
		    {"fetch_stall_ms", ms(step->share_ns[SHARE_FETCH_STALL])},
		    {"prep_stall_ms", ms(step->share_ns[SHARE_PREP_STALL])},
		    {"checkpoint_ms", ms(step->share_ns[SHARE_CHECKPOINT_STALL])},
		    {"cpu_starved_ms", ms(step->share_ns[SHARE_CPU_STARVED])},
		    {"compiling_ms", ms(step->share_ns[SHARE_COMPILING])},
		    {"device_ms", ms(step->share_ns[SHARE_DEVICE])},
		    {0},
		};

		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACK_STEPS, step->begin_ns, step->end_ns,
							step->complete ? "step" : "step, events lost",
							arguments});
	}
}

static void write_waits(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; lanes && i < lanes->n_waits; i++) {
		const struct lane_wait *wait = &lanes->waits[i];
		const struct perfetto_argument arguments[] = {
		    {"fetch_stall_ms", ms(wait->fetch_ns)},
		    {"prep_stall_ms", ms(wait->end_ns - wait->begin_ns - wait->fetch_ns)},
		    {0},
		};

		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACK_WAITS, wait->begin_ns, wait->end_ns,
							"data wait", arguments});
	}
}

static void write_checkpoints(const struct perfetto *perfetto)
{
	const struct checkpoint_report *report = perfetto->analysis->checkpoints;

	for (size_t i = 0; report && i < report->n_items; i++) {
		const struct checkpoint_item *item = &report->items[i];
		const struct perfetto_argument arguments[] = {
		    {"bytes", (double)item->bytes},
		    {"write_ms", ms(item->write_ns)},
		    {"fsync_ms", ms(item->fsync_ns)},
		    {"writeback_ms", ms(item->writeback_ns)},
		    {0},
		};

		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACK_CHECKPOINTS, item->begin_ns, item->end_ns,
							"checkpoint", arguments});
	}
}

static void write_lane(const struct perfetto *perfetto, size_t index)
{
	const struct lane *lane = &perfetto->analysis->lanes->items[index];

	for (size_t i = 0; i < lane->n_segments; i++) {
		const struct lane_segment *segment = &lane->segments[i];

		if (segment->state == LANE_IDLE) /* idle time is not shown */
			continue;
		perfetto_slice(perfetto->trace, &(struct perfetto_slice){
						    TRACKS_OF_LANES + index, segment->begin_ns,
						    segment->end_ns, lane_state_name(segment->state), NULL});
	}
	for (size_t i = 0; i < lane->n_batches; i++)
		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACKS_OF_BATCHES + index, lane->batches[i].begin_ns,
							lane->batches[i].end_ns, "batch", NULL});
}

static void write_gpu_calls(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lanes->n_gpu_calls; i++)
		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){
				   TRACKS_OF_GPU + lanes->gpu_calls[i].lane, lanes->gpu_calls[i].begin_ns,
				   lanes->gpu_calls[i].end_ns, lanes->gpu_calls[i].function, NULL});
}

static void write_wakes(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lanes->n_wakes; i++) {
		const struct lane_wake *wake = &lanes->wakes[i];

		perfetto_arrow(perfetto->trace, TRACKS_OF_LANES + wake->from, wake->waking_ns, "wakes", i + 1,
			       false);
		perfetto_arrow(perfetto->trace, TRACKS_OF_LANES + wake->to, wake->run_ns, "woken", i + 1,
			       true);
	}
	for (size_t i = 0; i < lanes->n_levels; i++)
		perfetto_value(perfetto->trace, TRACK_READY, lanes->levels[i].at_ns,
			       lanes->levels[i].n_ready);
}

int report_perfetto(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	static const struct clock_snapshot nothing;
	struct perfetto perfetto = {.analysis = analysis};
	int r;

	errno = 0;
	r = perfetto_trace_new(stream, source ? &source->clocks : &nothing, &perfetto.trace);
	if (r < 0)
		return r;
	if (analysis->lanes)
		declare_lanes(&perfetto);
	declare_job(&perfetto);
	write_steps(&perfetto);
	write_waits(&perfetto);
	write_checkpoints(&perfetto);
	for (size_t i = 0; analysis->lanes && i < analysis->lanes->n_items; i++)
		write_lane(&perfetto, i);
	if (analysis->lanes) {
		write_gpu_calls(&perfetto);
		write_wakes(&perfetto);
	}
	r = perfetto_trace_finish(perfetto.trace);
	if (r == 0 && (fflush(stream) || ferror(stream)))
		r = errno ? -errno : -EIO;
	return r;
}
