/* SPDX-License-Identifier: Apache-2.0 */
/* The engine without io_uring: a pool of threads that open and pread. */
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/node/pool.h"

#define MAX_THREADS 8 /* maximum: enough large reads in flight for one disk */

struct threads;

struct thread_task {
	struct pool_task task;
	struct threads *owner;
	struct io_op *op;
	struct thread_task *next_free;
};

struct threads {
	struct io io;
	struct pool *pool;
	struct thread_task *free_tasks;
	struct io_op *waiting, **waiting_tail;
	struct thread_task tasks[];
};

static void task_work(struct pool_task *task)
{
	struct io_op *op = ((struct thread_task *)task)->op;
	long r = 0;

	do {
		switch (op->kind) {
		case IO_OPEN: r = syscall(SYS_openat2, op->fd, op->path, &op->how, sizeof(op->how)); break;
		case IO_READ: r = pread(op->fd, op->buffer, op->bytes, (off_t)op->offset); break;
		}
	} while (r < 0 && errno == EINTR);
	op->result = r < 0 ? -errno : (int)r;
}

static void threads_pump(struct threads *t)
{
	while (t->waiting && t->free_tasks) {
		struct thread_task *task = t->free_tasks;

		t->free_tasks = task->next_free;
		task->op = t->waiting;
		t->waiting = task->op->next;
		if (!t->waiting)
			t->waiting_tail = &t->waiting;
		pool_submit(t->pool, NULL, &task->task);
	}
}

static void task_done(struct pool_task *task)
{
	struct thread_task *j = (struct thread_task *)task;
	struct threads *t = j->owner;
	struct io_op *op = j->op;

	j->next_free = t->free_tasks;
	t->free_tasks = j;
	t->io.in_flight--;
	op->done(op);
	threads_pump(t);
}

static void threads_submit(struct io *io, struct io_op *op)
{
	struct threads *t = (struct threads *)io;

	op->next = NULL;
	*t->waiting_tail = op;
	t->waiting_tail = &op->next;
	threads_pump(t);
}

static void threads_free(struct io *io)
{
	struct threads *t = (struct threads *)io;

	pool_free(t->pool);
	free(t);
}

static int threads_open(uv_loop_t *loop, unsigned depth, struct io **ret)
{
	struct threads *t = calloc(1, sizeof(*t) + depth * sizeof(t->tasks[0]));
	int r;

	if (!t)
		return -ENOMEM;
	t->io.engine = &io_engine_threads;
	t->waiting_tail = &t->waiting;
	for (unsigned i = 0; i < depth; i++) {
		t->tasks[i] = (struct thread_task){
		    .task = {.work = task_work, .done = task_done}, .owner = t, .next_free = t->free_tasks};
		t->free_tasks = &t->tasks[i];
	}
	r = pool_new(loop, depth < MAX_THREADS ? depth : MAX_THREADS, &t->pool);
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = &t->io;
	return 0;
}

const struct io_engine io_engine_threads = {
    .name = "threads", .open = threads_open, .submit = threads_submit, .free = threads_free};
