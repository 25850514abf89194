/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The registry's thread and what it shares with others.
 *
 * What callers want stands under `mutex`, which nobody holds while something is waited for. The thread works
 * on copies of it, in rounds (round.c), and alone frees groups. `calling` is held while the handler is
 * called, so that nothing is called once the registry was stopped.
 */

#include <pthread.h>

#include "dataset/registry.h"
#include "dataset/redis/redis_link.h"

/* With those that are being left, of which a user has as many again, at most. */
#define REGISTRY_SPACE (2 * REGISTRY_MAX_GROUPS)

struct registry_group {
	/* Under the mutex. */
	struct registry_entry wanted;
	bool is_changed; /* the thread has not seen it yet */
	bool leaves;

	/* The thread's own. */
	struct registry_entry self;
	bool is_renewed;        /* the server accepted it at least once */
	bool is_sick;           /* the last attempt failed: it is no longer tried together with others */
	bool was_sick;          /* when this round began */
	unsigned n_rival;       /* renewals in a row before which another node had our name */
	uint64_t trusted_ns;    /* until then, a node that is missing may only not have renewed yet */
	uint64_t read_ns;       /* when it was last read; 0: never */
	uint64_t read_again_ns; /* earliest time of the next read */
	unsigned turn;          /* among groups of its user, in this round */
	struct registry_member *members; /* as last reported to the handler */
	size_t n_members;
};

struct registry {
	pthread_t thread;
	pthread_mutex_t mutex, calling;
	pthread_cond_t changed;
	struct registry_handler handler;
	struct registry_member self;
	struct redis_settings settings;
	char prefix[REDIS_URL_PART];

	/* Under the mutex. */
	struct registry_group *groups[REGISTRY_SPACE];
	size_t n_groups;
	char *report; /* NULL: none; a new one */
	bool is_changed, stops, is_done, is_abandoned;

	/* The thread's own. */
	struct redis_link *link;
	char *next_report; /* not yet on the server */
	int server_is_up;  /* -1: not known */
	bool has_rival;
};

/* One round: all groups, or only those that are new, changed or left. */
void registry_round(struct registry *r, bool only_changed);
/* Tells the server that this node leaves everything. */
void registry_farewell(struct registry *r);
