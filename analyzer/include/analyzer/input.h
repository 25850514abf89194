/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Input of an analysis: the events of one recording and other facts about it. All pointers are borrowed. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct gpu_probes;
struct gpu_sample;
struct phase_label;
struct profile_metadata;
struct what_if_grid;
struct what_if_question;

/* Interval in which records were lost; the whole recording if nothing better is known. */
struct analysis_loss {
	uint64_t begin_ns, end_ns;
	uint64_t n_events;
};

/* The path of a file or folder that EVENT_PLACE names. */
struct analysis_path {
	uint64_t inode;
	uint32_t device; /* kernel dev_t */
	bool folder;
	const char *path;
};

struct analysis_input {
	const struct event *events; /* any order */
	size_t n_events;
	uint64_t begin_ns, end_ns;          /* limits of the recording; 0, 0: those of the events */
	const struct analysis_loss *losses; /* may be NULL */
	size_t n_losses;
	uint32_t root_tgid;    /* the job's first process; 0: not known */
	uint32_t trainer_tid;  /* the trainer's thread; 0: found automatically */
	bool several;          /* the job has ranks that were not recorded */
	uint32_t n_cpus;       /* CPUs that the job may use; 0: not known */
	uint64_t self_cpu_ns;  /* CPU time of the tool: BPF programs and collector */
	bool bpf_cost_unknown; /* self_cpu_ns lacks BPF programs: counting their time takes CAP_SYS_ADMIN */
	uint64_t detail_bytes_per_minute; /* the recorder's limit; 0: none, or not known */
	const char *command; /* the command as typed, or the process's command line; NULL: not known */
	bool attached;       /* the job already ran when the recording began */
	bool shares_only;    /* no predictions, no lanes: cheap enough to run once per second */
	const struct what_if_question *what_if; /* NULL: none */
	const struct what_if_grid *grid;        /* NULL: none */
	size_t n_lane_segments_max;             /* 0: no lanes */
	const char *gpu_library;                /* path of the libcuda that was probed; NULL: none */
	const struct gpu_probes *gpu_probes;    /* probes in gpu_library; NULL: not known */
	double checkpoint_overhead_max;         /* limit, as a ratio; 0: CHECKPOINT_OVERHEAD_MAX */
	const struct gpu_sample *gpu_samples;
	size_t n_gpu_samples;
	const struct phase_label *phase_labels;
	size_t n_phase_labels;
	uint32_t page_bytes; /* 0: 4096 */
	const struct analysis_path *paths;
	size_t n_paths;
	const struct profile_metadata *profile; /* frames and traces of the stack samples; NULL: none */
};
