/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Interprets the events of one recorded job: where the trainer's wall time went, why the trainer waited, and
 * what to do about it. Pure: no clock, no I/O, no global state; the same events give the same answer.
 *
 * The "window" lasts from the start of the first observed data wait that leads to a step to the end of the
 * last step. The trainer thread's wall time in it is partitioned into shares. In integer ns they sum to the
 * window exactly, or, where the recording has gaps, to those of its steps that were recorded whole.
 * docs/explanation/measuring.md says what each share means and how it is measured.
 *
 * Ownership: the input is borrowed for the call; the result owns its strings and arrays and is freed by
 * analysis_free(). Times are CLOCK_MONOTONIC ns. A job whose steps cannot be judged is not an error: the call
 * succeeds with ANALYSIS_INSUFFICIENT and says why in `insufficient`.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analyzer/chain.h"
#include "analyzer/checkpoints.h"
#include "analyzer/gpu.h"
#include "analyzer/input.h"
#include "analyzer/lanes.h"
#include "analyzer/loader.h"
#include "analyzer/page_cache.h"
#include "analyzer/phases.h"
#include "analyzer/predictions.h"
#include "analyzer/profile.h"
#include "analyzer/share.h"
#include "analyzer/step.h"
#include "bpf/event.h"
#include "bpf/gpu.h"
#include "lib/error.h"

#define ANALYSIS_ACTIONS_MAX     3
#define ANALYSIS_EVIDENCE_MAX    8
#define ANALYSIS_STALL_THRESHOLD 0.15 /* a smaller share of data wait and checkpoints: device-bound */

enum analysis_verdict {
	ANALYSIS_INSUFFICIENT,
	ANALYSIS_FETCH_BOUND,
	ANALYSIS_PREP_BOUND,
	ANALYSIS_DEVICE_BOUND,
	ANALYSIS_CHECKPOINT_BOUND,
	ANALYSIS_CPU_STARVED, /* the trainer was mostly ready to run, but had no core */
	ANALYSIS_LOCK_BOUND,  /* the trainer was mostly ready, but another thread had the interpreter lock */
	ANALYSIS_UNCLEAR,     /* the events do not suffice; the note names events that would */
};

enum analysis_confidence {
	CONFIDENCE_LOW,
	CONFIDENCE_MEDIUM,
	CONFIDENCE_HIGH,
};

/* Time of the trainer's waits that the walk charges to one kind of call by threads of one role. */
struct analysis_evidence {
	char role[24]; /* worker, trainer, hand-off thread, ... */
	char what[40]; /* "read of files", "computing", ... */
	uint64_t ns;
	bool fetch; /* counts as fetching, else as preparing */
};

struct analysis_action {
	char text[384];
	double gain_max; /* upper bound of the speed-up factor; 1: no gain; 0: not known */
	enum analysis_confidence confidence;
	struct estimate gain; /* predicted speed-up, as a factor; its value is 0 or NAN if not predicted */
	bool about;           /* gain_max is approximate: shares are sampled, or much time was not seen */
};

/* A rank of a job that trains on several processes: shares of its own window. */
struct analysis_rank {
	uint32_t tgid, tid;
	uint64_t window_ns;
	uint64_t share_ns[SHARE_COUNT];
	size_t n_steps;
	uint64_t collective_ns; /* part of device: asleep until the other ranks arrive */
	bool straggler;         /* the other ranks wait for this one at the end of their steps */
};

/* Sums over all workers: thread time of their main threads in the window. Never add these sums to shares. */
struct analysis_workers {
	uint32_t n;          /* worker processes seen in the window */
	uint32_t n_at_once;  /* maximum at once, of one loader that feeds steps; sampled: the average */
	uint64_t fetch_ns;   /* time in file or network calls */
	uint64_t cpu_ns;     /* computing outside those calls */
	uint64_t queue_ns;   /* runnable without a core */
	uint64_t idle_ns;    /* waiting for an index: ahead of the trainer */
	uint64_t blocked_ns; /* anything else, e.g. handing a batch over */
	uint64_t n_batches;
};

/* Work of a trainer that is not training: compiling or validation. Part of the shares; never add both. */
struct analysis_excluded {
	bool known;
	uint64_t ns;      /* compiling: in the whole recording, by any thread of the trainer's process;
			   * validation: in the window */
	uint64_t wait_ns; /* validation: part of ns, in its loader's next() */
	size_t n_steps;   /* steps in which this work happened */
};

/* The job, its trainer, and how it loads data. */
struct analysis_job {
	char *command; /* NULL: not known */
	bool attached; /* the job already ran when the recording began */
	uint32_t n_cpus;
	uint32_t root_tgid, trainer_tgid, trainer_tid;
	uint32_t trainer_ns_tgid, trainer_ns_tid; /* IDs in the innermost PID namespace; 0: not known */
	uint32_t n_trainers; /* number of threads that do backward passes: more than 1 are ranks of one job */
	enum analysis_loader loader;
	enum analysis_method method;
	/* The recording does not show when the trainer loads data; or only its file reads show this, or only
	 * a thread that wakes it while no steps are seen. Then data that the trainer makes by itself counts
	 * as computing. */
	bool blind;
	/* Time in which threads of all its processes and ranks had a core or waited for one; 0: not known. */
	uint64_t busy_ns;
	uint64_t cpu_ns; /* part of busy_ns in which they had a core */
};

/* The recording and its gaps. */
struct analysis_recorded {
	uint64_t begin_ns, end_ns;
	uint64_t gaps_ns;                 /* part of the recording without detail */
	uint64_t detail_bytes_per_minute; /* limit because of which detail was left out; 0: not known */
	uint64_t n_lost;
	uint64_t n_malformed;  /* records that contradict themselves or others: ignored */
	double coverage_ratio; /* steps without a loss, over all steps */
	/* the tool's CPU time over the recording's wall time: 0.01 is 1 % of one CPU; NAN: not known */
	double self_cost_ratio;
};

/* The time that the shares divide. */
struct analysis_window {
	uint64_t begin_ns, end_ns;
	uint64_t startup_ns, teardown_ns; /* trainer's life before and after the window, as far as recorded */
	uint64_t observed_ns;  /* the window without the steps that reach into a gap of the recording */
	bool read_bytes_known; /* false: sampled, and the job hides its reads */
	uint64_t read_bytes;   /* bytes read by the job's file reads, from the page cache or not */
};

/* For a recording sampled without privilege: there are no steps, and each share is right within +- its error,
 * with 95 % confidence. */
struct analysis_sampled {
	bool is;                   /* all shares are approximate */
	double error[SHARE_COUNT]; /* 0: exact */
	size_t n_samples;          /* samples of the trainer in the window */
	size_t n_steps_estimated;  /* 0: not known */
};

/* Loading a checkpoint before the first step, as Python stacks show it. */
struct analysis_restored {
	uint64_t ns;    /* 0: none was seen */
	uint64_t bytes; /* read by calls; pages of mapped files do not count */
};

/* Parts of shares, for explanation: no shares of their own. */
struct analysis_parts {
	uint64_t peers_ns; /* part of fetch_stall: dieseld waited for other nodes' chunks, not for storage */
	/* parts of prep_stall */
	uint64_t head_of_line_ns; /* a batch of another worker was ready, but the next one in order was not */
	uint64_t own_prep_ns; /* the trainer itself computed or waited for a core; the waits count at most as
				 much as the computing */
	uint64_t daemon_prep_ns; /* dieseld decoded, verified or copied */
	uint64_t gil_ns; /* a thread that the trainer waited for was waiting for the interpreter lock */
	/* parts of device */
	bool gpu_wait_known;
	uint64_t gpu_wait_ns;
	uint64_t helped_ns; /* the trainer slept until other threads of its process had finished computing */
	/* Part of the trainer's computing time in which its Python stack shows the model, the backward
	 * pass or the optimizer. NAN: not known. */
	double computing_part;
	/* parts of cpu_starved */
	uint64_t neighbours_ns;  /* a thread outside the job occupied the core */
	uint64_t own_threads_ns; /* a thread outside did not, and another thread of the job ran */
	uint64_t gil_starved_ns; /* the trainer itself waited for the interpreter lock */
	uint64_t asleep_ns;      /* part of other: plain sleeps of the trainer, except polling */
	uint64_t steal_ns;       /* part of any share: the host took the trainer's core away (steal time) */
	bool waits_sampled;      /* some waits are inferred from the trainer's stack samples or naps */
};

/* The shares without warm-up, without excluded steps (step.h), and without compiling in other steps. Verdict
 * and actions are based on them. */
struct analysis_steady {
	uint64_t share_ns[SHARE_COUNT]; /* sums to ns exactly */
	uint64_t ns;
	/* steps at the start of the window that are unlike the rest: workers start, caches fill */
	size_t n_warmup_steps;
	uint64_t warmup_ns;
	size_t n_excluded_steps; /* after warm-up, left out because of compiling or validation */
};

struct analysis {
	enum analysis_verdict verdict;
	char insufficient[160]; /* reason for ANALYSIS_INSUFFICIENT; else "" */
	char note[256];         /* remark for the reader in addition to the verdict; "": none */
	struct analysis_job job;
	struct analysis_recorded recorded;
	struct analysis_window window;
	uint64_t share_ns[SHARE_COUNT]; /* sums to window.observed_ns exactly */
	struct analysis_sampled sampled;
	struct analysis_parts parts;
	struct analysis_steady steady;
	struct analysis_step *steps;
	size_t n_steps, n_incomplete;
	enum analysis_counted counted;
	uint64_t wait_mean_ns, wait_p95_ns; /* data wait per step, without excluded steps */
	struct analysis_workers workers;
	struct analysis_excluded compiling, validation;
	struct analysis_restored restored;
	struct analysis_rank *ranks; /* NULL: one trainer */
	size_t n_ranks;
	/* NULL: not known */
	struct wait_chain *chain; /* chain of the last slow step */
	struct page_cache *page_cache;
	struct profile *profile;
	struct gpu_use *gpu;
	struct phase_times *phases;
	struct checkpoint_report *checkpoints;
	struct predictions *predictions;
	char no_predictions[160]; /* reason for the absence of predictions; "" if there are predictions */
	struct lanes *lanes;      /* NULL also if the input did not ask for lanes */
	struct analysis_evidence evidence[ANALYSIS_EVIDENCE_MAX];
	size_t n_evidence;
	struct analysis_action actions[ANALYSIS_ACTIONS_MAX];
	size_t n_actions;
};

/* Analyses the input. -ENOMEM; -EINVAL: n_events without events, or an end before the beginning; -ESRCH: no
 * thread has the ID trainer_tid. */
int analysis_run(const struct analysis_input *input, struct analysis **ret_analysis, struct error *err);

void analysis_free(struct analysis *analysis);
static inline void analysis_freep(struct analysis **analysis)
{
	analysis_free(*analysis);
}

/* Returns false for compiling if no Python stack was sampled: its share is then 0, and its time is part of
 * other shares. All other shares are known. */
bool analysis_share_known(const struct analysis *analysis, enum analysis_share share);

/* Returns the share as a part of observed_ns, 0 to 1; 0 if nothing was observed. */
double analysis_share_ratio(const struct analysis *analysis, enum analysis_share share);

/* Returns the share as a part of the steady steps' time, on which verdict and actions are based; of
 * observed_ns if there are no steady steps. */
double analysis_steady_ratio(const struct analysis *analysis, enum analysis_share share);

/* Names as in the JSON report: "fetch_stall", "fetch-bound", "workers", "high"; of COUNTED_NONE: NULL. */
const char *analysis_verdict_name(enum analysis_verdict verdict);
const char *analysis_loader_name(enum analysis_loader loader);
const char *analysis_method_name(enum analysis_method method);
const char *analysis_counted_name(enum analysis_counted counted);
const char *analysis_confidence_name(enum analysis_confidence confidence);
