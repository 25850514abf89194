/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Views of chunks in the daemon's cache, for threads that read samples in any order. A requested chunk stays
 * in view (and pinned in the cache) while a thread reads it and then until its slot is needed for another
 * one, so most reads need no request. Chunks come from a few sessions (DIESEL_ASKED), opened when reads wait
 * for one another, and closed when idle. The first random read in a chunk requests only that sample; the
 * second read requests all samples.
 *
 * Thread-safe.
 */

#include "client/diesel.h"
#include "dataset/snapshot.h"

struct views;
struct view;

/* say() reports lines, from any thread. The dataset is borrowed. -ENOMEM. */
int views_new(struct diesel_dataset *dataset, void (*say)(const char *line), struct views **ret);
/* Frees the views; the caller must hold none. NULL is fine. */
void views_free(struct views *v);

/*
 * Gets the sample's verified bytes, valid until views_release(*ret_view). Waits for storage, and for a daemon
 * that is down. -EACCES: access to the chunk is refused; -EIO: it is damaged or unavailable; a line has
 * reported both; -ESTALE: another version has replaced the dataset; -EINTR: views_stop().
 */
int views_get(struct views *v, uint64_t number, const struct snapshot_sample *sample, struct view **ret_view,
	      const uint8_t **ret_data);
/* Like views_get(), but returns -EAGAIN if the sample is not in view already. */
int views_look(struct views *v, uint64_t number, const struct snapshot_sample *sample, struct view **ret_view,
	       const uint8_t **ret_data);
void views_release(struct views *v, struct view *view);

/* Releases views and closes sessions that were unused for idle_ns. */
void views_tidy(struct views *v, uint64_t idle_ns);
/* Makes waiting and future calls of views_get() fail. */
void views_stop(struct views *v);
