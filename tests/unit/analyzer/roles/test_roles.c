/* SPDX-License-Identifier: Apache-2.0 */
/* Finds from the timeline which thread trains and which threads and processes work for it. */
#include "tests/unit/analyzer/scene.h"

static struct script s; /* too large for the stack */

#define STEPS 8

enum {
	LOADER = 102, /* a thread of the trainer's process */
	OTHER = 300,  /* a process that is neither trainer nor worker */
};

static struct scene roles_for(uint32_t root_tgid, uint32_t trainer_tid)
{
	struct scene scene = {0};

	assert_int_equal(timeline_build(s.events, s.n, &scene.timeline, NULL), 0);
	assert_int_equal(roles_find(scene.timeline, root_tgid, trainer_tid, &scene.roles), 0);
	return scene;
}

static uint32_t trainer_for(uint32_t root_tgid, uint32_t trainer_tid)
{
	struct scene scene = roles_for(root_tgid, trainer_tid);
	uint32_t tid = scene.roles.trainer ? scene.roles.trainer->tid : 0;

	scene_free(&scene);
	return tid;
}

static void check_no_loader(const struct roles *roles)
{
	assert_int_equal(roles->n_results, 0);
	assert_int_equal(roles->n_workers, 0);
	assert_int_equal(roles->n_loaders, 0);
	assert_null(roles->reader);
}

TEST(without_threads_nobody_trains)
{
	memset(&s, 0, sizeof(s));
	_cleanup_(scene_free) struct scene scene = roles_for(TRAINER, 0);
	assert_null(scene.roles.trainer);
	check_no_loader(&scene.roles);
	assert_int_equal(role_of(scene.timeline, &scene.roles, NULL), ROLE_OTHER);
}

TEST(a_thread_alone_trains)
{
	script_begin(&s);
	struct scene scene = roles_for(TRAINER, 0);
	assert_int_equal(scene.roles.trainer->tid, TRAINER);
	assert_int_equal(scene_role(&scene, TRAINER, 0), ROLE_TRAINER);
	assert_int_equal(scene.roles.n_trainers, 0);
	assert_int_equal(scene.roles.step_mark, 0);
	assert_int_equal(scene.roles.n_own_batches, 0);
	assert_int_equal(roles_started_ns(&scene.roles, scene.roles.trainer), 0);
	check_no_loader(&scene.roles);
	scene_free(&scene);
	/* The scene has no root, and no sign of training. */
	assert_int_equal(trainer_for(0, 0), 0);
	assert_int_equal(trainer_for(OTHER, 0), 0);
}

static void gpu_wait(uint32_t tid, uint64_t tick)
{
	script_add(&s, tid, EVENT_GPU_WAIT, tick, tick + 1);
}

/* The signs, strongest first, are an override, backward passes, marks, waits for a GPU, and being the root.
 * Each beats all weaker ones. */
TEST(each_sign_of_training_beats_those_behind_it)
{
	script_begin(&s);
	script_add(&s, OTHER, EVENT_NAME, 0, 0);
	script_add(&s, OTHER + 1, EVENT_NAME, 0, 0);
	script_add(&s, 400, EVENT_NAME, 0, 0);
	assert_int_equal(trainer_for(TRAINER, 0), TRAINER);
	for (uint64_t i = 0; i < 9; i++)
		gpu_wait(OTHER + 1, i); /* not a main thread */
	assert_int_equal(trainer_for(TRAINER, 0), TRAINER);
	gpu_wait(OTHER, 1);
	gpu_wait(400, 1);
	assert_int_equal(trainer_for(TRAINER, 0), OTHER); /* the first among equals */
	gpu_wait(400, 2);
	assert_int_equal(trainer_for(TRAINER, 0), 400);
	gpu_wait(TRAINER, 1); /* one is enough for the root */
	assert_int_equal(trainer_for(TRAINER, 0), TRAINER);
	script_mark(&s, 400, 1, MARK_NEXT_BEGIN, 0); /* not a call until it ends */
	assert_int_equal(trainer_for(TRAINER, 0), TRAINER);
	script_mark(&s, 400, 2, MARK_NEXT_END, 0);
	assert_int_equal(trainer_for(TRAINER, 0), 400);
	script_mark(&s, OTHER, 1, MARK_BATCH_END, 0);
	assert_int_equal(trainer_for(TRAINER, 0), OTHER); /* the first among equals, which owns the loader */
	script_mark(&s, 400, 3, MARK_BATCH_END, 0);
	assert_int_equal(trainer_for(TRAINER, 0), 400);
	script_step(&s, 400, 5);
	assert_int_equal(trainer_for(TRAINER, 0), 400);
	script_step(&s, OTHER, 6);
	assert_int_equal(trainer_for(TRAINER, 0), OTHER);
	script_step(&s, 400, 7);
	assert_int_equal(trainer_for(TRAINER, 0), 400);
	assert_int_equal(trainer_for(TRAINER, TRAINER), TRAINER);
	assert_int_equal(trainer_for(TRAINER, 999), 400); /* no thread has that tid */
}

TEST(what_ends_its_steps)
{
	script_begin(&s);
	script_mark(&s, TRAINER, 10, MARK_BATCH_END, 0);
	struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.step_mark, MARK_BATCH_END);
	scene_free(&scene);
	script_mark(&s, TRAINER, 5, MARK_NEXT_END, 0);
	scene = scene_of(&s);
	assert_int_equal(scene.roles.step_mark, MARK_NEXT_END);
	scene_free(&scene);
	script_step(&s, TRAINER, 20);
	script_step(&s, OTHER, 20);
	scene = scene_of(&s);
	assert_int_equal(scene.roles.step_mark, 0);
	assert_int_equal(scene.roles.n_trainers, 2);
	scene_free(&scene);
}

/* If a tid is used again, the trainer is the thread that trains, or else the last one with that tid. */
TEST(trainer_with_a_tid_used_again)
{
	script_begin(&s);
	script_fork(&s, TRAINER, OTHER, 10);
	script_exit(&s, OTHER, 20);
	script_fork(&s, TRAINER, OTHER, 30);
	script_exit(&s, OTHER, 40);
	struct scene scene = roles_for(TRAINER, OTHER);
	assert_int_equal(scene.roles.trainer->born_ns, at(30));
	scene_free(&scene);
	script_step(&s, OTHER, 15);
	scene = roles_for(TRAINER, OTHER);
	assert_int_equal(scene.roles.trainer->born_ns, at(10));
	assert_int_equal(scene_role(&scene, OTHER, 35), ROLE_OTHER);
	scene_free(&scene);
}

/* Makes steps of 1000 ticks whose batches n_workers workers make in turn. */
static void worker_steps(uint32_t n_workers)
{
	script_begin(&s);
	for (uint32_t n = 0; n < n_workers; n++) {
		script_fork(&s, TRAINER, WORKER + 10 * n, 0);
		script_fork(&s, WORKER + 10 * n, FEEDER + 10 * n, 1);
	}
	for (uint32_t i = 0; i < STEPS; i++) {
		scene_batch(&s, i % n_workers, 1000 * i);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
}

static void check_two_workers(const struct scene *scene)
{
	const struct roles *roles = &scene->roles;

	assert_int_equal(roles->n_workers, 2);
	for (uint32_t n = 0; n < 2; n++) {
		assert_int_equal(roles->workers[n]->tid, WORKER + 10 * n);
		assert_int_equal(roles->started_ns[n], at(1000 * n + 20));
		assert_int_equal(roles->worker_loaders[n], 1);
		assert_int_equal(scene_role(scene, WORKER + 10 * n, 100), ROLE_WORKER);
		assert_int_equal(scene_role(scene, FEEDER + 10 * n, 100), ROLE_HANDOFF);
		assert_int_equal(roles_started_ns(roles, scene_thread(scene, FEEDER + 10 * n, 100)),
				 at(1000 * n + 20));
	}
	assert_int_equal(scene_role(scene, TRAINER, 100), ROLE_TRAINER);
	assert_int_equal(scene_role(scene, REQUESTER, 100), ROLE_HELPER);
	assert_int_equal(roles->n_results, 1);
	assert_true(roles_is_result(roles, RESULT_PIPE));
	assert_false(roles_is_result(roles, INDEX_PIPE));
	assert_int_equal(roles->result_loaders[0], 1);
	assert_ptr_equal(roles->reader, roles->trainer);
	assert_int_equal(roles->n_loaders, 0);
	assert_int_equal(roles_started_ns(roles, roles->trainer), 0);
}

TEST(workers_are_found_in_any_order_of_records)
{
	worker_steps(2);
	struct scene scene = scene_of(&s);
	check_two_workers(&scene);
	scene_free(&scene);
	/* Records come in any order. */
	for (size_t i = 0; i < s.n / 2; i++) {
		struct event swapped = s.events[i];

		s.events[i] = s.events[s.n - 1 - i];
		s.events[s.n - 1 - i] = swapped;
	}
	scene = scene_of(&s);
	check_two_workers(&scene);
	scene_free(&scene);
}

/* Other reads of pipes, and threads that wake the trainer, do not change the workers' roles. */
TEST(workers_among_other_things)
{
	worker_steps(2);
	for (uint32_t i = 0; i < STEPS; i++) {
		script_call(&s, TRAINER, 1000 * i + 700, 1000 * i + 701, SYS_read, EVENT_FILE_FIFO, 9000, 8);
		script_read_file(&s, LOADER, 1000 * i + 560, 1000 * i + 600);
		script_off(&s, TRAINER, 1000 * i + 560, 1000 * i + 610, 1000 * i + 610, 0x1, LOADER);
	}
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	check_two_workers(&scene);
	assert_int_equal(scene_role(&scene, LOADER, 100), ROLE_HELPER);
}

/* Without backward passes, the loaders cannot be told apart, so all of them count. */
TEST(workers_without_steps)
{
	worker_steps(1);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_STEP)
			s.events[i].type = EVENT_NAME;
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_workers, 1);
	assert_int_equal(scene.roles.result_loaders[0], 1);
	assert_int_equal(scene.roles.worker_loaders[0], 1);
}

TEST(the_pin_memory_thread_reads_results)
{
	worker_steps(1);
	for (size_t i = 0; i < s.n; i++)
		if (s.events[i].type == EVENT_SYSCALL && s.events[i].call.inode == RESULT_PIPE &&
		    s.events[i].tid == TRAINER)
			s.events[i].tid = LOADER;
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_workers, 1);
	assert_int_equal(scene.roles.reader->tid, LOADER);
	assert_int_equal(scene_role(&scene, LOADER, 100), ROLE_HELPER);
}

/* Makes a process that reads from one pipe and answers over another. It answers n_answers reads, and then
 * ends if `ends`. */
static struct scene helper_process(uint32_t n_answers, bool ends, uint32_t reader_tid, uint32_t writer_tid)
{
	script_begin(&s);
	script_fork(&s, TRAINER, WORKER, 0);
	script_call(&s, TRAINER, 8, 9, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE, -EAGAIN);
	script_call(&s, writer_tid, 10, 11, SYS_write, EVENT_FILE_FIFO, INDEX_PIPE, 60);
	script_call(&s, reader_tid, 12, 13, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE, 60);
	for (uint32_t i = 0; i < n_answers; i++) {
		script_call(&s, WORKER, 20 + 10 * i, 21 + 10 * i, SYS_write, EVENT_FILE_FIFO, RESULT_PIPE, 9);
		script_call(&s, TRAINER, 22 + 10 * i, 23 + 10 * i, SYS_read, EVENT_FILE_FIFO, RESULT_PIPE, 9);
	}
	if (ends)
		script_call(&s, TRAINER, 900, 901, SYS_read, EVENT_FILE_FIFO, RESULT_PIPE, 0);
	return scene_of(&s);
}

TEST(processes_that_are_no_workers)
{
	const struct {
		uint32_t n_answers;
		bool ends;
		uint32_t reader_tid, writer_tid; /* of the index pipe */
		size_t n_workers;
	} rows[] = {
	    {3, false, WORKER, TRAINER, 1}, {3, false, WORKER, REQUESTER, 1},
	    {2, false, WORKER, TRAINER, 0}, /* answers once, or reports its exit status */
	    {9, true, WORKER, TRAINER, 0},  /* a command and its output */
	    {9, false, FEEDER, TRAINER, 0}, /* its main thread does not poll for an index */
	    {9, false, WORKER, OTHER, 0},   /* a worker of another process */
	    {0, false, WORKER, TRAINER, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scene scene =
		    helper_process(rows[i].n_answers, rows[i].ends, rows[i].reader_tid, rows[i].writer_tid);

		assert_int_equal(scene.roles.n_workers, rows[i].n_workers);
		assert_int_equal(scene.roles.n_results, rows[i].n_workers);
		assert_int_equal(scene_role(&scene, WORKER, 10),
				 rows[i].n_workers ? ROLE_WORKER : ROLE_OTHER);
		scene_free(&scene);
	}
}

/* A spawned process gets its start data over another pipe. That is no index. */
TEST(start_of_a_spawned_worker)
{
	worker_steps(1);
	script_call(&s, REQUESTER, 2, 3, SYS_write, EVENT_FILE_FIFO, INDEX_PIPE + 50, 400);
	script_call(&s, WORKER, 4, 5, SYS_read, EVENT_FILE_FIFO, INDEX_PIPE + 50, 400);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_workers, 1);
	assert_int_equal(scene.roles.started_ns[0], at(20));
}

/* The second epoch's worker has the tid of the first epoch's worker, and a shell has it afterwards. */
TEST(tids_used_again)
{
	worker_steps(1);
	script_exit(&s, FEEDER, 7990);
	script_exit(&s, WORKER, 7991);
	script_fork(&s, TRAINER, WORKER, 8000);
	script_fork(&s, WORKER, FEEDER, 8001);
	for (uint32_t i = STEPS; i < 2 * STEPS; i++) {
		scene_batch(&s, 0, 1000 * i);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	script_exit(&s, FEEDER, 15990);
	script_exit(&s, WORKER, 15991);
	script_fork(&s, TRAINER, WORKER, 16000);
	script_fork(&s, WORKER, FEEDER, 16001);
	script_exit(&s, WORKER, 17000);
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_workers, 2);
	assert_int_equal(scene.roles.started_ns[0], at(20));
	assert_int_equal(scene.roles.started_ns[1], at(8020));
	const struct timeline_thread *feeder = scene_thread(&scene, FEEDER, 9000);
	assert_int_equal(roles_started_ns(&scene.roles, feeder), at(8020));
	assert_int_equal(scene_role(&scene, FEEDER, 9000), ROLE_HANDOFF);
	assert_int_equal(scene_role(&scene, WORKER, 16500), ROLE_OTHER);
	assert_int_equal(scene_role(&scene, FEEDER, 16500), ROLE_OTHER);
	assert_int_equal(roles_started_ns(&scene.roles, scene_thread(&scene, FEEDER, 16500)), 0);
}

/* Moves the messages of the last batches that scene_batch() added to another result pipe. */
static void move_results(size_t first, uint64_t inode)
{
	for (size_t i = first; i < s.n; i++)
		if (s.events[i].type == EVENT_SYSCALL && s.events[i].call.inode == RESULT_PIPE)
			s.events[i].call.inode = inode;
}

/* Worker 0 feeds the first steps, worker 1 the next epoch's, and worker 2 none, because it validates. */
TEST(loaders_by_epoch)
{
	size_t first;

	script_begin(&s);
	for (uint32_t n = 0; n < 3; n++) {
		script_fork(&s, TRAINER, WORKER + 10 * n, 0);
		script_fork(&s, WORKER + 10 * n, FEEDER + 10 * n, 1);
	}
	for (uint32_t i = 0; i < 12; i++) {
		first = s.n;
		scene_batch(&s, i / 4, 1000 * i);
		move_results(first, RESULT_PIPE + 2 - i / 4);
		script_call(&s, TRAINER, 1000 * i + 700, 1000 * i + 701, SYS_read, EVENT_FILE_FIFO, 9000, 8);
		if (i < 8)
			script_step(&s, TRAINER, 1000 * i + 900);
	}
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_results, 3);
	assert_int_equal(scene.roles.result_loaders[2], 1); /* inodes ascend */
	assert_int_equal(scene.roles.result_loaders[1], 2);
	assert_int_equal(scene.roles.result_loaders[0], 0);
	for (uint32_t n = 0; n < 3; n++)
		assert_int_equal(scene.roles.worker_loaders[n], (n + 1) % 3);
}

/* A loader has a pipe for each worker, and steps take from them in turn. */
TEST(loader_with_a_pipe_for_each_worker)
{
	size_t first;

	script_begin(&s);
	for (uint32_t n = 0; n < 2; n++)
		script_fork(&s, TRAINER, WORKER + 10 * n, 0);
	for (uint32_t i = 0; i < STEPS; i++) {
		first = s.n;
		scene_batch(&s, i % 2, 1000 * i);
		move_results(first, RESULT_PIPE + i % 2);
		script_step(&s, TRAINER, 1000 * i + 900);
	}
	_cleanup_(scene_free) struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_results, 2);
	for (uint32_t n = 0; n < 2; n++) {
		assert_int_equal(scene.roles.result_loaders[n], 1);
		assert_int_equal(scene.roles.worker_loaders[n], 1);
	}
}

/* If next() makes the batch itself, other processes are not its workers. */
TEST(next_that_makes_batches_has_no_workers)
{
	worker_steps(1);
	for (uint32_t i = 0; i < STEPS / 2 - 1; i++)
		script_mark(&s, TRAINER, 1000 * i + 390, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	struct scene scene = scene_of(&s);
	assert_int_equal(scene.roles.n_own_batches, 0); /* fewer than half the steps */
	assert_int_equal(scene.roles.n_workers, 1);
	scene_free(&scene);
	script_mark(&s, TRAINER, 5390, MARK_BATCH_BEGIN, MARK_BATCH_INLINE);
	scene = scene_of(&s);
	assert_int_equal(scene.roles.n_own_batches, STEPS / 2);
	check_no_loader(&scene.roles);
	assert_int_equal(scene_role(&scene, WORKER, 100), ROLE_OTHER);
	scene_free(&scene);
	for (uint32_t i = 0; i < STEPS / 2; i++)
		script_mark(&s, TRAINER, 1000 * i + 395, MARK_BATCH_BEGIN, MARK_BATCH_WORKERS);
	scene = scene_of(&s);
	assert_int_equal(scene.roles.n_own_batches, 0); /* no more than by the others */
	scene_free(&scene);
}

TEST(results_are_looked_up)
{
	uint64_t inodes[] = {5, 7, UINT64_MAX};
	struct roles roles = {.results = inodes, .n_results = 3};

	for (size_t i = 0; i < 3; i++)
		assert_int_equal(roles_result(&roles, inodes[i]), i);
	assert_int_equal(roles_result(&roles, 0), 3);
	assert_int_equal(roles_result(&roles, 6), 3);
	assert_int_equal(roles_result(&roles, UINT64_MAX - 1), 3);
	roles.n_results = 0;
	assert_false(roles_is_result(&roles, 5));
}

TEST(each_role_has_its_own_name)
{
	for (int a = ROLE_OTHER; a <= ROLE_LOADER; a++)
		for (int b = ROLE_OTHER; b < a; b++)
			assert_string_not_equal(role_name((enum role)a), role_name((enum role)b));
}
