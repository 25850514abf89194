/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A job: the sessions of one trainer, whose knobs are turned together and whose figures are summed.
 *
 * Sessions of one process are one job. Those of a trainer's worker processes (they share a rank by stride and
 * offset) belong to it too: they join the job of the nearest ancestor that has one for the same rank and
 * world size, else that of their parent, which started them. So each rank of a torchrun is a job of its own,
 * and so is a rank that another rank started. Processes of another PID namespace that we cannot see are one
 * job each.
 *
 * A job outlives its sessions, because workers come and go with the epochs: it ends with the trainer's
 * process, JOB_LINGER_MS after its last session, or when its user has JOB_MAX_LINGERING newer ones without a
 * session. Its number is never used again while the daemon lives.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "client/protocol.h"
#include "daemon/apart/codec.h"
#include "daemon/node/job_cores.h"
#include "daemon/node/pool.h"
#include "daemon/storage/read_latency.h"
#include "daemon/storage/read_turns.h"
#include "tuner/knob.h"

#define JOB_LINGER_MS     300000
#define JOB_MAX_LINGERING 64 /* each is a descriptor, and a line of STATUS */

/* What became of stored samples in the daemon's decoders. */
struct decode_counters {
	uint64_t samples;  /* that were decoded */
	uint64_t damaged;  /* that could not be */
	uint64_t cpu_ns;   /* that the decoders took */
	uint64_t replaced; /* decoders that crashed or hung, or were killed */
};

/* All count up from the start of the job. */
struct job_counters {
	uint64_t batches, samples, bytes; /* made ready for the client */
	uint64_t shared_batches;          /* of these, decoded for another job or session (group.h) */
	uint64_t chunk_visits;            /* by its sessions, window by window */
	uint64_t chunk_reads,
	    read_bytes; /* visits that read from storage, on behalf of this job: the others were hits */
	uint64_t peer_chunks, peer_bytes, peer_ns; /* that came from other nodes of the job instead */
	uint64_t peer_failed;                      /* that were to, and were read from storage */
	uint64_t n_read;                           /* reads that have ended */
	uint64_t read_ns;                          /* sum of the times these took */
	struct read_latency latency;               /* of each of these reads */
	uint64_t reading_ns;                       /* time in which at least one was under way */
	struct read_latency came;                  /* of each chunk that came, from storage or another node */
	uint64_t coming_ns;                        /* time in which at least one was under way */
	uint64_t cpu_ns;                           /* of CPU workers, for this job; decoders included */
	struct decode_counters decoded;            /* by recipes */
	struct codec_cost ways[CODEC_N_WAYS];      /* the same, by how */
	struct codec_prospect prospect;
	/* As the clients report it: how long they waited in libdiesel for a batch. */
	uint64_t n_waits, wait_fetch_ns, wait_prep_ns;
};

/* What the trainer took, and what it reported about that, summed over its sessions as of the last look at
 * each (sensor_job.h). All count up. */
struct job_taken {
	uint64_t batches, samples;
	uint64_t wait_ns, fetch_ns; /* slept in libdiesel; the mean of a rank's worker processes */
	uint64_t next_ns;           /* in the Python loader's next(); 0: not told */
	uint64_t handoff_ns, n_handed_samples;
	uint64_t work_cpu_ns, work_busy_ns, n_worked;
};

/* Its part of the cache: of what several users have open each has an equal part, and so has each of a user's
 * jobs. */
struct job_cache_use {
	uint64_t bytes, at_ns; /* as of then */
	double byte_s;         /* summed up until then */
};

/* Reading ahead that gives way to checkpoints (read_holds.h). */
struct job_held {
	uint64_t n, ns;              /* how often and how long, apart from the latest time */
	uint64_t since_ns, until_ns; /* the latest time; 0: there was none */
	uint64_t writer;             /* the job whose checkpoint it was then */
};

/*
 * Who runs a job, as Slurm and Kubernetes know it: for metrics and the log, and for no decision.
 *
 * The numbers of a Slurm job and of a pod come from the control group of the job's process, which the kernel
 * vouches for, where it has them. All else is the client's own word (WIRE_ORIGIN). Texts consist of
 * letters, digits and "._-"; "": not known.
 */
struct job_origin {
	char slurm_job[WIRE_ORIGIN_BYTES];
	char account[WIRE_ORIGIN_BYTES];
	char pod[WIRE_POD_BYTES];
	char pod_uid[40];
	char pod_namespace[WIRE_ORIGIN_BYTES];
};

struct jobs;
struct sharer;

struct job {
	struct job *next;
	struct jobs *owner;
	uint64_t id; /* from 1 */
	int64_t pid; /* the trainer's, as the daemon sees it; 0: it cannot be seen */
	uint32_t uid, rank, world;
	char name[128]; /* its command line, cut */
	char group[32]; /* as its newest session called it; "": not at all */
	struct job_origin origin;
	uint64_t begin_ns;
	uint64_t shared_from; /* the job that decoded the newest of its shared_batches; 0: there is none */
	/* As set. A free knob (tuner_knob_table) means: cache, whatever there is room for; read-ahead, what
	 * struct serving_knobs says; daemon workers, all of them; client workers, no wish. */
	struct tuner_knobs knobs;
	struct job_counters counters; /* cpu_ns and live sessions apart: server_job_counters() has all */
	struct job_taken taken;
	struct job_cache_use cache_use;
	struct job_cores cores; /* of its process */
	struct pool_lane lane;
	struct read_lanes read_lanes;
	struct job_held held;
	struct sharer *sharers; /* peers/sharers.h */
	uint32_t read_weight;   /* its part of a storage's bytes, beside other jobs; TURN_WEIGHT unless set */
	uint32_t n_sessions;
	uint32_t refs;                /* list, sessions and reads under way */
	uint32_t n_reading, n_coming; /* of storage; of storage and other nodes */
	uint64_t reading_since_ns, coming_since_ns;
	bool process_ended, ended;
	bool unwatched; /* nobody can tell whether its process lives: it ends with its sessions */
	int pidfd;
	uv_poll_t process;
	uv_timer_t linger;
	uint32_t n_handles;
};

struct job_handler {
	void (*begin)(void *user, struct job *job);
	void (*end)(void *user, struct job *job); /* no session of it is left */
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

/* Who opens a session. */
struct job_member {
	int64_t pid;
	uint32_t uid, rank, world;
	uint32_t stride;                  /* > 1: a worker process of a trainer */
	const struct wire_origin *origin; /* NULL: it says nothing */
};

/* Returns the member's job, with one more session; begins the job if there is none. NULL: no memory. */
struct job *jobs_join(struct jobs *jobs, const struct job_member *member);
void jobs_leave(struct job *job);
struct job *jobs_find(const struct jobs *jobs, uint64_t id);
/* Ends all jobs; the loop must run once more. */
void jobs_close(struct jobs *jobs);

struct job *job_ref(struct job *job); /* NULL is fine for both */
void job_unref(struct job *job);

/* A read from storage for this job begins, or has ended. */
void job_read_begin(struct job *job, uint64_t now_ns);
void job_read_end(struct job *job, uint64_t begin_ns, uint64_t now_ns, uint64_t bytes);
/* Another node is asked for a chunk, and has given so much of it, or has not. */
void job_ask_begin(struct job *job, uint64_t now_ns);
void job_ask_end(struct job *job, uint64_t begin_ns, uint64_t now_ns, int result, uint64_t bytes);

/* Some of the job's reading ahead is held back until then, for the writer. */
void job_hold(struct job *job, uint64_t writer, uint64_t now_ns, uint64_t until_ns);
bool job_is_held(const struct job *job, uint64_t now_ns);
uint64_t job_held_ns(const struct job *job, uint64_t now_ns);

/* job_origin.c */
/* Takes what the client said. */
void job_origin_said(struct job_origin *o, const struct wire_origin *said);
/* Puts in its place what a text of /proc/PID/cgroup has. */
void job_origin_group(struct job_origin *o, const char *text);
/* The same for a process; one that is gone, or hidden, changes nothing. */
void job_origin_process(struct job_origin *o, const char *proc_root, pid_t pid);
/* Returns true if anything is known. */
bool job_origin_is_known(const struct job_origin *o);
