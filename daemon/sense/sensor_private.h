/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to this folder: sensor.c makes samples once a second, sensor_link.c communicates with the child. */

#include "sensor.h"
#include "sensor_message.h"
#include "sensor_sample.h"
#include "daemon/helpers/keeper.h"
#include "daemon/node/sensor_node.h"

enum sensor_child_state {
	CHILD_NONE,     /* no child, or the child is of no use: not permitted, or its keeper died */
	CHILD_IDLE,     /* the keeper waits for the order to start the child */
	CHILD_STARTING, /* the keeper was told to start a child, or starts another one */
	CHILD_WATCHING, /* READY came */
};

struct sensor {
	uv_loop_t *loop;
	struct serving *serving;
	struct sensor_options options;
	struct node_watch node;
	struct sensed_job *jobs;

	struct keeper keeper; /* valid if has_keeper */
	bool has_keeper;
	enum sensor_child_state state;
	uint64_t woken_ns;         /* when the first job began */
	uint64_t retry_ns;         /* in CHILD_IDLE: earliest time to start the child */
	uint32_t n_unanswered;     /* consecutive ticks without an answer */
	struct sensor_status told; /* reports of the child, and known facts about it */

	uv_timer_t second, deadline;
	bool running, awaits_reports, stopping;
	uint64_t idle_since_ns;
};

/* ---- sensor_link.c ------------------------------------------------------------------------------------- */

/* Starts the child a moment after the first job began, tells it of new jobs, and asks for reports. Returns
 * true if reports will come. */
bool link_tick(struct sensor *s, uint64_t now_ns);
void link_remove(struct sensor *s, const struct sensed_job *job);
/* Makes the child unload the BPF programs. */
void link_stop(struct sensor *s);
/* Handles events of the keeper, then messages of the child. Calls sensor_second_done() when all reports
 * have arrived. */
extern const struct keeper_handler link_handler;

/* ---- sensor.c ------------------------------------------------------------------------------------------ */

void sensor_second_done(struct sensor *s);
