/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From the events of one recorded job to what they mean: where the trainer's wall time went, why it waited,
 * and what to do about it. Pure: no clock, no I/O, no global state; the same events give the same answer.
 *
 * The trainer thread's wall time from the start of the first observed data wait that leads to a step to the
 * end of the last step ("the window") is partitioned into shares; in integer ns they sum to the window
 * exactly, or, where the recording has gaps, to those of its steps that were recorded whole.
 * docs/explanation/measuring.md says what each share means and how it is measured.
 *
 * Ownership: the input is borrowed for the call; the result owns its strings and arrays and is freed by
 * analysis_free(). Times are CLOCK_MONOTONIC ns. A job whose steps cannot be judged is no error: the call
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
#define ANALYSIS_STALL_THRESHOLD 0.15 /* less data wait and checkpoint than this: device-bound */

enum analysis_verdict {
	ANALYSIS_INSUFFICIENT,
	ANALYSIS_FETCH_BOUND,
	ANALYSIS_PREP_BOUND,
	ANALYSIS_DEVICE_BOUND,
	ANALYSIS_CHECKPOINT_BOUND,
	ANALYSIS_CPU_STARVED, /* most of its time it was ready, but without a core */
	ANALYSIS_LOCK_BOUND,  /* ..., but another thread had the interpreter lock */
	ANALYSIS_UNCLEAR,     /* what was seen does not tell; the note says what would */
};

enum analysis_confidence {
	CONFIDENCE_LOW,
	CONFIDENCE_MEDIUM,
	CONFIDENCE_HIGH,
};

/* Time of the trainer's waits that the walk charges to one kind of call by one kind of thread. */
struct analysis_evidence {
	char role[24]; /* worker, trainer, hand-off thread, ... */
	char what[40]; /* "read of files", "computing", ... */
	uint64_t ns;
	bool fetch; /* counts as fetching, else as preparing */
};

struct analysis_action {
	char text[384];
	double gain_max; /* upper bound of the speed-up, as a factor; 1: none; 0: not known */
	enum analysis_confidence confidence;
	struct estimate gain; /* predicted speed-up, as a factor; value 0 or NAN: not predicted */
	bool about;           /* gain_max comes from sampled shares, or much was not seen: no bound is sure */
};

/* A rank of a job that trains on several processes: shares of its own window. */
struct analysis_rank {
	uint32_t tgid, tid;
	uint64_t window_ns;
	uint64_t share_ns[SHARE_COUNT];
	size_t n_steps;
	uint64_t collective_ns; /* part of device: asleep until other ranks come along */
	bool straggler;         /* the others wait for it at the end of their steps */
};

/* Sums over all workers, in thread-seconds of their main threads in the window: never to be added to shares.
 */
struct analysis_workers {
	uint32_t n;          /* worker processes seen in the window */
	uint32_t n_at_once;  /* at the same time, of one loader that feeds steps; sampled: on average */
	uint64_t fetch_ns;   /* in file or network calls */
	uint64_t cpu_ns;     /* computing outside of them */
	uint64_t queue_ns;   /* runnable without a core */
	uint64_t idle_ns;    /* waiting for an index: ahead of the trainer */
	uint64_t blocked_ns; /* anything else, e.g. handing a batch over */
	uint64_t n_batches;
};

/* What a trainer does beside its steps; parts of the shares, never to be added to them. */
struct analysis_apart {
	bool known;
	uint64_t ns;      /* compiling: in the whole recording, by any thread of the trainer's process;
			   * validation: in the window */
	uint64_t wait_ns; /* validation: part of ns, in its loader's next() */
	size_t n_steps;   /* in which it happened */
};

/* The job, its trainer, and how it loads data. */
struct analysis_job {
	char *command; /* NULL: not known */
	bool attached; /* it ran already when the recording began */
	uint32_t n_cpus;
	uint32_t root_tgid, trainer_tgid, trainer_tid;
	uint32_t trainer_ns_tgid, trainer_ns_tid; /* in its innermost PID namespace; 0: not known */
	uint32_t n_trainers; /* threads that do backward passes: more than 1 are ranks of one job */
	enum analysis_loader loader;
	enum analysis_method method;
	/* When the trainer loads data is not seen at all, or only by its file reads, or only by a thread that
	 * wakes it while no steps are seen. Then data that the trainer makes by itself counts as computing.
	 */
	bool blind;
	/* Time in which threads of all its processes and ranks had a core or waited for one; 0: not known. */
	uint64_t busy_ns;
};

/* The recording, and what it misses. */
struct analysis_recorded {
	uint64_t begin_ns, end_ns;
	uint64_t gaps_ns;                 /* part of it: without detail */
	uint64_t detail_bytes_per_minute; /* the limit that left detail out; 0: not known */
	uint64_t n_lost;
	uint64_t n_malformed;  /* records that contradict themselves or others: ignored */
	double coverage_ratio; /* steps without a loss, over all steps */
	/* the tool's CPU time over the recording's wall time: 0.01 is 1 % of one CPU; NAN: not known */
	double self_cost_ratio;
};

/* The time that the shares divide. */
struct analysis_window {
	uint64_t begin_ns, end_ns;
	uint64_t startup_ns, teardown_ns; /* the trainer's life before and after, as far as recorded */
	uint64_t observed_ns;  /* the window without the steps that reach into a gap of the recording */
	bool read_bytes_known; /* false: sampled, and the job hides it */
	uint64_t read_bytes;   /* by the job's file reads, page cache or not */
};

/* Sampled without privilege: there are no steps, and each share is right within +- its error, with 95 %
 * confidence. */
struct analysis_sampled {
	bool is;                   /* all shares are approximate */
	double error[SHARE_COUNT]; /* 0: exact */
	size_t n_looks;            /* at the trainer in the window */
	size_t n_steps_estimated;  /* 0: not known */
};

/* Parts of shares, for explanation: no shares of their own. */
struct analysis_parts {
	uint64_t peers_ns; /* of fetch_stall: dieseld waited for other nodes' chunks, not for storage */
	/* of prep_stall */
	uint64_t head_of_line_ns; /* another batch was ready, but a slower worker's had to come first */
	uint64_t own_prep_ns;    /* the trainer itself computed, or waited, no longer than that, for a core */
	uint64_t daemon_prep_ns; /* dieseld decoded, verified or copied */
	uint64_t gil_ns; /* a thread that the trainer waited for was waiting for the interpreter lock */
	/* of device */
	bool gpu_wait_known;
	uint64_t gpu_wait_ns;
	uint64_t helped_ns; /* asleep until its other threads had computed */
	/* Part of the trainer's computing in which its Python stack shows the model, the backward pass or the
	 * optimizer. NAN: not known. */
	double computing_part;
	/* of cpu_starved */
	uint64_t neighbours_ns;  /* a thread outside the job had the core */
	uint64_t gil_starved_ns; /* the trainer itself waited for the interpreter lock */
	uint64_t asleep_ns;      /* of other: plain sleeps of the trainer that are no polling */
	uint64_t steal_ns;       /* of any: the trainer had a core that the host took away */
	bool waits_sampled;      /* samples of the trainer's stack, or its naps, show some of its waits */
};

/* The shares without warm-up, without steps apart, and without what other steps compile: verdict and actions
 * are about these. */
struct analysis_steady {
	uint64_t share_ns[SHARE_COUNT]; /* sums to ns exactly */
	uint64_t ns;
	/* steps at the start of the window that are unlike the rest: workers start, caches fill */
	size_t n_warmup_steps;
	uint64_t warmup_ns;
	size_t n_apart_steps; /* after warm-up, left out because of compiling or validation */
};

struct analysis {
	enum analysis_verdict verdict;
	char insufficient[160]; /* why, with ANALYSIS_INSUFFICIENT; else "" */
	char note[256];         /* what the verdict does not say but the reader should know; "" if nothing */
	struct analysis_job job;
	struct analysis_recorded recorded;
	struct analysis_window window;
	uint64_t share_ns[SHARE_COUNT]; /* sums to window.observed_ns exactly */
	struct analysis_sampled sampled;
	struct analysis_parts parts;
	struct analysis_steady steady;
	struct analysis_step *steps;
	size_t n_steps, n_incomplete;
	uint64_t wait_mean_ns, wait_p95_ns; /* data wait per step, without the steps that are apart */
	struct analysis_workers workers;
	struct analysis_apart compiling, validation;
	struct analysis_rank *ranks; /* NULL: one trainer */
	size_t n_ranks;
	/* NULL: not known */
	struct wait_chain *chain; /* of the last slow step */
	struct page_cache *page_cache;
	struct profile *profile;
	struct gpu_use *gpu;
	struct phase_times *phases;
	struct checkpoint_report *checkpoints;
	struct predictions *predictions;
	char no_predictions[160]; /* why there are none; "" with some */
	struct lanes *lanes;      /* NULL also when not asked for */
	struct analysis_evidence evidence[ANALYSIS_EVIDENCE_MAX];
	size_t n_evidence;
	struct analysis_action actions[ANALYSIS_ACTIONS_MAX];
	size_t n_actions;
};

/* -ENOMEM, -EINVAL (n_events without events, or a window that ends before it begins), -ESRCH (no thread
 * trainer_tid). */
int analysis_run(const struct analysis_input *input, struct analysis **ret_analysis, struct error *err);

void analysis_free(struct analysis *analysis);

/* Returns false for compiling if no Python stack was sampled: then it is 0, and its time is in other shares.
 * All other shares are known. */
bool analysis_share_known(const struct analysis *analysis, enum analysis_share share);

/* The share as a part of observed_ns; 0 if nothing was observed. */
double analysis_share_ratio(const struct analysis *analysis, enum analysis_share share);

/* The same of the steady steps, which verdict and actions are about; of the whole window if there are none.
 */
double analysis_steady_ratio(const struct analysis *analysis, enum analysis_share share);

/* Names as in the JSON report: "fetch_stall", "fetch-bound", "workers", "replay", "high". */
const char *analysis_verdict_name(enum analysis_verdict verdict);
const char *analysis_loader_name(enum analysis_loader loader);
const char *analysis_method_name(enum analysis_method method);
const char *analysis_confidence_name(enum analysis_confidence confidence);
