/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scenes for tests of one module: the timeline of a script, and the roles of its threads. */

#include "script.h"

#include "analyzer/roles/roles.h"
#include "analyzer/timeline/timeline.h"

struct scene {
	struct timeline *timeline;
	struct roles roles;
};

static inline struct scene scene_of(const struct script *s)
{
	struct scene scene = {0};

	assert_int_equal(timeline_build(s->events, s->n, &scene.timeline, NULL), 0);
	assert_int_equal(roles_find(scene.timeline, TRAINER, 0, &scene.roles), 0);
	return scene;
}

static inline void scene_free(struct scene *scene)
{
	roles_free(&scene->roles);
	scene->timeline = timeline_free(scene->timeline);
}

/* Returns the thread that has this tid at that time. */
static inline const struct timeline_thread *scene_thread(const struct scene *scene, uint32_t tid,
							 uint64_t tick)
{
	const struct timeline_thread *thread = timeline_find(scene->timeline, tid, at(tick));

	assert_non_null(thread);
	return thread;
}

static inline enum role scene_role(const struct scene *scene, uint32_t tid, uint64_t tick)
{
	return role_of(scene->timeline, &scene->roles, scene_thread(scene, tid, tick));
}

/* Adds a batch of worker n that begins at tick. The batch is requested, read from a file until tick + 300,
 * and decoded until tick + 500. The trainer waits from tick + 400 to tick + 550. */
static inline void scene_batch(struct script *s, uint32_t n, uint64_t tick)
{
	script_request(s, n, tick + 10);
	script_take_index(s, n, tick + 20);
	script_read_file(s, WORKER + 10 * n, tick + 30, tick + 300);
	script_give_result(s, n, tick + 500, tick + 505);
	script_next(s, n, tick + 400, tick + 510, tick + 550);
}
