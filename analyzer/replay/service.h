/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Extracts the replay's input from a recording: how long each batch's computing and reading took by
 * themselves, without queues for cores and storage, and the trainer's work between its waits.
 *
 *   batch      of a worker: from the exit of the index pipe's payload read to its next poll or read of that
 *              pipe. Inline: the trainer's wait.
 *   group      file calls (sockets, page faults) less than 0.3 ms apart: one segment's reading
 *   computing  CPU time outside of groups
 *
 * Batches go to steps as a DataLoader hands them out: round robin, in the order of the workers' birth.
 */

#include "analyzer/input.h"
#include "analyzer/loader.h"
#include "analyzer/model.h"
#include "analyzer/timeline/cores.h"
#include "analyzer/shares/partition.h"
#include "analyzer/shares/study.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/timeline.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"

/* A batch as recorded. */
struct service_batch {
	uint64_t begin_ns, end_ns;
	uint64_t published_ns; /* time when its message was written; 0: not seen */
	size_t first_segment, n_segments;
	uint32_t n_files; /* files opened for reading */
};

struct service_worker {
	const struct timeline_thread *thread;
	uint32_t loader; /* loader number, from roles.worker_loaders; 0: feeds no step */
	struct service_batch *batches;
	size_t n_batches, n_allocated;
};

struct service_request {
	struct model_request request; /* wait_ns 0: no thread waited for it */
	size_t segment;
};

struct service {
	/* The job borrows the arrays below. Reads wait as long as recorded, regardless of others
	 * (latency_ns).
	 */
	struct model_job job;
	struct model_storage storage; /* server that explains the reads' waits; bytes_per_s INFINITY: none */
	struct model_segment *segments;
	size_t n_segments, n_segments_allocated;
	struct model_batch *batches;
	struct model_step *steps;
	struct model_epoch *epochs;
	struct service_worker *workers; /* by time of birth; workers that feed no step are left out */
	size_t n_workers;
	struct service_request *requests; /* reads that storage served */
	size_t n_requests, n_requests_allocated;
	struct cores cores;
	/* Threads that compute for the worker whose batches are being found, in its process. */
	const struct timeline_thread **helpers;
	size_t n_helpers;
	double helpers_ns;    /* computing time of helpers for all batches */
	size_t n_matched;     /* steps that have a batch of their own */
	double batch_samples; /* files opened per batch, median; 0: none */
	uint64_t compute_ns;  /* computing time of all batches */
	uint64_t foreign_ns;  /* time of all batches, outside of reading, in which other programs had their
			      cores */
	const char *why_not;  /* static text: why the replay cannot be used; NULL: it can */
};

/* Extracts the input, from the run of a study whose shares are set, except for the split of waits. n_cpus:
 * CPUs that the job may use; 0: not known. For a job that cannot be replayed it succeeds, with the reason in
 * `why_not`. -ENOMEM. */
int service_extract(const struct study *study, uint32_t n_cpus, struct service *ret_service);
void service_free(struct service *service);

/* Makes the job's reads wait for the storage server instead of as long as recorded, so that reads slow each
 * other down. The job then borrows *ret_segments: free it after the job. NULL: no server explains the waits,
 * and the job is unchanged. -ENOMEM. */
int service_serve(const struct service *service, struct model_job *job, struct model_segment **ret_segments);

/* Adds the segments of a batch. A part of service_extract(). -ENOMEM. */
int service_segments_add(const struct timeline_thread *thread, uint64_t begin_ns, uint64_t end_ns,
			 struct service *service, struct service_batch *batch);
/* Returns the ns of [begin_ns, end_ns) in which the thread waited for a core that the job did not have. */
uint64_t service_foreign_queue_ns(const struct service *service, const struct timeline_thread *thread,
				  uint64_t begin_ns, uint64_t end_ns);
