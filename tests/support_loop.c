/* SPDX-License-Identifier: Apache-2.0 */
#include "support_loop.h"

#include <stdlib.h>

#define LOOP_MAX_MS 60000

static void on_late(uv_timer_t *timer)
{
	(void)timer;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

void loop_until(uv_loop_t *loop, bool (*holds)(void *user), void *user)
{
	uv_timer_t *late = malloc(sizeof(*late));

	assert_non_null(late);
	assert_int_equal(uv_timer_init(loop, late), 0);
	uv_timer_start(late, on_late, LOOP_MAX_MS, 0);
	while (!holds(user) && uv_is_active((uv_handle_t *)late))
		uv_run(loop, UV_RUN_ONCE);
	assert_true(holds(user));
	uv_close((uv_handle_t *)late, on_closed);
}

struct counting {
	const uint32_t *count;
	uint32_t wanted;
};

static bool has_counted(void *user)
{
	const struct counting *c = user;

	return *c->count >= c->wanted;
}

void loop_until_count(uv_loop_t *loop, const uint32_t *count, uint32_t wanted)
{
	loop_until(loop, has_counted, &(struct counting){count, wanted});
	assert_int_equal(*count, wanted);
}

void loop_end(uv_loop_t *loop)
{
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}
