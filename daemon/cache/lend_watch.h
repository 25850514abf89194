/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Looks at the node's memory to say how much the cache may borrow, and how much it may take at all: once a
 * second while anything is in memory, sooner where little is left (lend_pause_ms()), and at once when the
 * kernel says that tasks wait for memory (a PSI trigger, where it may be set). Without segments it sleeps.
 * Loop thread only.
 */

#include <uv.h>

#include "cache.h"
#include "lend.h"
#include "daemon/node/sensor_node.h"

struct lend_watch {
	struct cache *cache;
	const char *root; /* in front of /proc and /sys: "" on a real machine */
	struct lend lend;
	struct node_watch node;
	uint64_t looked_ns; /* the last look; 0: none yet */
	/* As of then: limits_unused_bytes() with what was on its way back, and the headroom with that. */
	double unused_bytes, promised_bytes, reserve_bytes;
	double left_bytes;  /* the headroom, as it is guessed since */
	bool is_said;       /* that claims give way is in the log */
	uint64_t refaulted; /* the kernel's counter, bytes; 0: never seen */
	int trigger_fd;     /* -EBADF: none */
	uv_poll_t trigger;
	uv_timer_t timer;
};

/* Borrows the cache and root. */
void lend_watch_start(struct lend_watch *w, uv_loop_t *loop, const char *root, struct cache *cache);
/* Takes one look, and tells the cache what it may borrow. */
void lend_watch_look(struct lend_watch *w);
/* After sessions or segments came or went: sleeps or wakes up. */
void lend_watch_update(struct lend_watch *w);
/* The loop must run once more. */
void lend_watch_stop(struct lend_watch *w);
