/* SPDX-License-Identifier: Apache-2.0 */
#include "sampled_lanes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lanes_find.h"
#include "lib/clock.h"
#include "lib/proc_task.h"
#include "lib/sorted.h"
#include "sampled_charge.h"

struct drawing {
	const struct sampled_job *job;
	const struct sampled_trainer *trainer;
	struct lanes *lanes;
	struct interval_list exact; /* none */
	uint64_t cell_ns;
};

static bool within(const struct sampled_stretch *stretches, size_t n, uint64_t at_ns)
{
	size_t at = sorted_count(n, i, stretches[i].end_ns <= at_ns);

	return at < n && stretches[at].begin_ns <= at_ns;
}

static bool a_worker_reads(const struct sampled_job *job, uint64_t at_ns)
{
	for (size_t i = 0; i < job->n_processes; i++) {
		const struct sampled_process *process = &job->processes[i];
		const struct event *look = NULL;

		if (process->is_worker && process->first_ns <= at_ns && at_ns < process->last_ns)
			look = sampled_look_at(process->main, at_ns);
		if (look && look->sample.wait == PROC_WAIT_FILE_READ)
			return true;
	}
	return false;
}

static enum lane_state state_of_trainer(const struct drawing *drawing, const struct event *look)
{
	const struct sampled_trainer *trainer = drawing->trainer;
	uint64_t middle_ns = look->start_ns + (look->end_ns - look->start_ns) / 2;
	bool loads = trainer->computing && !within(trainer->computing, trainer->n_computing, middle_ns);

	if (within(trainer->checkpoints, trainer->n_checkpoints, middle_ns))
		return LANE_CHECKPOINT;
	if (look->sample.place == SAMPLE_PLACE_COMPILING)
		return LANE_COMPILING;
	if (!sampled_asleep(look)) {
		if (loads)
			return LANE_PREP_STALL;
		return look->sample.queue_ns > look->sample.exec_ns ? LANE_STARVED : LANE_DEVICE;
	}
	switch (sampled_charge(drawing->job, trainer->loader, look)) {
	case CHARGE_DATA: return a_worker_reads(drawing->job, middle_ns) ? LANE_FETCH_STALL : LANE_PREP_STALL;
	case CHARGE_FETCH: return LANE_FETCH_STALL;
	case CHARGE_DEVICE: return LANE_DEVICE;
	case CHARGE_LOCK: return LANE_STARVED;
	case CHARGE_NAP:
	case CHARGE_OTHER:
	case CHARGE_COUNT: break;
	}
	return loads ? LANE_PREP_STALL : LANE_OTHER;
}

static enum lane_state state_of_worker(const struct event *look)
{
	switch ((enum proc_wait)look->sample.wait) {
	case PROC_WAIT_NONE: return look->sample.queue_ns > look->sample.exec_ns ? LANE_QUEUE : LANE_CPU;
	case PROC_WAIT_FILE_READ:
	case PROC_WAIT_SOCKET: return LANE_FETCH;
	case PROC_WAIT_PIPE:
	case PROC_WAIT_POLL:
	case PROC_WAIT_UNKNOWN: return LANE_IDLE;
	default: return LANE_BLOCKED;
	}
}

static int draw(struct drawing *drawing, const struct sampled_thread *thread, uint32_t tgid,
		enum lane_role role)
{
	struct lane *lane = &drawing->lanes->items[drawing->lanes->n_items++];
	struct lane_builder builder = {.lane = lane, .cell_ns = drawing->cell_ns, .exact = &drawing->exact};
	int r = 0;

	lane->role = role;
	lane->tid = thread->tid;
	lane->tgid = tgid;
	if (role == LANE_TRAINER)
		snprintf(lane->name, sizeof(lane->name), "trainer");
	else
		snprintf(lane->name, sizeof(lane->name), "worker %zu", drawing->lanes->n_items - 1);
	for (size_t i = 0; r == 0 && i < thread->n; i++) {
		const struct event *look = thread->looks[i];

		if (look->start_ns < drawing->trainer->begin_ns || look->end_ns > drawing->trainer->end_ns)
			continue;
		r = lane_builder_add(&builder, look->start_ns, look->end_ns,
				     role == LANE_TRAINER ? state_of_trainer(drawing, look)
							  : state_of_worker(look));
	}
	return r < 0 ? r : lane_builder_finish(&builder);
}

int sampled_lanes_find(const struct sampled_job *job, const struct sampled_trainer *trainer,
		       size_t n_segments_max, struct lanes **ret_lanes)
{
	struct drawing drawing = {.job = job, .trainer = trainer, .lanes = calloc(1, sizeof(*drawing.lanes))};
	size_t n_looks = job->trainer->n;
	int r = -ENOMEM;

	for (size_t i = 0; i < job->n_processes; i++)
		n_looks += job->processes[i].is_worker ? job->processes[i].main->n : 0;
	if (n_looks > n_segments_max)
		drawing.cell_ns =
		    (trainer->end_ns - trainer->begin_ns) / n_segments_max * (job->n_workers + 1) + NS_PER_US;
	if (drawing.lanes)
		drawing.lanes->items = calloc(job->n_workers + 1, sizeof(*drawing.lanes->items));
	if (drawing.lanes && drawing.lanes->items) {
		drawing.lanes->cell_ns = drawing.cell_ns;
		r = draw(&drawing, job->trainer, job->trainer_process->tgid, LANE_TRAINER);
	}
	for (size_t i = 0; r == 0 && i < job->n_processes; i++)
		if (job->processes[i].is_worker)
			r = draw(&drawing, job->processes[i].main, job->processes[i].tgid, LANE_WORKER);
	if (r < 0)
		lanes_free(drawing.lanes);
	else
		*ret_lanes = drawing.lanes;
	return r;
}
