/* SPDX-License-Identifier: Apache-2.0 */
#include "borrow_watch.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/units.h"

/* A fall of less than 1/FALL_PART of the reserve is normal fluctuation. */
#define FALL_PART 16
/* Fires if tasks waited for 50 ms within a second. Without privilege, windows must be of two seconds. */
#define TRIGGER       "some 50000 1000000"
#define TRIGGER_PLAIN "some 100000 2000000"

/* Returns the number after a name in one of the kernel's tables of names and numbers. NAN: not found. */
static double table_number(const char *root, const char *table, const char *name)
{
	char path[512], line[128];
	size_t length = strlen(name);
	_cleanup_(fclosep) FILE *f = NULL;

	snprintf(path, sizeof(path), "%s/proc/%s", root, table);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == ':'))
			return strtod(line + length + 1, NULL);
	}
	return NAN;
}

/* Subtracts page cache in use from the headroom, which counts it as available although its readers still need
 * it. */
static void leave_active_files(const char *root, struct stall_node *node)
{
	double available = table_number(root, "meminfo", "MemAvailable") * 1024;
	double active = table_number(root, "meminfo", "Active(file)") * 1024;

	if (available >= 0 && active >= 0)
		node->memory_headroom_bytes = fmin(node->memory_headroom_bytes, fmax(available - active, 0));
}

static double refaulted(struct borrow_watch *w)
{
	double pages = table_number(w->root, "vmstat", "workingset_activate_file"), since;
	uint64_t bytes = pages >= 0 ? (uint64_t)pages * 4096 : 0;

	since = w->refaulted && bytes > w->refaulted ? (double)(bytes - w->refaulted) : 0;
	w->refaulted = bytes;
	return since;
}

static void say_short(struct borrow_watch *w, uint64_t ceiling)
{
	char text[16];

	if ((ceiling < w->cache->limit_bytes) == w->is_said)
		return;
	w->is_said = !w->is_said;
	if (w->is_said)
		log_warning("cache: the node is short of memory; all borrowed memory was evicted, and the "
			    "cache may use only %s for now, less than jobs claim. Evicted chunks are read "
			    "again when needed",
			    units_format_bytes(text, sizeof(text), ceiling));
	else
		log_info("cache: the node has enough memory again; the cache may use up to cache-max");
}

void borrow_watch_sample(struct borrow_watch *w)
{
	const struct borrow_use use = {.total = cache_total_bytes(w->cache),
				       .borrowed = cache_borrowed_bytes(w->cache),
				       .limit = w->cache->limit_bytes};
	uint64_t now_ns = clock_monotonic_ns();
	struct borrow_limits limits;
	struct stall_node node = node_watch_sample(&w->node, now_ns);

	leave_active_files(w->root, &node);
	w->reserve_bytes = stall_reserve_bytes(node.memory_limit_bytes);
	w->sampled_ns = now_ns;
	w->unused_bytes = (double)limits_unused_bytes(w->root);
	w->left_bytes = node.memory_headroom_bytes;
	/* Memory that is being returned to the system counts as headroom already. */
	node.memory_headroom_bytes += (double)w->cache->releasing_bytes;
	limits = borrow_decide(&w->borrow, &node, refaulted(w), &use, now_ns);
	cache_limit(w->cache, limits.borrowed, limits.total);
	say_short(w, limits.total);
	w->unused_bytes += (double)w->cache->releasing_bytes;
	w->promised_bytes = w->left_bytes + (double)w->cache->releasing_bytes;
}

/* Returns true if other programs have taken so much memory since the last sample that the cache may have
 * to give memory back. A full sample costs more, and on large machines much more. */
static bool has_fallen(struct borrow_watch *w)
{
	double releasing = (double)w->cache->releasing_bytes;
	double fell = w->unused_bytes - (double)limits_unused_bytes(w->root) - releasing;

	w->left_bytes = w->promised_bytes - releasing - fell;
	return fell > w->reserve_bytes / FALL_PART && w->promised_bytes - fell < 2 * w->reserve_bytes;
}

static void on_timer(uv_timer_t *timer)
{
	struct borrow_watch *w = timer->data;

	if (clock_monotonic_ns() >= w->sampled_ns + BORROW_PAUSE_MOST_MS * NS_PER_MS || has_fallen(w))
		borrow_watch_sample(w);
	borrow_watch_update(w);
}

static void on_trigger(uv_poll_t *poll, int status, int events)
{
	struct borrow_watch *w = poll->data;

	if (status < 0)
		uv_poll_stop(poll);
	else
		borrow_watch_sample(w);
}

static int set_trigger(const char *path, const char *trigger)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && write(fd, trigger, strlen(trigger) + 1) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void start_trigger(struct borrow_watch *w, uv_loop_t *loop)
{
	const char *path = w->node.memory_pressure;

	w->trigger_fd = path[0] ? set_trigger(path, TRIGGER) : -1;
	if (w->trigger_fd < 0 && path[0])
		w->trigger_fd = set_trigger(path, TRIGGER_PLAIN);
	if (w->trigger_fd >= 0 && uv_poll_init(loop, &w->trigger, w->trigger_fd) < 0)
		closep(&w->trigger_fd);
	if (w->trigger_fd < 0) {
		w->trigger_fd = -EBADF;
		return;
	}
	w->trigger.data = w;
	uv_unref((uv_handle_t *)&w->trigger);
	uv_poll_start(&w->trigger, UV_PRIORITIZED, on_trigger);
}

void borrow_watch_start(struct borrow_watch *w, uv_loop_t *loop, const char *root, struct cache *cache)
{
	*w = (struct borrow_watch){.cache = cache, .root = root};
	node_watch_init(&w->node, root);
	uv_timer_init(loop, &w->timer);
	w->timer.data = w;
	uv_unref((uv_handle_t *)&w->timer);
	start_trigger(w, loop);
}

void borrow_watch_update(struct borrow_watch *w)
{
	if (w->cache->segments.n == 0 && w->cache->decoded_cache.bytes == 0 &&
	    w->cache->kept_batches.bytes == 0) {
		uv_timer_stop(&w->timer);
		w->sampled_ns = 0;
	} else if (!uv_is_active((uv_handle_t *)&w->timer)) {
		if (!w->sampled_ns)
			borrow_watch_sample(w);
		uv_timer_start(&w->timer, on_timer,
			       borrow_pause_ms(w->left_bytes, (double)w->node.limits.machine_bytes), 0);
	}
}

static void on_trigger_closed(uv_handle_t *handle)
{
	struct borrow_watch *w = handle->data;

	closep(&w->trigger_fd);
}

void borrow_watch_stop(struct borrow_watch *w)
{
	uv_close((uv_handle_t *)&w->timer, NULL);
	if (w->trigger_fd >= 0)
		uv_close((uv_handle_t *)&w->trigger, on_trigger_closed);
}
