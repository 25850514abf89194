/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decoded forms that are had from the node that owns a chunk, for samples of it that a batch is about to
 * decode (form_answer.h). They are used by that batch and go with it: where they are kept is the owner.
 *
 * Nothing depends on them. What does not come in time, or is not what was decoded, is decoded here. Loop
 * thread only, unless it says so.
 */

#include "cluster.h"
#include "form_answer.h"
#include "forms.h"
#include "pool.h"

struct job;
struct sharer;

#define FORM_ASKS_MAX 24 /* under way at one time: chunks need the connections, too */

struct form_ask {
	struct cluster_read read;
	struct pool_task task;
	struct cache *cache;
	struct sharer *sharer;
	struct job *job;
	struct checksum_128 key;
	uint64_t first_sample, begin_ns;
	struct net_range *runs;
	uint32_t n_runs, n_asked;
	struct form_extent *memory;     /* pinned once; a form lies at its entry's offset */
	struct form_answer_entry *came; /* those that are what was decoded */
	uint32_t n_came;
	bool is_spoilt; /* some were not */
	int result;
	void (*done)(struct form_ask *ask);
	void *user;
};

/* Asks for the forms of these samples of the chunk, which are in order. bytes: of all of them, about. Returns
 * 0: done() is called later, with what came, and frees it by form_ask_free(); negative: it is not asked. */
int form_ask_begin(struct sharer *m, struct job *job, const struct forms *f, uint64_t chunk,
		   const uint64_t *samples, uint32_t n, uint64_t bytes, void (*done)(struct form_ask *ask),
		   void *user);
void form_ask_free(struct form_ask *ask);
