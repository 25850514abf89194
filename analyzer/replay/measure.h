/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One trainer's measurement: the roles of the threads around it, its waits, its window and the shares of each
 * step. A job of several ranks is measured once per rank, over the same timeline.
 */

#include "analyzer/input.h"
#include "analyzer/share.h"
#include "analyzer/step.h"
#include "analyzer/shares/compiling.h"
#include "analyzer/base/interval.h"
#include "analyzer/shares/partition.h"
#include "analyzer/shares/study.h"
#include "analyzer/roles/roles.h"
#include "service.h"
#include "split.h"
#include "analyzer/timeline/stack_work.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

struct measurement {
	const struct timeline *timeline;
	struct roles roles;
	const uint64_t *times; /* times of steps: see counted */
	size_t n_times;
	enum analysis_counted counted;
	uint64_t *mark_times;
	struct stack_samples samples;
	struct compiling compiling;
	struct interval_list checkpoints, helper_checkpoints, child_checkpoints;
	uint8_t *saves; /* per thread: it writes the trainer's checkpoints, or waits for a child that does */
	struct data_waits waits;
	bool waits_sampled; /* some waits come from naps or samples of the trainer's stack */
	struct window window;
	struct window run; /* the replayed part of the window, without gaps; borrows the window's steps */
	struct service service;
	struct split split;
	struct partition partition;
	uint64_t share_ns[SHARE_COUNT]; /* sums to the window exactly */
	uint64_t gil_starved_ns;        /* part of cpu_starved: another thread has the interpreter lock */
	uint64_t asleep_ns;             /* part of other: naps, except polling */
	uint64_t helped_ns;     /* part of device: asleep until the trainer's other threads had computed */
	double computing_part;  /* part of CPU time outside waits that is in the model; NAN: not known */
	uint64_t collective_ns; /* part of device: asleep until the other ranks arrive */
};

/* Measures one trainer. trainer_tid 0: the one that roles_find() finds. n_cpus: CPUs that the job may use; 0:
 * not known. several: this is one rank of several. If there is no trainer, roles.trainer is NULL and the rest
 * is empty. The timeline is borrowed for the measurement's life. The measurement must not be moved, because
 * its parts point into it. -ENOMEM is the only failure; free the measurement then, too. */
int measure(const struct timeline *timeline, const struct analysis_input *input, uint32_t trainer_tid,
	    uint32_t n_cpus, bool several, struct measurement *measurement);
/* Returns the measurement's parts. input: the one that was measured. */
struct study measurement_study(const struct measurement *measurement, const struct analysis_input *input);
void measurement_free(struct measurement *measurement);
