/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session's tie to one life of the daemon: the socket, the mapped ring and slots, the chunk segments seen
 * so far, and the leases on its batches. Reference counted, because batches outlive both a daemon that dies
 * and a session that is closed; the last reference closes the socket, and with it the daemon drops all pins.
 *
 * Threads: attachment_unref() and lease_release() from any thread, everything else from one at a time.
 */

#include "client/ring.h"
#include "client/transport.h"
#include "segments.h"
#include "client/elsewhere/shown.h"

#include <stdatomic.h>
#include <sys/types.h>

struct subset;
struct diesel_dataset;
struct attachment;

struct lease {
	struct attachment *attachment;
	uint32_t slot, buffer;
	_Atomic bool held;
};

struct attachment {
	_Atomic uint32_t refs;
	_Atomic uint32_t n_held;
	struct transport transport;
	pid_t owner; /* process that opened the session */
	struct ring_control *control;
	uint8_t *buffers; /* n_buffers * slot_bytes, private copy-on-write */
	struct ring_layout layout;
	uint32_t n_slots, n_buffers;
	uint32_t batch;
	uint32_t item_bytes;
	uint32_t window_chunks;
	bool has_views; /* items locate stored samples */
	bool fits;      /* all of the dataset fits in the cache */
	uint32_t generation;
	uint32_t consumed; /* descriptors taken */
	uint64_t n_batches;
	char notice[240];
	struct lease leases[RING_MAX_SLOTS];
	struct diesel_item *items; /* views: n_slots * batch, with pointers */
	struct segment_table segments;
	uint64_t
	    life; /* number of this attachment in its session: distinguishes its memory from that of others */
	int batch_buffers_fd; /* memory of the batch buffers, for worker processes */
};

/* Connects, exchanges HELLO and opens the dataset. *ret_snapshot_fd is the daemon's copy of the snapshot, for
 * the caller to close. version: the version that the dataset must have; 0: any. */
int attachment_connect(const char *socket_path, const struct shown *shown, uint64_t version,
		       struct transport *ret, int *ret_snapshot_fd, struct error *err);

struct attachment_request {
	const struct wire_open_session *session;
	const struct subset *subset; /* NULL: all samples */
	const char *field;           /* to which the recipe applies; "": samples have no fields */
};

/* Opens the requested session on a fresh connection. */
int attachment_open(const char *socket_path, const struct shown *shown, uint64_t version,
		    const struct attachment_request *asked, struct attachment **ret, struct error *err);
void attachment_unref(struct attachment *a);
/* In a child after fork(): drops what the child inherited. If batches are held, their memory stays mapped. */
void attachment_forget(struct attachment *a);

/* Returns a new descriptor of the segment's memory, for the caller to close, and the segment's size. */
int attachment_segment_fd(struct attachment *a, uint32_t segment, int *ret_fd, uint64_t *ret_bytes,
			  struct error *err);

/* Notifies the daemon of a free slot, if the daemon waits for one and `ready` is low enough. Any thread. */
void attachment_kick(struct attachment *a, uint32_t ready);
void lease_release(struct lease *lease);
