/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sensor's inside: sensor.c makes samples once a second, sensor_talk.c talks to the child. */

#include "sensor.h"
#include "sensor_job.h"
#include "sensor_message.h"
#include "sensor_node.h"

enum sensor_child_state {
	CHILD_NONE,     /* there is none, or it is of no use: not permitted, its keeper died */
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
	uint64_t retry_ns;         /* CHILD_IDLE after a death: not before */
	uint64_t backoff_ns;       /* 0: the last one ended in peace */
	uint32_t n_unanswered;     /* ticks */
	bool hung;                 /* the keeper had to kill it */
	struct sensor_status told; /* by the child, and about it */

	uv_timer_t second, deadline;
	uv_poll_t readable;
	bool has_readable, running, awaits_reports, stopping;
	uint64_t idle_since_ns;
};

/* ---- sensor_talk.c ------------------------------------------------------------------------------------- */

/* Starts the child, tells it of jobs it does not know, and asks for reports. Returns true if some will come.
 */
bool talk_tick(struct sensor *s, uint64_t now_ns);
void talk_remove(struct sensor *s, const struct sensed_job *job);
/* Lets go of the programs. */
void talk_stop(struct sensor *s);
/* Ends the keeper and forgets the child. */
void talk_end(struct sensor *s);
/* When a message came: calls sensor_second_done() when all reports are there. */
void talk_readable(struct sensor *s);

/* ---- sensor.c ------------------------------------------------------------------------------------------ */

void sensor_second_done(struct sensor *s);
