/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Divides the trainer's time into shares, from samples. Its CPU time and its time in the run queue are exact,
 * so the sum of its sleep is, too. A sleep seen by several samples is known from the first to the last of
 * them; the rest of the sleep is charged in the proportions that the samples show.
 *
 * - Window. With workers: from the first wait at the result pipe to the last batch that came, and one step's
 *   computing. Inline: the steps that read about as much as the others, so that imports are left out.
 *   Otherwise all of the trainer's time.
 * - Data wait. With workers: asleep at a pipe or in the handshake over a socket; or in a futex where another
 *   thread of the process waits at the pipe or loads, and none computes. Without workers: within a loader's
 *   next() if its Python stack was read, else outside of computing. Computing is a pause between reads that
 * is long compared with the others.
 * - Checkpoint: samples in which more than 64 KiB were written, samples that found the trainer writing or
 *   syncing a file, and the samples between them.
 */

#include "analyzer/analysis.h"
#include "sampled_job.h"

struct sampled_interval {
	uint64_t begin_ns, end_ns;
};

struct sampled_trainer {
	enum analysis_loader loader;
	uint64_t begin_ns, end_ns; /* the window; equal times: none */
	/* sum to the window */
	uint64_t wait_ns;
	uint64_t checkpoint_ns;
	uint64_t compiling_ns;
	uint64_t starved_ns;
	uint64_t other_ns;
	uint64_t device_ns;
	uint64_t nap_ns;       /* part of other_ns: plain sleeps */
	uint64_t gil_ns;       /* part of starved_ns: at the interpreter lock */
	double computing_part; /* part of its CPU time outside waits that is in the model; NAN: not known */
	uint64_t fetch_ns;     /* inline: part of wait_ns, blocked in file calls; else 0 */
	uint64_t own_prep_ns;  /* part of wait_ns: the trainer itself computed, or lacked a core; 0 where not
				  known */
	uint64_t process_ns;   /* CPU time of all threads of its process in the window */
	uint64_t uncertain_ns; /* sleep whose share is estimated; determines the interval */
	uint64_t read_bytes;
	size_t n_samples;                   /* samples in the window */
	size_t n_steps;                     /* estimate; 0: not known */
	bool compiling_known;               /* its Python stack was read */
	struct sampled_interval *computing; /* intervals between loading, if known */
	size_t n_computing;
	bool guessed;         /* placed, but by an iterator that may not be a loader */
	bool placed;          /* its Python stack showed when it loads */
	double edge_error_ns; /* standard deviation, of all borders between loading and computing together */
	struct sampled_interval *checkpoints;
	size_t n_checkpoints;
};

/* -ENOMEM. */
int sampled_trainer_find(const struct sampled_job *job, struct sampled_trainer *ret_trainer);
void sampled_trainer_free(struct sampled_trainer *trainer);

/* Returns the loader in whose next() the thread was mostly seen, by its Python stack;
 * SAMPLE_PLACE_OUTSIDE: in none; SAMPLE_PLACE_UNKNOWN: its stack was not read. */
enum sample_place sampled_place(const struct sampled_thread *thread);
