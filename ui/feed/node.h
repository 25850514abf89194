/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* State of the node's feed, private to feed_node.c. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"
#include "budget.h"
#include "feed.h"
#include "host.h"
#include "census.h"
#include "devices.h"
#include "gpus.h"
#include "ui/state/sample.h"

struct analysis;
struct live;
struct top_sample;
struct source;

struct node_job {
	pid_t root;
	uint64_t start_ticks;
	char id[48], name[160], user[32];
	struct analysis *analysis; /* the newest analysis; NULL: none yet */
	uint64_t analysed_ns;
	uint64_t cost_ns;  /* CPU time of the newest analysis */
	char problem[160]; /* why the job cannot be analysed; "": it can */
};

struct node {
	struct feed feed;
	struct source *source;
	bool sampled;
	char how[SAMPLE_ERROR_BYTES]; /* text for the header: the method in use, and the reason if it is not
					 the best one */
	struct live *live;
	struct census *census;
	struct node_job *jobs;
	size_t n_jobs;
	struct host host;
	struct devices devices;
	struct gpus gpus;
	struct node_task *tasks,
	    *tasks_new; /* the jobs' processes at the last sample and at this one, sorted by pid */
	size_t n_tasks, n_tasks_new;
	uint64_t tasks_sampled_ns;
	struct budget poll_budget, scan_budget;
	uint64_t analysis_ns; /* CPU time spent on analysis so far */
	double tokens_ns;     /* CPU time available for analysis; negative: analysis has to wait */
	uint64_t sampled_ns;  /* time of the last sample; 0: none */
	/* totals at the last sample, for rates */
	struct {
		uint64_t cpu_ns, bpf_ns, events, poll_ns, scan_ns, analysis_ns;
	} before;
};
