/* SPDX-License-Identifier: Apache-2.0 */
#include "perfetto_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "escape.h"

#define SEQUENCE   1 /* all packets are of one writer */
#define NAMES_MAX  64
#define GZIP_FLAGS (15 + 16) /* largest window, gzip header */

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
	struct protobuf packet, body, part; /* of the packet that is being made */
	char *names[NAMES_MAX];             /* interned; iid is index + 1 */
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

int perfetto_trace_new(FILE *stream, const struct clock_snapshot *snapshot, struct perfetto_trace **ret_trace)
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

int perfetto_trace_finish(struct perfetto_trace *trace)
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

/* If part_field is given, `part` holds the description of that kind of track. */
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

void perfetto_process(struct perfetto_trace *trace, uint64_t uuid, uint32_t pid, const char *name, int rank)
{
	packet_begin(trace);
	protobuf_varint(&trace->part, PROCESS_PID, pid);
	add_text(trace, &trace->part, PROCESS_NAME, name);
	write_track(trace, uuid, 0, NULL, TRACK_PROCESS, rank);
}

void perfetto_thread(struct perfetto_trace *trace, uint64_t uuid, uint64_t process, uint32_t pid,
		     uint32_t tid, const char *name, int rank)
{
	packet_begin(trace);
	protobuf_varint(&trace->part, THREAD_PID, pid);
	protobuf_varint(&trace->part, THREAD_TID, tid);
	add_text(trace, &trace->part, THREAD_NAME, name);
	write_track(trace, uuid, process, NULL, TRACK_THREAD, rank);
}

void perfetto_track(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name, int rank)
{
	packet_begin(trace);
	write_track(trace, uuid, parent, name, 0, rank);
}

void perfetto_counter(struct perfetto_trace *trace, uint64_t uuid, uint64_t parent, const char *name,
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

/* The event's other fields are in `body` already. */
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

void perfetto_slice(struct perfetto_trace *trace, const struct perfetto_slice *slice)
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

void perfetto_arrow(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, const char *name,
		    uint64_t flow, bool arrives)
{
	packet_begin(trace);
	protobuf_fixed64(&trace->body, arrives ? EVENT_FLOW_END : EVENT_FLOW, flow);
	write_event(trace, track, at_ns, KIND_INSTANT, name);
}

void perfetto_value(struct perfetto_trace *trace, uint64_t track, uint64_t at_ns, int64_t value)
{
	packet_begin(trace);
	protobuf_varint(&trace->body, EVENT_VALUE, (uint64_t)value);
	write_event(trace, track, at_ns, KIND_COUNTER, NULL);
}
