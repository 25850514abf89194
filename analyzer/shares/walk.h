/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Explains a wait: follows the wake-ups back from its end, through the threads that ended each sleep, to the
 * thread and call that delayed the trainer. Only wake-ups by a task of the job are followed; a sleep that an
 * interrupt ended is charged to the sleeper (its disk, its network, its timer). Every ns of the wait is
 * charged once; unknown time of a thread is "not attributed". Only the replay can compute how much of the
 * wait faster storage would remove, because the walk does not see that fetching overlaps.
 */

#include "analyzer/roles/roles.h"
#include "analyzer/timeline/timeline.h"

#define TALLY_MAX 64

struct tally_item {
	enum role role;
	const char *what; /* static text */
	bool fetch;
	uint64_t ns;
};

struct tally {
	struct tally_item items[TALLY_MAX];
	size_t n;
};

/* Texts for a thread that waits: for the interpreter lock, for a core, for a batch that dieseld decodes,
 * verifies or copies, and for chunks that other nodes of the job send. */
extern const char walk_gil_text[], walk_no_core_text[], walk_daemon_text[], walk_peers_text[];

/* Returns the ns of [begin_ns, end_ns) that are charged to fetching; adds all of it to the tally. */
uint64_t walk_wait(const struct timeline *timeline, const struct roles *roles, uint64_t begin_ns,
		   uint64_t end_ns, struct tally *tally);

struct wait_chain;

/* Fills in the pieces of the chain's wait. */
void walk_chain(const struct timeline *timeline, const struct roles *roles, struct wait_chain *chain);

/* Returns a static description if the thread reads data at that time: in a file call, a page fault, on a
 * worker's socket, or waiting for chunks in libdiesel. Else NULL. */
const char *walk_fetching(const struct timeline_thread *thread, enum role role, uint64_t at_ns);

/* Returns the ns of [begin_ns, end_ns) in calls that fetch, on the CPU or off it. */
uint64_t walk_fetch_calls(const struct timeline_thread *thread, enum role role, uint64_t begin_ns,
			  uint64_t end_ns);
