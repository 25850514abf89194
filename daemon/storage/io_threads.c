/* SPDX-License-Identifier: Apache-2.0 */
/* The engine without io_uring: a pool of threads that open and pread. */
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool.h"

#define MAX_THREADS 8 /* enough large reads in flight for one disk */

struct threads;

struct thread_job {
	struct pool_job job;
	struct threads *owner;
	struct io_op *op;
	struct thread_job *next_free;
};

struct threads {
	struct io io;
	struct pool *pool;
	struct thread_job *free_jobs;
	struct io_op *waiting, **waiting_tail;
	struct thread_job jobs[];
};

static void job_work(struct pool_job *job)
{
	struct io_op *op = ((struct thread_job *)job)->op;
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
	while (t->waiting && t->free_jobs) {
		struct thread_job *job = t->free_jobs;

		t->free_jobs = job->next_free;
		job->op = t->waiting;
		t->waiting = job->op->next;
		if (!t->waiting)
			t->waiting_tail = &t->waiting;
		pool_submit(t->pool, NULL, &job->job);
	}
}

static void job_done(struct pool_job *job)
{
	struct thread_job *j = (struct thread_job *)job;
	struct threads *t = j->owner;
	struct io_op *op = j->op;

	j->next_free = t->free_jobs;
	t->free_jobs = j;
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

static const struct io_engine threads_engine = {
    .name = "threads", .submit = threads_submit, .free = threads_free};

int io_threads_new(uv_loop_t *loop, unsigned depth, struct io **ret)
{
	struct threads *t = calloc(1, sizeof(*t) + depth * sizeof(t->jobs[0]));
	int r;

	if (!t)
		return -ENOMEM;
	t->io.engine = &threads_engine;
	t->waiting_tail = &t->waiting;
	for (unsigned i = 0; i < depth; i++) {
		t->jobs[i] = (struct thread_job){
		    .job = {.work = job_work, .done = job_done}, .owner = t, .next_free = t->free_jobs};
		t->free_jobs = &t->jobs[i];
	}
	r = pool_new(loop, depth < MAX_THREADS ? depth : MAX_THREADS, &t->pool);
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = &t->io;
	return 0;
}
