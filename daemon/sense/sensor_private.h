/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sensor's inside: sensor.c makes samples once a second, sensor_link.c talks to the child. */

#include "sensor.h"
#include "sensor_job.h"
#include "sensor_message.h"
#include "daemon/helpers/keeper.h"
#include "daemon/node/sensor_node.h"

enum sensor_child_state {
	CHILD_NONE,     /* there is none, or it is of no use: not permitted, or its keeper died */
	CHILD_IDLE,     /* the keeper waits to be told */
	CHILD_STARTING, /* it was, or starts another one */
	CHILD_WATCHING, /* READY came */
};

struct sensor {
	uv_loop_t *loop;
	struct serving *serving;
	struct sensor_options options;
	struct node_watch node;
	struct sensed_job *jobs;

	struct keeper keeper; /* unless CHILD_NONE from the beginning on: */
	bool has_keeper;
	enum sensor_child_state state;
	uint64_t retry_ns;         /* in CHILD_IDLE: do not start it before */
	uint32_t n_unanswered;     /* ticks */
	struct sensor_status told; /* what the child reported, and what is known about it */

	uv_timer_t second, deadline;
	bool running, awaits_reports, stopping;
	uint64_t idle_since_ns;
};

/* ---- sensor_link.c ------------------------------------------------------------------------------------- */

/* The first job begins: the child is started a moment later. */
void link_begin(struct sensor *s, uint64_t now_ns);
/* Starts the child, tells it of new jobs, and asks for reports. Returns true if reports will come. */
bool link_tick(struct sensor *s, uint64_t now_ns);
void link_remove(struct sensor *s, const struct sensed_job *job);
/* Has the child unload the BPF programs. */
void link_stop(struct sensor *s);
/* What the keeper tells. Messages of the child's are handled from then on; they call sensor_second_done()
 * when all reports are there. */
extern const struct keeper_handler link_handler;

/* ---- sensor.c ------------------------------------------------------------------------------------------ */

void sensor_second_done(struct sensor *s);
