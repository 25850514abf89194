/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Views of chunks in the daemon's cache, for threads that read samples in any order. A chunk that was asked
 * for stays in view (and pinned in the cache) as long as somebody reads it and then until its place is needed
 * for another one, so most reads ask nobody. Chunks come by a few sessions (DIESEL_ASKED), which are opened
 * when reads wait for one another, and closed when nothing is read for a while. The first read of a chunk, if
 * it is out of the blue, asks for its sample alone; the second for all.
 *
 * Any thread.
 */

#include "client/diesel.h"
#include "dataset/snapshot.h"

struct views;
struct view;

/* say() gets lines worth telling, from any thread. The dataset is borrowed. -ENOMEM. */
int views_new(struct diesel_dataset *dataset, void (*say)(const char *line), struct views **ret);
/* No view may be held. NULL is fine. */
void views_free(struct views *v);

/*
 * The sample's bytes, as verified, until views_release(*ret_view). Waits: for storage, and for a daemon that
 * went away. -EIO: the chunk is damaged, or cannot be had, and a line has said so; -ESTALE: the dataset has
 * been replaced by another version; -EINTR: views_stop().
 */
int views_get(struct views *v, uint64_t number, const struct snapshot_sample *sample, struct view **ret_view,
	      const uint8_t **ret_data);
/* The same if it is in view already; else -EAGAIN. */
int views_look(struct views *v, uint64_t number, const struct snapshot_sample *sample, struct view **ret_view,
	       const uint8_t **ret_data);
void views_release(struct views *v, struct view *view);

/* Closes what was not used for so long. */
void views_tidy(struct views *v, uint64_t idle_ns);
/* Lets those who wait fail, and those to come. */
void views_stop(struct views *v);
