/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "attachment.h"
#include "client/diesel.h"

/* A requested batch that is not delivered yet, and that is also requested from the next daemon. */
struct asked_numbers {
	uint32_t n, ahead;
	uint64_t samples[DIESEL_ASK_MAX];
};

struct diesel_session {
	char *socket_path;
	struct shown shown; /* the session's own: it may outlive its dataset object */
	uint64_t version;   /* version of the dataset: the order is valid only for this one */
	uint32_t reconnect_ms;
	struct wire_open_session request; /* window_chunks is the window in force */
	uint64_t n_batches, start_batch;
	uint64_t start_epoch; /* epoch whose first `start` samples are consumed, and whose first batch is
				 start_batch */
	uint32_t start;
	uint64_t n_samples;          /* number of samples of the dataset */
	struct asked_numbers *asked; /* NULL: the session has an order. Batch i is at i % RING_MAX_SLOTS... */
	uint64_t asked_end;          /* ... for index <= i < this */
	uint64_t asked_told;         /* the first request that the daemon has not received yet */
	struct subset *subset;       /* the session's own; NULL: all samples */
	char field[WIRE_FIELD_BYTES];  /* field to which the recipe applies; "": samples have no fields */
	uint64_t n_chunks;             /* chunks that the session visits */
	uint64_t epoch, index;         /* epoch and index of the next batch to deliver */
	struct attachment *attachment; /* NULL while the daemon is lost */
	uint64_t lives;                /* attachments so far */
	uint64_t lost_ns;              /* time when the daemon was lost */
	char error[512];
	char notice[512];
	bool has_notice;
	/* As last reported: repeated to each new life of the daemon. */
	struct diesel_work work;
	struct diesel_checkpoints checkpoints;
};

/* launcher/cluster_name.c. Returns the name of this session's job on all of its nodes: the caller's name,
 * else the launcher's. "": no name, or the job has no other ranks. -EINVAL. */
int session_cluster_name(const struct diesel_session_options *o, char ret[WIRE_CLUSTER_BYTES],
			 struct error *err);
/* Returns the number of nodes that the job runs on; 0: not known. */
uint32_t session_cluster_nodes(const struct diesel_session_options *o);
