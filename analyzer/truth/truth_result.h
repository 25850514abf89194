/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Computes the result of `truth` from its runs. Pure. Times are seconds, as the clock in the job writes them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRUTH_STEPS_MIN  5
#define TRUTH_ROUNDS_MAX 10

enum truth_kind {
	TRUTH_CACHED,
	TRUTH_COLD,
	TRUTH_SYNTHETIC,
	TRUTH_KINDS,
};

/* One run: a line of the clock. With several processes (ranks), the line of the slowest represents all. */
struct truth_clock {
	uint64_t n_steps;
	double seconds;   /* time from the first request for a batch to the end of the last step */
	double wait;      /* part of `seconds` spent in requests for batches */
	double compiling; /* part of `seconds` spent in torch.compile; NAN: not reported by PyTorch */
	uint64_t n_processes;
	bool truncated; /* the run ended at the requested number of steps */
};

/* Parses all lines of a clock's file. -EBADMSG: not in the clock's format; -ENODATA: no process had a
 * DataLoader. */
int truth_clock_parse(const char *text, struct truth_clock *ret_clock);

struct truth_round {
	struct truth_clock runs[TRUTH_KINDS];
};

struct truth_result {
	double seconds[TRUTH_KINDS];     /* time without compiling, for as many steps as the shortest run had;
					    mean over the rounds */
	double compiling_s[TRUTH_KINDS]; /* of each kind of run; NAN: unknown, and included in seconds */
	uint64_t n_steps;
	/* Shares of the cold run; they sum to 1, and noise can make one negative. Without files the cold
	 * run is a cached one, so fetching cannot be separated from preparing: both are NAN, and the other
	 * shares are means over both runs. */
	double prep, fetch, device;
	double compiling; /* NAN: not known, and included in device */
	double wait;      /* 1 - device - compiling */
	double spread;    /* largest difference of a share between rounds; 0 with one round */
};

/* n >= 1 rounds, each run with TRUTH_STEPS_MIN steps or more. has_files: there were files to evict or
 * cache. */
void truth_result_compute(const struct truth_round *rounds, size_t n, bool has_files,
			  struct truth_result *ret_result);
