/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A job: the sessions of one trainer, whose knobs are set together and whose figures are summed.
 *
 * Sessions of one process are one job. Sessions of a trainer's worker processes (they share a rank by
 * stride and offset) belong to its job, too. They join the job of the nearest ancestor that has one for the
 * same rank and world size, else that of their parent, which started them. So each rank of a torchrun is a
 * job of its own, and so is a rank that another rank started. Processes in another PID namespace that the
 * daemon cannot see are one job each.
 *
 * A job outlives its sessions, because workers start and end with the epochs. It ends with the trainer's
 * process, JOB_LINGER_MS after its last session, or when its user has JOB_MAX_LINGERING newer jobs without a
 * session. A job's number is never reused while the daemon lives.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "client/protocol.h"
#include "daemon/sandboxed/codec.h"
#include "daemon/node/job_cores.h"
#include "daemon/node/pool.h"
#include "daemon/storage/read_latency.h"
#include "daemon/storage/read_turns.h"
#include "tuner/knob.h"

#define JOB_LINGER_MS     300000
#define JOB_MAX_LINGERING 64 /* per user: each job takes a descriptor and a line of STATUS */

/* Results of decoding stored samples in the daemon's decoders. */
struct decode_counters {
	uint64_t samples;  /* decoded samples */
	uint64_t damaged;  /* samples that could not be decoded */
	uint64_t cpu_ns;   /* CPU time of the decoders */
	uint64_t replaced; /* decoders that crashed or hung, or were killed */
};

/* Counters; all start at 0 when the job begins. */
struct job_counters {
	uint64_t batches, samples, bytes; /* made ready for the client */
	uint64_t shared_batches;          /* part of batches: decoded for another job or session (group.h) */
	uint64_t chunk_visits;            /* chunks that its sessions visited, counted per window */
	uint64_t chunk_reads,
	    read_bytes; /* visits that read from storage for this job; the other visits were hits */
	uint64_t peer_chunks, peer_bytes, peer_ns; /* chunks that came from other nodes of the job */
	uint64_t peer_failed; /* chunks that other nodes failed to deliver, read from storage instead */
	uint64_t n_read;      /* reads that have ended */
	uint64_t read_ns;     /* sum of the durations of those reads */
	struct read_latency latency;          /* durations of those reads */
	uint64_t reading_ns;                  /* time with at least one read in progress */
	struct read_latency came;             /* time to get each chunk from storage or another node */
	uint64_t coming_ns;                   /* time with at least one chunk coming */
	uint64_t cpu_ns;                      /* CPU time of workers for this job, decoders included */
	struct decode_counters decoded;       /* samples decoded by recipes */
	struct codec_cost ways[CODEC_N_WAYS]; /* cost of decoding, by way */
	struct codec_prospect prospect;
	/* Reported by clients: how long they waited in libdiesel for batches. */
	uint64_t n_waits, wait_fetch_ns, wait_prep_ns;
};

/* Batches that the trainer took and times that it reported, summed over its sessions as of the latest
 * sample of each (sensor_sample.h). All count up. */
struct job_taken {
	uint64_t batches, samples;
	uint64_t wait_ns, fetch_ns; /* time slept in libdiesel; mean over a rank's worker processes */
	uint64_t next_ns;           /* time spent in the Python loader's next(); 0: not reported */
	uint64_t handoff_ns, n_handed_samples;
	uint64_t work_cpu_ns, work_busy_ns, n_worked;
};

/* The job's part of the cache: users who have a dataset open share it in equal parts, and so do the jobs of
 * a user. */
struct job_cache_use {
	uint64_t bytes, at_ns; /* bytes that the job took at the time at_ns */
	double byte_s;         /* integral of bytes over time until at_ns, in byte seconds */
};

/* Pauses of prefetch for checkpoints (read_holds.h). */
struct job_held {
	uint64_t n, ns;              /* number of pauses; their total time without the latest pause */
	uint64_t since_ns, until_ns; /* the latest pause; 0: none yet */
	uint64_t writer;             /* the job whose checkpoint caused the latest pause */
};

/* The checkpoint that the job reports, as the newest of its sessions' reports has it. */
struct job_writes {
	uint64_t n_begun, storage;
	uint64_t held_storage; /* where prefetch pauses for it; 0: nowhere */
	bool writing;
};

/*
 * Who runs a job, as Slurm and Kubernetes know it: only for metrics and the log, never for a decision.
 *
 * The numbers of a Slurm job and of a pod come from the control group of the job's process, which the
 * kernel reports, if it has them. All else is the client's own claim (WIRE_ORIGIN). Texts consist of letters,
 * digits and "._-"; "": not known.
 */
struct job_origin {
	char slurm_job[WIRE_ORIGIN_BYTES];
	char account[WIRE_ORIGIN_BYTES];
	char pod[WIRE_POD_BYTES];
	char pod_uid[40];
	char pod_namespace[WIRE_ORIGIN_BYTES];
};

struct jobs;
struct membership;

struct job {
	struct job *next;
	struct jobs *owner;
	uint64_t id; /* number from 1 on */
	int64_t pid; /* the trainer's pid as the daemon sees it; 0: not visible */
	uint32_t uid, rank, world;
	char name[128]; /* command line of the trainer, truncated */
	char group[32]; /* group name from its newest session; "": none */
	struct job_origin origin;
	uint64_t begin_ns;
	uint64_t shared_from; /* the job that decoded its newest shared batch; 0: none */
	/* The knobs as set. A free knob (tuner_knob_table) means: cache, whatever space there is;
	 * read-ahead, see struct serving_knobs; daemon workers, all of them; client workers, no
	 * preference. */
	struct tuner_knobs knobs;
	struct job_counters counters; /* serving_job_counters() adds cpu_ns and live sessions */
	struct job_taken taken;
	struct job_cache_use cache_use;
	struct job_cores cores; /* cores of its process */
	struct pool_lane lane;
	struct read_lanes read_lanes;
	struct job_held held;
	struct job_writes writes;
	struct membership *memberships; /* peers/memberships.h */
	uint32_t read_weight; /* weight of its reads compared with other jobs; TURN_WEIGHT unless set */
	uint32_t n_sessions;
	uint32_t refs;                /* the list, handles, sessions and loads */
	uint32_t n_reading, n_coming; /* chunks coming from storage; from storage and other nodes */
	uint64_t reading_since_ns, coming_since_ns;
	bool process_ended, ended;
	bool unwatched; /* the daemon cannot tell whether its process lives: the job ends with its sessions */
	int pidfd;
	uv_poll_t process;
	uv_timer_t linger;
	uint32_t n_handles;
};

struct job_handler {
	void (*begin)(void *user, struct job *job);
	void (*end)(void *user, struct job *job); /* called when no session of the job is left */
	void *user;
};

struct jobs {
	struct job *first;
	uint64_t n_begun;
	uv_loop_t *loop;
	const char *proc_root; /* "/proc" */
	struct job_handler handler;
	bool closing;
};

/* The process that opens a session. */
struct job_member {
	int64_t pid;
	uint32_t uid, rank, world;
	uint32_t stride;                  /* above 1: a worker process of a trainer */
	const struct wire_origin *origin; /* NULL: not reported */
};

/* Returns the member's job with one session added, and begins the job if there is none. NULL: no memory. */
struct job *jobs_join(struct jobs *jobs, const struct job_member *member);
void jobs_leave(struct job *job);
struct job *jobs_find(const struct jobs *jobs, uint64_t id);
/* Ends all jobs; the loop must run once more. */
void jobs_close(struct jobs *jobs);

struct job *job_ref(struct job *job); /* accepts NULL, like job_unref() */
void job_unref(struct job *job);

/* Counts the start of a read from storage for this job. */
void job_read_begin(struct job *job, uint64_t now_ns);
/* Counts a read that has ended with `bytes` read. */
void job_read_end(struct job *job, uint64_t begin_ns, uint64_t now_ns, uint64_t bytes);
/* Counts the start of a request to another node for a chunk. */
void job_ask_begin(struct job *job, uint64_t now_ns);
/* Counts the end of such a request. result: 0 if `bytes` arrived. */
void job_ask_end(struct job *job, uint64_t begin_ns, uint64_t now_ns, int result, uint64_t bytes);

/* Notes that some of the job's prefetch is paused until until_ns, for the job `writer`. */
void job_hold(struct job *job, uint64_t writer, uint64_t now_ns, uint64_t until_ns);
bool job_is_held(const struct job *job, uint64_t now_ns);
uint64_t job_held_ns(const struct job *job, uint64_t now_ns);
/* Finds out who runs the process: from its control group, or else from the client's report. said NULL: there
 * is no report. pid 0: the process is not visible. */
struct job_origin job_origin_find(const struct wire_origin *said, const char *proc_root, pid_t pid);
/* Returns true if any field is known. */
bool job_origin_is_known(const struct job_origin *o);
