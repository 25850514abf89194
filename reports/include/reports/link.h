/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a job had from its other nodes, as `dieselctl status --json` says of it: for what-if with many nodes.
 */

#include <stdint.h>
#include <stdio.h>

#include "lib/error.h"

struct report_link {
	double bytes_per_s; /* while any chunk was asked for */
	double latency_s;   /* of a chunk, without the time that its own bytes take at that rate */
	uint64_t job;       /* the one that had most; the daemon's number */
	uint64_t n_nodes;   /* that it ran on */
};

/* name: for errors. -ENODATA: no job there has had chunks from other nodes of late; -EBADMSG: it is not what
 * dieselctl says. */
int report_link_read(FILE *stream, const char *name, struct report_link *ret, struct error *err);
