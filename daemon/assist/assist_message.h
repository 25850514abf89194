/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who says what to whom; all are copies of one program, each datagram is one struct.
 *
 *   daemon                watcher (nobody, BPF)            keeper (root)
 *                     <-  assist_job, once a second
 *                         assist_order, descriptor      -> forks a reader with the job's rights
 *                         reader
 *                         records, one behind another   ->
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

/* The reader: returns its exit status. observe: see assist_fork(). */
int assist_reader_run(int fd, const struct assist_order *order, bool observe);
/* The watcher: returns when the daemon is gone. */
void assist_watch_run(int daemon_fd, int keeper_fd);
