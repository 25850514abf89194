/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"

#include <stdio.h>
#include <string.h>

#include "analyzer/chain.h"

#include "analyzer/timeline/calls.h"
#include "lib/sorted.h"
#include "analyzer/base/times.h"

/* Maximum changes of thread between two intervals of a walk: hostile events could send it in circles. */
#define HOPS_MAX 64

const char walk_no_core_text[] = "waiting for a core";
const char walk_daemon_text[] = "waiting for dieseld to prepare data";
const char walk_peers_text[] = "waiting for chunks from other nodes";
static const char rest_text[] = "anything else";
static const char unknown_text[] = "not attributed";
const char walk_gil_text[] = "waiting for the interpreter lock (GIL)";

struct walk {
	const struct timeline *timeline;
	const struct roles *roles;
	struct tally *tally;
	uint64_t begin_ns;
	uint64_t fetch_ns;
	struct wait_chain *chain; /* NULL: only the tally */
	const struct timeline_thread *thread;
	uint64_t charged_ns; /* everything from this time on is in the chain already */
};

/* Equal texts may have several addresses: the linker does not always merge them. */
static bool same_text(const char *a, const char *b)
{
	return a == b || strcmp(a, b) == 0;
}

static struct tally_item *item_find(struct tally *tally, enum role role, const char *what, bool fetch)
{
	for (size_t i = 0; i < tally->n; i++) {
		struct tally_item *item = &tally->items[i];

		if (item->role == role && item->fetch == fetch && same_text(item->what, what))
			return item;
	}
	return NULL;
}

/* Adds ns to the item of this role, text and kind; ignores 0 ns. When the tally is nearly full, new items are
 * summed up as "anything else", fetching or not, so that no ns is lost. */
static void tally_add(struct tally *tally, enum role role, const char *what, bool fetch, uint64_t ns)
{
	struct tally_item *item = item_find(tally, role, what, fetch);

	if (!ns)
		return;
	/* The last two items are for the rest that fetches and the rest that does not. */
	if (!item && tally->n >= TALLY_MAX - 2) {
		role = ROLE_OTHER;
		what = rest_text;
		item = item_find(tally, role, what, fetch);
	}
	if (!item) {
		item = &tally->items[tally->n++];
		*item = (struct tally_item){.role = role, .what = what, .fetch = fetch};
	}
	item->ns += ns;
}

static bool call_fetches(const struct timeline_thread *thread, const struct timeline_call *call,
			 enum role role)
{
	bool loads = role == ROLE_WORKER || role == ROLE_LOADER;

	/* A worker's main thread uses sockets only for its data. Hand-off threads also use others, but
	 * only within the machine. */
	return call_is_file_read(call) || call_is_network(call) || (loads && call_is_socket(call)) ||
	       (loads && thread->uses_network && call_is_wait_any(call));
}

/* Returns the cause (MARK_CAUSE_*) of libdiesel's sleep at at_ns, by the mark at its end; 0: it did not
 * sleep. */
static uint64_t marked_cause(const struct timeline_thread *thread, uint64_t at_ns)
{
	size_t next = sorted_count(thread->n_marks, i, thread->marks[i].at_ns <= at_ns);
	bool waits = next && next < thread->n_marks && thread->marks[next - 1].kind == MARK_WAIT_BEGIN &&
		     thread->marks[next].kind == MARK_WAIT_END;

	return waits ? thread->marks[next].value : 0;
}

const char *walk_fetching(const struct timeline_thread *thread, enum role role, uint64_t at_ns)
{
	const struct timeline_call *call = timeline_call_at(thread, at_ns);

	if (call && call_fetches(thread, call, role))
		return call_describe(call);
	/* The chunks that a batch needs were not in memory. */
	switch (marked_cause(thread, at_ns)) {
	case MARK_CAUSE_FETCH: return "waiting for chunks";
	case MARK_CAUSE_PEERS: return walk_peers_text;
	case MARK_CAUSE_STAGING: return "waiting for chunks from staging";
	}
	return NULL;
}

uint64_t walk_fetch_calls(const struct timeline_thread *thread, enum role role, uint64_t begin_ns,
			  uint64_t end_ns)
{
	uint64_t sum_ns = 0;

	for (size_t i = timeline_call_from(thread, begin_ns); i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];

		if (call->begin_ns >= end_ns)
			break;
		if (call_fetches(thread, call, role))
			sum_ns += timeline_call_busy(call, begin_ns, end_ns);
	}
	return sum_ns;
}

static const char *computing(const struct walk *walk, enum role role)
{
	switch (role) {
	case ROLE_TRAINER:
		/* There are no workers, or they are diesel_loader's, which share no pipe with the trainer. */
		return walk->roles->n_workers || walk->roles->n_loaders ? "taking over the batch"
									: "preparing or taking over a batch";
	case ROLE_HANDOFF: return "handing batches over";
	case ROLE_LOADER:
	case ROLE_WORKER: return "decoding and transforming";
	case ROLE_HELPER:
	case ROLE_OTHER: break;
	}
	return "computing";
}

/* Adds a piece to the chain. Charges come without a gap from the end of the wait to its start, so each one's
 * time is known. */
static void chain_add(struct walk *walk, enum role role, const char *what, bool fetch, uint64_t ns)
{
	struct wait_chain *chain = walk->chain;
	struct wait_piece *last = chain->n ? &chain->pieces[chain->n - 1] : NULL;
	uint64_t end_ns = walk->charged_ns;

	walk->charged_ns -= ns;
	if (last && last->begin_ns == end_ns && last->tid == walk->thread->tid && last->fetch == fetch &&
	    same_text(last->what, what)) {
		last->begin_ns = walk->charged_ns;
		return;
	}
	if (!ns || chain->n == WAIT_CHAIN_MAX)
		return;
	last = &chain->pieces[chain->n++];
	*last = (struct wait_piece){.begin_ns = walk->charged_ns,
				    .end_ns = end_ns,
				    .tid = walk->thread->tid,
				    .what = what,
				    .fetch = fetch};
	snprintf(last->role, sizeof(last->role), "%s", role_name(role));
	snprintf(last->name, sizeof(last->name), "%s", walk->thread->comm);
}

static void charge(struct walk *walk, enum role role, const char *what, bool fetch, uint64_t ns)
{
	if (walk->chain)
		chain_add(walk, role, what, fetch, ns);
	tally_add(walk->tally, role, what, fetch, ns);
	if (fetch)
		walk->fetch_ns += ns;
}

/* Returns true if a worker starts up: imports, from any disk, are neither fetching nor preparing. */
static bool starts_up(const struct walk *walk, const struct timeline_thread *thread, uint64_t at_ns)
{
	return at_ns <= roles_started_ns(walk->roles, thread);
}

static void charge_unknown(struct walk *walk, uint64_t ns)
{
	charge(walk, ROLE_OTHER, unknown_text, false, ns);
}

/* Charges a thread that was seen to run at to_ns and was not off its CPU since from_ns. That holds after its
 * last record and before its first one, too, because a sleep leaves a record when it ends. */
static void charge_run(struct walk *walk, const struct timeline_thread *thread, uint64_t from_ns,
		       uint64_t to_ns)
{
	enum role role = role_of(walk->timeline, walk->roles, thread);
	uint64_t started_ns = min_ns(max_ns(roles_started_ns(walk->roles, thread), from_ns), to_ns);
	uint64_t fetch_ns = walk_fetch_calls(thread, role, started_ns, to_ns);

	charge(walk, role, "in file calls, on the CPU", true, fetch_ns);
	charge(walk, role, computing(walk, role), false, to_ns - started_ns - fetch_ns);
	charge(walk, role, "starting up", false, started_ns - from_ns);
}

static const char *asleep(const struct timeline_thread *thread, const struct timeline_off *off)
{
	const struct timeline_call *call = timeline_call_at(thread, off->begin_ns);

	if (off->flags & EVENT_FLAG_CODE)
		return "loading programs and libraries";
	if (marked_cause(thread, off->begin_ns) == MARK_CAUSE_PREP)
		return walk_daemon_text;
	return call ? call_describe(call) : "asleep";
}

/* Charges the time within `off` up to *at_ns, and moves *at_ns back. Returns the thread with which the walk
 * continues. */
static const struct timeline_thread *step_off(struct walk *walk, const struct timeline_thread *thread,
					      const struct timeline_off *off, uint64_t *at_ns)
{
	enum role role = role_of(walk->timeline, walk->roles, thread);
	uint64_t from_ns = off->waking_ns > walk->begin_ns ? off->waking_ns : walk->begin_ns, held_ns;
	const struct timeline_thread *waker;
	const char *fetching;

	if (from_ns < *at_ns) {
		/* Without the sleep for storage, the thread would not have had to queue, as the replay
		 * has it. */
		bool fetches =
		    !starts_up(walk, thread, *at_ns) && off->waking_ns > off->begin_ns && !off->waker_tid &&
		    ((off->flags & EVENT_FLAG_MAJOR_FAULT) || walk_fetching(thread, role, off->begin_ns));

		charge(walk, role, walk_no_core_text, fetches, *at_ns - from_ns);
		*at_ns = from_ns;
	}
	if (*at_ns <= walk->begin_ns || *at_ns <= off->begin_ns)
		return thread;
	from_ns = off->begin_ns > walk->begin_ns ? off->begin_ns : walk->begin_ns;
	if (off->state == TIMELINE_UNKNOWN) {
		charge_unknown(walk, *at_ns - from_ns);
		*at_ns = from_ns;
		return thread;
	}
	if (gil_waits(&walk->roles->gil, thread, off)) {
		held_ns = gil_held_ns(walk->timeline, thread, from_ns, *at_ns);
		charge(walk, role, walk_gil_text, false, held_ns);
		charge(walk, role, walk_no_core_text, false, *at_ns - from_ns - held_ns);
		*at_ns = from_ns;
		return thread;
	}
	fetching = off->flags & EVENT_FLAG_MAJOR_FAULT ? "reading mapped files"
						       : walk_fetching(thread, role, off->begin_ns);
	if (starts_up(walk, thread, *at_ns))
		fetching = NULL;
	if (!fetching && off->waker_tid && *at_ns == off->waking_ns) {
		waker = timeline_find(walk->timeline, off->waker_tid, *at_ns);
		if (waker && waker != thread)
			return waker;
	}
	charge(walk, role, fetching ? fetching : asleep(thread, off), fetching, *at_ns - from_ns);
	*at_ns = from_ns;
	return thread;
}

/* Before the thread's birth, continues the walk with its creator. */
static const struct timeline_thread *step_birth(struct walk *walk, const struct timeline_thread *thread,
						uint64_t *at_ns)
{
	const struct timeline_thread *creator =
	    thread->creator_tid ? timeline_find(walk->timeline, thread->creator_tid, *at_ns) : NULL;

	if (creator && creator != thread && creator->born_ns < *at_ns)
		return creator;
	charge_unknown(walk, *at_ns - walk->begin_ns);
	*at_ns = walk->begin_ns;
	return thread;
}

static void walk_back(struct walk *walk, uint64_t end_ns)
{
	const struct timeline_thread *thread = walk->roles->trainer;
	uint64_t at_ns = end_ns, moved_ns = end_ns, begin_ns = walk->begin_ns;
	unsigned int hops = 0;

	while (at_ns > begin_ns) {
		const struct timeline_off *off = timeline_off_before(thread, at_ns);
		uint64_t ran_ns = off && off->end_ns > begin_ns ? off->end_ns : begin_ns;

		walk->thread = thread;
		if (ran_ns < thread->born_ns)
			ran_ns = thread->born_ns;
		if (ran_ns < at_ns) {
			charge_run(walk, thread, ran_ns, at_ns);
			at_ns = ran_ns;
		}
		if (at_ns > begin_ns && at_ns <= thread->born_ns)
			thread = step_birth(walk, thread, &at_ns);
		else if (at_ns > begin_ns && off)
			thread = step_off(walk, thread, off, &at_ns);
		hops = at_ns < moved_ns ? 0 : hops + 1;
		moved_ns = at_ns;
		if (hops > HOPS_MAX) {
			charge_unknown(walk, at_ns - begin_ns);
			break;
		}
	}
}

uint64_t walk_wait(const struct timeline *timeline, const struct roles *roles, uint64_t begin_ns,
		   uint64_t end_ns, struct tally *tally)
{
	struct walk walk = {.timeline = timeline, .roles = roles, .tally = tally, .begin_ns = begin_ns};

	walk_back(&walk, end_ns);
	return walk.fetch_ns;
}

void walk_chain(const struct timeline *timeline, const struct roles *roles, struct wait_chain *chain)
{
	struct tally tally = {.n = 0};
	struct walk walk = {.timeline = timeline,
			    .roles = roles,
			    .tally = &tally,
			    .begin_ns = chain->wait_begin_ns,
			    .chain = chain,
			    .charged_ns = chain->wait_end_ns};

	walk_back(&walk, chain->wait_end_ns);
}
