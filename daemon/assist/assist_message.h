/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between the processes of assist, which all run the same program. Each datagram is one struct.
 *
 *   daemon                watcher (nobody, BPF)            keeper (root)
 *                     <-  assist_job, once a second
 *                         fork_server_start()               -> forks a reader, which becomes the job's user
 *                         reader
 *                         assist_order, then records, one behind another   ->
 *                     <-  assist_told, once a second
 *
 * Only the reader looks at data that the job wrote, and it has no more rights than the job.
 */

#include "assist.h"
#include "bpf/index_watch.h"

struct assist_order {
	int64_t pid;
	uint64_t start_ticks;
	uint32_t uid, gid; /* IDs of the job when it wrote indices */
};

/* Report of a reader. It is trusted only for words and figures about its own job. */
struct assist_told {
	uint32_t state; /* enum assist_state */
	uint32_t charged;
	struct assist_figures figures;
	char why[200];
};

#define ASSIST_FEED_BYTES 65536 /* maximum bytes of records in one datagram */

extern bool assist_only_observes; /* assist_fork() sets it before it forks the keeper */

/* Each runs one process, the reader or the watcher, and returns its exit status. */
int assist_reader_run(int fd);
