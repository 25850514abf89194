/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cache with all that it works with: datasets of real files, readers in processes of their own, workers,
 * and a loop. The test itself sets the needs, claims and pins that sessions would set. Each test includes it
 * once.
 */

#include "tests/support_dataset.h"
#include "tests/support_loop.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "dataset/dataset.h"
#include "lib/log.h"

struct real_cache {
	struct cache cache;
	uv_loop_t loop;
	struct fork_server fork_server;
	struct jobs jobs;
	struct job *job;
	struct log_limit lines;
	uint32_t n_changes;
};

static inline void real_cache_on_change(void *user)
{
	((struct real_cache *)user)->n_changes++;
}

static inline struct log_limit *real_cache_lines_of(void *user, uint32_t uid)
{
	return &((struct real_cache *)user)->lines;
}

static inline void real_cache_start(struct real_cache *f)
{
	struct error err = ERROR_INIT;

	*f = (struct real_cache){.n_changes = 0};
	assert_int_equal(fork_server_fork(&f->fork_server, &err), 0);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	cache_init(&f->cache, UINT64_MAX / 2);
	assert_int_equal(pool_new(&f->loop, 2, &f->cache.pool), 0);
	assert_int_equal(read_turns_new(&f->cache.turns), 0);
	f->cache.readers = (struct readers){.loop = &f->loop,
					    .fork_server = &f->fork_server,
					    .max = 4,
					    .on_end = real_cache_on_change,
					    .user = f};
	f->cache.handler.changed = real_cache_on_change;
	f->cache.handler.lines_of = real_cache_lines_of;
	f->cache.handler.user = f;
	f->jobs = (struct jobs){.loop = &f->loop, .proc_root = "/proc"};
	f->job = jobs_join(&f->jobs, &(struct job_member){.uid = getuid(), .world = 1, .stride = 1});
	assert_non_null(f->job);
}

static inline bool real_cache_is_still(void *user)
{
	const struct cache *c = user;

	return pool_in_flight(c->pool) == 0;
}

static inline void real_cache_stop(struct real_cache *f)
{
	loop_until(&f->loop, real_cache_is_still, &f->cache);
	readers_close(&f->cache.readers);
	cache_free(&f->cache);
	assert_int_equal(f->cache.segment_bytes, 0);
	assert_int_equal(f->cache.snapshot_bytes, 0);
	assert_int_equal(f->cache.n_loading, 0);
	jobs_leave(f->job);
	jobs_close(&f->jobs);
	pool_free(f->cache.pool);
	read_turns_free(f->cache.turns);
	loop_end(&f->loop);
	fork_server_end(&f->fork_server);
}

/* Opens the dataset in this folder, as if a client had shown it. It is in the cache, and unused. The test
 * must release *ret_place. ret_place NULL: no chunk of it will be read. */
static inline struct cached_dataset *real_cache_open(struct real_cache *f, const char *path,
						     struct chunk_place **ret_place)
{
	int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    snapshot_fd = openat(dir_fd, SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC), copy_fd;
	struct error err = ERROR_INIT;
	struct cached_dataset *d = NULL;
	struct proof proof;

	if (proof_identify(dir_fd, snapshot_fd, &proof, &err) < 0 ||
	    proof_copy(&proof, snapshot_fd, &copy_fd, &err) < 0 || cached_new(&proof, copy_fd, &d, &err) < 0)
		fail_msg("%s", err.text);
	if (ret_place) {
		*ret_place = cached_add_place(d, &proof);
		assert_non_null(*ret_place);
	}
	proof_close(&proof);
	close(dir_fd);
	close(snapshot_fd);
	cache_add_dataset(&f->cache, d);
	return d;
}

/* Asserts that the sums of the cache match its contents. */
static inline void real_cache_check(const struct cache *c)
{
	uint64_t segment_bytes = 0, kept_bytes = 0, snapshot_bytes = 0;
	uint32_t n_segments = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		uint64_t held = 0, kept = 0, n_cached = 0;

		for (uint32_t i = 0; i < c->segments.size; i++) {
			const struct segment *s = c->segments.all[i];

			if (!s || s->dataset != d)
				continue;
			n_segments++;
			held += s->memory.bytes;
			n_cached += cache_is_ready(s);
			kept += cache_chunk_of(s) && cache_chunk_of(s)->kept ? s->memory.bytes : 0;
			assert_ptr_equal(cache_find_segment(c, s->id), s);
		}
		assert_int_equal(d->held_bytes, held);
		assert_int_equal(d->kept_bytes, kept);
		assert_int_equal(d->n_cached, n_cached);
		segment_bytes += held;
		kept_bytes += kept;
		snapshot_bytes += d->copy.bytes;
	}
	assert_int_equal(c->segment_bytes, segment_bytes);
	assert_int_equal(c->segments.n, n_segments);
	assert_int_equal(c->kept_bytes, kept_bytes);
	assert_int_equal(c->snapshot_bytes, snapshot_bytes);
}

/* Returns the path of a chunk of the dataset at this path. The caller frees it. */
static inline char *real_cache_file(const struct cached_dataset *d, const char *path, uint64_t chunk)
{
	char id[CHUNK_ID_TEXT], *file;
	struct snapshot_chunk meta;

	assert_int_equal(snapshot_chunk_get(d->snapshot, chunk, &meta), 0);
	chunk_id_format(&meta.id, id);
	assert_true(asprintf(&file, "%s/chunks/%s.chunk", path, id) > 0);
	return file;
}
