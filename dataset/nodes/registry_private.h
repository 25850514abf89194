/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The registry's thread and what it shares with others.
 *
 * The callers' requests are protected by `mutex`, which nobody holds while waiting. The thread works on
 * copies of them, in rounds (registry.c), and only the thread frees groups. `calling` is held while the
 * handler is called, so that no handler is called after the registry was stopped.
 */

#include <pthread.h>

#include "dataset/registry.h"
#include "dataset/redis/redis_link.h"

/* Includes groups that are being left: at most as many again. */
#define REGISTRY_SPACE (2 * REGISTRY_MAX_GROUPS)

struct registry_group {
	/* Under the mutex. */
	struct registry_entry wanted;
	bool is_changed; /* the thread has not seen it yet */
	bool leaves;

	/* The thread's own. */
	struct registry_entry self;
	bool is_renewed;                 /* the server accepted it at least once */
	bool is_sick;                    /* the last attempt failed, so the group is tried by itself */
	bool was_sick;                   /* is_sick when this round began */
	unsigned n_rival;                /* consecutive renewals that found another node under our name */
	uint64_t trusted_ns;             /* until this time, a missing node may merely not have renewed yet */
	uint64_t read_ns;                /* time of the last read; 0: never */
	uint64_t read_again_ns;          /* earliest time of the next read */
	unsigned turn;                   /* rank among the groups of the same user in this round */
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
	char *report; /* a new report; NULL: none */
	bool is_changed, stops, is_done, is_abandoned;

	/* The thread's own. */
	struct redis_link *link;
	char *next_report; /* report that is not yet on the server */
	int server_is_up;  /* -1: not known */
	bool has_rival;
};
