/* SPDX-License-Identifier: Apache-2.0 */
/* Shared workers with a made-up clock. In each tick a worker does a tick of its task. */
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/node/turn_queue.h"
#include "daemon/node/work_turns.h"

#define MS     UINT64_C(1000000)
#define TURN   50 /* in ticks, after which a task is asked whether its turn is over */
#define LANES  1000
#define NOBODY 99

/* A job of a user, of which `depth` tasks wait or run at a time. Each takes `ticks`. */
struct job {
	struct work_lane lane;
	enum work_kind kind;
	uint32_t depth, ticks;
	bool sleeps; /* its tasks take no CPU time */
	uint32_t n_waiting, n_begun, n_done;
	uint64_t worked; /* ticks in which it had a worker */
};

struct place {
	struct job *job; /* NULL: the worker is free */
	uint32_t left, turn;
	uint64_t cost, charged;
};

struct paused {
	struct job *job;
	uint32_t left;
	uint64_t cost, charged;
};

struct world {
	struct work_turns turns;
	struct place places[64];
	struct paused paused[256];
	uint32_t n_places, n_paused, most_paused;
	struct job *jobs;
	uint32_t n_jobs;
};

static void world_begin(struct world *w, uint32_t n_places, struct job *jobs, uint32_t n_jobs)
{
	*w = (struct world){.n_places = n_places, .jobs = jobs, .n_jobs = n_jobs};
	assert_int_equal(work_turns_init(&w->turns, NOBODY), 0);
	w->turns.n_workers = n_places;
}

static void world_end(struct world *w)
{
	work_turns_free(&w->turns);
}

static void job_init(struct job *j, uint32_t uid, enum work_kind kind, uint32_t depth, uint32_t ticks)
{
	*j = (struct job){.kind = kind, .depth = depth, .ticks = ticks};
	work_lane_init(&j->lane, uid);
}

static void ask_for_work(struct world *w)
{
	for (uint32_t i = 0; i < w->n_jobs; i++) {
		struct job *j = &w->jobs[i];

		for (; j->n_waiting + j->n_begun < j->depth; j->n_waiting++)
			work_add(&w->turns, &j->lane, j->kind);
	}
}

static void resume(struct world *w, struct place *p, struct job *job)
{
	struct paused *q = w->paused;

	while (q->job != job)
		q++;
	*p = (struct place){.job = job, .left = q->left, .cost = q->cost, .charged = q->charged};
	memmove(q, q + 1, (size_t)(w->paused + --w->n_paused - q) * sizeof(*q));
}

static void give_places(struct world *w)
{
	for (uint32_t i = 0; i < w->n_places; i++) {
		struct place *p = &w->places[i];
		struct work_choice choice;
		struct job *job;
		uint64_t charged;

		if (p->job || !work_choose(&w->turns, &choice))
			continue;
		job = (struct job *)choice.lane;
		charged = work_begin(&w->turns, &choice);
		if (choice.kind == WORK_PAUSED) {
			resume(w, p, job);
			p->charged += charged;
			continue;
		}
		job->n_waiting--;
		job->n_begun++;
		*p = (struct place){.job = job, .left = job->ticks, .charged = charged};
	}
}

static void pause_task(struct world *w, struct place *p)
{
	work_pause(&w->turns, &p->job->lane, p->cost, &p->charged);
	w->paused[w->n_paused++] = (struct paused){p->job, p->left, p->cost, p->charged};
	w->most_paused = w->n_paused > w->most_paused ? w->n_paused : w->most_paused;
	p->job = NULL;
}

static void tick(struct world *w)
{
	ask_for_work(w);
	give_places(w);
	for (uint32_t i = 0; i < w->n_places; i++) {
		struct place *p = &w->places[i];
		struct job *j = p->job;

		if (!j)
			continue;
		j->worked++;
		p->cost += MS; /* a task that sleeps occupies its worker, which costs as much */
		work_charge(&j->lane, p->cost, &p->charged);
		if (--p->left == 0) {
			work_end(&w->turns, &j->lane, p->cost, p->charged);
			j->n_begun--;
			j->n_done++;
			p->job = NULL;
		} else if (++p->turn % TURN == 0 && j->kind == WORK_LONG &&
			   work_is_over(&w->turns, &j->lane)) {
			pause_task(w, p);
			give_places(w);
		}
	}
}

static void run(struct world *w, uint32_t ticks)
{
	for (uint32_t i = 0; i < ticks; i++)
		tick(w);
}

static uint64_t worked_by(const struct world *w, uint32_t uid)
{
	uint64_t ticks = 0;

	for (uint32_t i = 0; i < w->n_jobs; i++)
		ticks += w->jobs[i].lane.uid == uid ? w->jobs[i].worked : 0;
	return ticks;
}

/* However many jobs a user has, another user's only job gets as much. */
static void test_users_share_and_not_jobs(void **state)
{
	static const uint32_t n_places[] = {1, 2, 4, 7, 16};

	for (size_t k = 0; k < sizeof(n_places) / sizeof(n_places[0]); k++) {
		static struct job jobs[21];
		struct world w;
		uint64_t all = (uint64_t)10000 * n_places[k], first, second;

		for (int i = 0; i < 20; i++)
			job_init(&jobs[i], 1, WORK_SHORT, 16, 10);
		job_init(&jobs[20], 2, WORK_SHORT, 16, 10);
		world_begin(&w, n_places[k], jobs, 21);
		run(&w, 10000);
		first = worked_by(&w, 1);
		second = worked_by(&w, 2);
		assert_true(first + second >= all * 99 / 100);
		assert_in_range(second, all * 45 / 100, all * 55 / 100);
		world_end(&w);
	}
}

/* The jobs of one user share that user's part. */
static void test_jobs_of_a_user_share(void **state)
{
	static struct job jobs[5];
	struct world w;

	for (int i = 0; i < 4; i++)
		job_init(&jobs[i], 1, WORK_SHORT, i == 0 ? 200 : 8, i == 1 ? 40 : 10);
	job_init(&jobs[4], 2, WORK_SHORT, 8, 10);
	world_begin(&w, 2, jobs, 5);
	run(&w, 16000);
	for (int i = 0; i < 4; i++)
		assert_in_range(jobs[i].worked, 3400, 4600);
	assert_in_range(jobs[4].worked, 15000, 17000);
	world_end(&w);
}

/* Very long tasks give way to another user's tasks, which proceed as if the long ones were short. That holds
 * also for tasks that never end. */
static void test_long_tasks_give_way(void **state)
{
	static const uint32_t n_places[] = {1, 2, 4, 9};

	for (size_t k = 0; k < sizeof(n_places) / sizeof(n_places[0]); k++) {
		static struct job jobs[11];
		struct world w;
		uint64_t all = (uint64_t)20000 * n_places[k];

		for (int i = 0; i < 10; i++)
			job_init(&jobs[i], 1, WORK_LONG, 8, i % 2 ? 10000 : UINT32_MAX);
		job_init(&jobs[10], 2, WORK_LONG, 32, 5);
		world_begin(&w, n_places[k], jobs, 11);
		run(&w, 5000); /* all workers, except for the other user's part */
		run(&w, 15000);
		assert_true(jobs[10].worked >= all * 45 / 100);
		assert_true(jobs[10].n_done >= all * 45 / 100 / 5);
		assert_true(worked_by(&w, 1) >= all * 45 / 100);
		/* Each paused task keeps a process. */
		assert_in_range(w.most_paused, 0, 3 * n_places[k] + 2);
		world_end(&w);
	}
}

/* A user without competition has all workers, and gives them up within a turn when another user comes. */
static void test_alone_and_not(void **state)
{
	static struct job jobs[2];
	struct world w;

	job_init(&jobs[0], 1, WORK_LONG, 32, UINT32_MAX);
	job_init(&jobs[1], 2, WORK_LONG, 0, 5);
	world_begin(&w, 8, jobs, 2);
	run(&w, 1000);
	assert_int_equal(jobs[0].worked, 8000);
	assert_int_equal(w.n_paused, 0);
	jobs[1].depth = 100;
	run(&w, TURN + 1);
	jobs[1].worked = 0;
	run(&w, 1000);
	assert_in_range(jobs[1].worked, 3500, 4500);
	jobs[1].depth = 0; /* the other user leaves */
	run(&w, 200);
	jobs[0].worked = 0;
	run(&w, 1000);
	assert_int_equal(jobs[0].worked, 8000);
	world_end(&w);
}

/* While others wait, a user never has more than its share, but at least one worker. */
static void test_bound_at_any_moment(void **state)
{
	static struct job jobs[3];
	struct world w;

	for (uint32_t i = 0; i < 3; i++)
		job_init(&jobs[i], i, WORK_SHORT, 100, i == 0 ? 100 : 10);
	world_begin(&w, 6, jobs, 3);
	run(&w, 100);
	for (int i = 0; i < 2000; i++) {
		uint32_t n[3] = {0};

		tick(&w);
		for (int k = 0; k < 6; k++)
			if (w.places[k].job)
				n[w.places[k].job - jobs]++;
		for (int k = 0; k < 3; k++)
			assert_in_range(n[k], 0, 2);
	}
	world_end(&w);
}

/* A user's short tasks, for which other users may wait, too, do not wait behind its long ones. */
static void test_short_tasks_pass(void **state)
{
	static struct job jobs[1];
	struct work_choice choice;
	struct world w;

	job_init(&jobs[0], 1, WORK_LONG, 8, UINT32_MAX);
	world_begin(&w, 1, jobs, 1);
	run(&w, 10);
	work_add(&w.turns, &jobs[0].lane, WORK_SHORT);
	assert_true(work_is_over(&w.turns, &jobs[0].lane));
	pause_task(&w, &w.places[0]);
	assert_true(work_choose(&w.turns, &choice));
	assert_int_equal(choice.kind, WORK_SHORT);
	(void)work_begin(&w.turns, &choice);
	work_add(&w.turns, &jobs[0].lane, WORK_SHORT);
	work_end(&w.turns, &jobs[0].lane, MS, 0);
	assert_true(work_choose(&w.turns, &choice));
	assert_int_equal(choice.kind, WORK_PAUSED); /* and paused tasks have their turns, too */
	world_end(&w);
}

static void test_coming_back_gives_no_credit(void **state)
{
	static struct job jobs[2];
	struct world w;

	job_init(&jobs[0], 1, WORK_SHORT, 8, 10);
	job_init(&jobs[1], 2, WORK_SHORT, 0, 10);
	world_begin(&w, 1, jobs, 2);
	run(&w, 50000);
	jobs[0].worked = 0;
	jobs[1].depth = 8;
	run(&w, 1000);
	assert_in_range(jobs[0].worked, 450, 550);
	for (int i = 0; i < 100; i++) { /* the user leaves and returns all the time */
		jobs[1].depth = i % 2 ? 1 : 0;
		run(&w, 10);
	}
	assert_true(jobs[0].worked >= 900);
	world_end(&w);
}

static void test_choosing_looks_at_few_lanes(void **state)
{
	static struct job jobs[LANES + 1];
	struct world w;

	for (uint32_t i = 0; i < LANES; i++)
		job_init(&jobs[i], 1, WORK_SHORT, 2, 1);
	job_init(&jobs[LANES], 2, WORK_SHORT, 2, 1);
	world_begin(&w, 2, jobs, LANES + 1);
	run(&w, 4 * LANES);
	assert_in_range(jobs[LANES].worked, 3 * LANES, 5 * LANES);
	for (uint32_t i = 0; i < LANES; i++)
		assert_in_range(jobs[i].worked, 3, 5);
	world_end(&w);
}

static void test_lane_limits_bound_work_under_way(void **state)
{
	static struct job jobs[2];
	struct world w;

	job_init(&jobs[0], 1, WORK_LONG, 8, UINT32_MAX);
	job_init(&jobs[1], 1, WORK_SHORT, 8, 10);
	world_begin(&w, 4, jobs, 2);
	work_limit(&w.turns, &jobs[0].lane, 2);
	work_limit(&w.turns, &jobs[1].lane, 0);
	run(&w, 1000);
	assert_int_equal(jobs[0].worked, 2000);
	assert_int_equal(jobs[1].worked, 1000);
	world_end(&w);
}

#define ENTRIES 500

static uint32_t running_of(const struct world *w, uint32_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_jobs; i++)
		n += w->jobs[i].lane.uid == uid ? w->jobs[i].lane.n_running : 0;
	return n;
}

/* However many jobs a user has, they share the workers of that user's limit. */
static void test_limit_of_a_user(void **state)
{
	static struct job jobs[4];

	for (int kind = WORK_SHORT; kind <= WORK_LONG; kind++) {
		struct world w;
		uint32_t most;

		for (uint32_t i = 0; i < 4; i++) {
			job_init(&jobs[i], i < 3 ? 1 : 2, (enum work_kind)kind, 8,
				 i == 0 && kind == WORK_LONG ? UINT32_MAX : 10);
			work_limit_user(&jobs[i].lane, i < 3 ? 1 : UINT32_MAX);
		}
		world_begin(&w, 4, jobs, 4);
		for (uint32_t i = 0; i < 12000; i++) {
			tick(&w);
			assert_true(running_of(&w, 1) <= 1);
		}
		for (uint32_t i = 0; i < 3; i++)
			assert_in_range(jobs[i].worked, 3000, 5000);
		assert_in_range(worked_by(&w, 2), 35000, 37000);
		/* The limit ends as soon as the cores are free. */
		for (uint32_t i = 0; i < 3; i++)
			work_limit_user(&jobs[i].lane, 2);
		most = 0;
		for (uint32_t i = 0; i < 1000; i++) {
			tick(&w);
			most = running_of(&w, 1) > most ? running_of(&w, 1) : most;
		}
		assert_int_equal(most, 2);
		world_end(&w);
	}
}

static void test_a_queue_stays_sorted(void **state)
{
	static struct turn_entry entries[ENTRIES];
	struct turn_queue q = {NULL};
	uint64_t last = 0;
	uint32_t n = 0;

	srand(1);
	for (int round = 0; round < 20000; round++) {
		struct turn_entry *e = &entries[rand() % ENTRIES];

		if (rand() % 2)
			e = q.first ? q.first : e;
		if (e->in) {
			turn_queue_remove(e);
			n--;
		} else {
			turn_queue_add(&q, e, (uint64_t)(rand() % 1000));
			n++;
		}
		for (int i = 0; round % 100 == 0 && i < ENTRIES; i++)
			assert_true(!entries[i].in || entries[i].used >= q.first->used);
	}
	for (; q.first; n--) {
		assert_true(q.first->used >= last);
		last = q.first->used;
		turn_queue_remove(q.first);
	}
	assert_int_equal(n, 0);
	turn_queue_remove(&entries[0]); /* entry is in no queue */
}

UNIT_TESTS(cmocka_unit_test(test_users_share_and_not_jobs), cmocka_unit_test(test_jobs_of_a_user_share),
	   cmocka_unit_test(test_long_tasks_give_way), cmocka_unit_test(test_alone_and_not),
	   cmocka_unit_test(test_bound_at_any_moment), cmocka_unit_test(test_short_tasks_pass),
	   cmocka_unit_test(test_coming_back_gives_no_credit),
	   cmocka_unit_test(test_choosing_looks_at_few_lanes),
	   cmocka_unit_test(test_lane_limits_bound_work_under_way), cmocka_unit_test(test_limit_of_a_user),
	   cmocka_unit_test(test_a_queue_stays_sorted))
