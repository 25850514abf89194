/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who says what to whom; all are copies of one program, each datagram is one struct.
 *
 *   daemon                watcher (nobody, BPF)            keeper (root)
 *                     <-  assist_job, once a second
 *                         fork_server_start()               -> forks a reader, which becomes the job's user
 *                         reader
 *                         assist_order, then records, one behind another   ->
 *                     <-  assist_told, once a second
 *
 * The reader is the one that looks at what the job wrote, and it has no more rights than the job.
 */

#include "assist.h"
#include "bpf/index_watch.h"

struct assist_order {
	int64_t pid;
	uint64_t start_ticks;
	uint32_t uid, gid; /* that it had when it wrote indices */
};

/* What a reader says. It is taken for nothing but words and figures of its own job. */
struct assist_told {
	uint32_t state; /* enum assist_state */
	uint32_t charged;
	struct assist_figures figures;
	char why[200];
};

#define ASSIST_FEED_BYTES 65536 /* of records, in one datagram */

extern bool
    assist_only_observes; /* see assist_fork(): set before its keeper is there, and never after that */

/* The reader, and the watcher: return their exit status. */
int assist_reader_run(int fd);
int assist_watch_run(const struct kept_helper *self);
