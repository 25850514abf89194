/* SPDX-License-Identifier: Apache-2.0 */
/* Batch buffers that several sessions share. Whatever one session holds, the others have a buffer for each of
 * their slots. The memory in use is that of the present sessions. */
#include "tests/unit/test.h"

#include <string.h>
#include <sys/stat.h>

#include "daemon/serve/batch_buffers.h"

#define BYTES UINT64_C(8192)

struct scene {
	uv_loop_t loop;
	struct cache cache;
	uint32_t n_changes;
};

static void on_change(void *user)
{
	((struct scene *)user)->n_changes++;
}

static void scene_begin(struct scene *c)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(uv_loop_init(&c->loop), 0);
	assert_int_equal(pool_new(&c->loop, 1, &c->cache.pool), 0);
	pool_lane_init(&c->cache.release_lane, POOL_DAEMON);
	c->cache.handler.changed = on_change;
	c->cache.handler.user = c;
}

static void wait_for_pool(struct scene *c)
{
	while (pool_in_flight(c->cache.pool) > 0)
		uv_run(&c->loop, UV_RUN_ONCE);
}

static void scene_end(struct scene *c)
{
	wait_for_pool(c);
	assert_int_equal(c->cache.releasing_bytes, 0);
	pool_free(c->cache.pool);
	uv_run(&c->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&c->loop), 0);
}

/* Takes a buffer, and writes to its memory. */
static uint32_t take(struct buffers *f)
{
	uint32_t buffer = batch_buffers_take(f);

	assert_int_not_equal(buffer, BATCH_BUFFER_NONE);
	memset(batch_buffers_at(f, buffer), 1, BYTES);
	return buffer;
}

static void hold(struct buffers *f, uint32_t buffer, uint64_t index)
{
	batch_buffers_hold(f, buffer, &(struct buffer_batch){.epoch = 2, .index = index, .n_items = 3});
}

static uint64_t memory_of(const struct buffers *f)
{
	struct stat st;

	assert_int_equal(fstat(f->memory.fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

TEST(the_oldest_is_used_again)
{
	uint32_t first, second, third;
	struct scene c;
	struct buffers *f;

	scene_begin(&c);
	assert_int_equal(batch_buffers_new(&c.cache, BYTES, 6, true, &f), 0);
	assert_int_equal(batch_buffers_join(f, 3), 1);
	first = take(f);
	hold(f, first, 10);
	second = take(f);
	hold(f, second, 11);
	third = take(f);
	assert_int_equal(batch_buffers_take(f), BATCH_BUFFER_NONE);
	assert_int_equal(batch_buffers_find(f, 2, 10), first);
	assert_int_equal(batch_buffers_find(f, 2, 11), second);
	assert_int_equal(batch_buffers_find(f, 1, 10), BATCH_BUFFER_NONE);
	assert_int_equal(batch_buffers_find(f, 2, 12), BATCH_BUFFER_NONE);
	batch_buffers_unref(f, second);
	batch_buffers_unref(f, first);
	assert_int_equal(batch_buffers_find(f, 2, 10), first); /* kept until its buffer is reused */
	batch_buffers_ref(f, second);
	assert_int_equal(take(f), first);
	assert_int_equal(batch_buffers_find(f, 2, 10), BATCH_BUFFER_NONE);
	assert_int_equal(batch_buffers_take(f), BATCH_BUFFER_NONE);
	for (uint32_t i = 0; i < 3; i++)
		batch_buffers_unref(f, (uint32_t[]){first, second, third}[i]);
	batch_buffers_leave(f, 3);
	scene_end(&c);
}

TEST(who_is_alone_uses_warm_memory)
{
	struct scene c;
	struct buffers *f;
	uint32_t buffer;

	scene_begin(&c);
	assert_int_equal(batch_buffers_new(&c.cache, BYTES, 4, false, &f), 0);
	assert_int_equal(batch_buffers_join(f, 4), 1);
	assert_int_equal(batch_buffers_join(f, 1), 0);
	for (int i = 0; i < 9; i++) {
		buffer = take(f);
		batch_buffers_unref(f, buffer);
	}
	assert_int_equal(f->n_live, 1);
	batch_buffers_leave(f, 4);
	scene_end(&c);
}

TEST(what_one_keeps_is_what_it_brought)
{
	uint32_t kept[3], theirs[4];
	struct scene c;
	struct buffers *f;

	scene_begin(&c);
	assert_int_equal(batch_buffers_new(&c.cache, BYTES, 8, true, &f), 0);
	assert_int_equal(batch_buffers_join(f, 3), 1);
	assert_int_equal(batch_buffers_join(f, 4), 2);
	assert_int_equal(batch_buffers_join(f, 2), 0); /* there is space for one more slot */
	/* The other session decoded three batches. */
	for (uint32_t i = 0; i < 3; i++) {
		kept[i] = take(f);
		hold(f, kept[i], i);
		batch_buffers_ref(f, kept[i]);
		batch_buffers_unref(f, kept[i]);
	}
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < 4; i++)
			theirs[i] = take(f);
		for (uint32_t i = 0; i < 4; i++)
			batch_buffers_unref(f, theirs[i]);
	}
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(batch_buffers_find(f, 2, i), kept[i]);
	assert_int_equal(memory_of(f), 7 * BYTES);

	/* The other session ends. Its memory is released, and the held buffers stay. */
	batch_buffers_leave(f, 4);
	wait_for_pool(&c);
	assert_true(c.n_changes > 0);
	assert_int_equal(memory_of(f), 3 * BYTES);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(batch_buffers_at(f, kept[i])[BYTES - 1], 1);
		assert_int_equal(batch_buffers_find(f, 2, i), kept[i]);
	}
	assert_int_equal(batch_buffers_take(f), BATCH_BUFFER_NONE);
	/* Another session comes, with new memory. */
	assert_int_equal(batch_buffers_join(f, 5), 3);
	theirs[0] = take(f);
	assert_int_equal(memory_of(f), 4 * BYTES);
	batch_buffers_unref(f, theirs[0]);
	batch_buffers_leave(f, 5);
	for (uint32_t i = 0; i < 3; i++)
		batch_buffers_unref(f, kept[i]);
	batch_buffers_leave(f, 3);
	scene_end(&c);
}

/* A session that copies out of a buffer brought no buffers itself. */
TEST(a_copy_outlives_the_sessions)
{
	struct scene c;
	struct buffers *f;

	scene_begin(&c);
	assert_int_equal(batch_buffers_new(&c.cache, BYTES, 8, true, &f), 0);
	assert_int_equal(batch_buffers_join(f, 1), 1);
	assert_int_equal(batch_buffers_join(f, 1), 2);
	uint32_t buffer = take(f);
	hold(f, buffer, 1);
	batch_buffers_unref(f, buffer);
	batch_buffers_unref(f, take(f));
	batch_buffers_ref(f, buffer);
	batch_buffers_leave(f, 1);
	wait_for_pool(&c);
	assert_int_equal(memory_of(f), BYTES);
	batch_buffers_leave(f, 1);
	wait_for_pool(&c);
	assert_int_equal(batch_buffers_at(f, buffer)[0], 1);
	batch_buffers_unref(f, buffer);
	scene_end(&c);
}
