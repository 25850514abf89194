/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sensor's inside: sensor.c makes samples once a second, sensor_talk.c talks to the child. */

#include "sensor.h"
#include "sensor_job.h"
#include "sensor_message.h"
#include "daemon/node/sensor_node.h"

enum sensor_child_state {
	CHILD_NONE,     /* there is none, or it is of no use: not permitted, or its keeper died */
	CHILD_IDLE,     /* the keeper waits for START */
	CHILD_STARTING, /* START was sent */
	CHILD_WATCHING, /* READY came */
	CHILD_STOPPING, /* STOP was sent */
};

struct sensor {
	uv_loop_t *loop;
	struct serving *serving;
	struct sensor_options options;
	struct node_watch node;
	struct sensed_job *jobs;

	struct sensor_child child;
	enum sensor_child_state state;
	uint64_t retry_ns;         /* in CHILD_IDLE: do not start it before */
	uint64_t backoff_ns;       /* 0: the last watcher ended as asked */
	uint32_t n_unanswered;     /* ticks */
	bool hung;                 /* the keeper had to kill the watcher */
	struct sensor_status told; /* what the child reported, and what is known about it */

	uv_timer_t second, deadline;
	uv_poll_t readable;
	bool has_readable, running, awaits_reports, stopping;
	uint64_t idle_since_ns;
};

/* ---- sensor_talk.c ------------------------------------------------------------------------------------- */

/* The first job begins: the child is started a moment later. */
void talk_begin(struct sensor *s, uint64_t now_ns);
/* Starts the child, tells it of new jobs, and asks for reports. Returns true if reports will come. */
bool talk_tick(struct sensor *s, uint64_t now_ns);
void talk_remove(struct sensor *s, const struct sensed_job *job);
/* Has the child unload the BPF programs. */
void talk_stop(struct sensor *s);
/* Ends the keeper and forgets the child. */
void talk_end(struct sensor *s);
/* Handles messages; calls sensor_second_done() when all reports are there. */
void talk_readable(struct sensor *s);

/* ---- sensor.c ------------------------------------------------------------------------------------------ */

void sensor_second_done(struct sensor *s);
