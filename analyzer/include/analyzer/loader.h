/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the job loads its data, by its observed behaviour. */
enum analysis_loader {
	LOADER_NONE,    /* no data wait was seen */
	LOADER_WORKERS, /* worker processes hand batches over through a pipe */
	LOADER_INLINE,  /* the trainer reads files itself */
	LOADER_DIESEL,  /* libdiesel marks the times when the trainer waits */
	LOADER_THREADS, /* threads of the trainer's process hand batches over */
};

/* How data waits were divided into fetch and prep. */
enum analysis_method {
	METHOD_NONE,
	METHOD_WALK,    /* wake-up chains, followed back from the end of each wait */
	METHOD_REPLAY,  /* replay of the recorded batches, with fetch at zero */
	METHOD_MARKS,   /* libdiesel's marks name the cause of each delay */
	METHOD_SAMPLED, /* sampled without privilege: the stall model's quick answer on sums */
};
