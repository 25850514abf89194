/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples the node's memory and sets how much the cache may borrow, and how much it may take in total.
 * Samples once per second while anything is in memory, sooner when headroom is low (borrow_pause_ms()), and
 * at once when the kernel reports that tasks wait for memory (a PSI trigger, if one may be set). Sleeps while
 * the cache is empty. Loop thread only.
 */

#include <uv.h>

#include "cache.h"
#include "borrow.h"
#include "daemon/node/sensor_node.h"

struct borrow_watch {
	struct cache *cache;
	const char *root; /* prefix of /proc and /sys: "" on a real machine */
	struct borrow borrow;
	struct node_watch node;
	uint64_t sampled_ns; /* time of the last sample; 0: none yet */
	/* At the last sample: limits_unused_bytes() and the headroom, both including the memory that is
	 * being returned to the system; and the reserve. */
	double unused_bytes, promised_bytes, reserve_bytes;
	double left_bytes;  /* the headroom, estimated between samples */
	bool is_said;       /* true: the log has a line about the cut of claims */
	uint64_t refaulted; /* the kernel's counter, in bytes; 0: never read */
	int trigger_fd;     /* -EBADF: none */
	uv_poll_t trigger;
	uv_timer_t timer;
};

/* Starts sampling. cache and root must outlive the watch. */
void borrow_watch_start(struct borrow_watch *w, uv_loop_t *loop, const char *root, struct cache *cache);
/* Takes one sample, and sets the cache's limits. */
void borrow_watch_sample(struct borrow_watch *w);
/* Sleeps or wakes up. Call after sessions or segments came or went. */
void borrow_watch_update(struct borrow_watch *w);
/* Stops sampling. The loop must run once more. */
void borrow_watch_stop(struct borrow_watch *w);
