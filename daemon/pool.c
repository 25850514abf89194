/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct job_queue {
	struct pool_job *head, **tail;
};

struct worker {
	struct pool *pool;
	pthread_t thread;
	uint32_t number;
};

struct pool {
	pthread_mutex_t lock; /* guards the queues and target */
	pthread_cond_t wake;
	struct job_queue in, out;
	uint32_t target; /* workers with a number below it go on */
	/* loop thread only */
	uint32_t running;
	uint64_t in_flight;
	uv_async_t async;
	struct worker workers[POOL_MAX_WORKERS];
};

static void queue_push(struct job_queue *q, struct pool_job *job)
{
	job->next = NULL;
	*q->tail = job;
	q->tail = &job->next;
}

static struct pool_job *queue_pop(struct job_queue *q)
{
	struct pool_job *job = q->head;

	if (job) {
		q->head = job->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return job;
}

static void *worker_run(void *argument)
{
	struct worker *w = argument;
	struct pool *p = w->pool;

	pthread_setname_np(pthread_self(), "dieseld-cpu");
	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct pool_job *job;
		bool first;

		while (w->number < p->target && !p->in.head)
			pthread_cond_wait(&p->wake, &p->lock);
		if (w->number >= p->target)
			break;
		job = queue_pop(&p->in);
		pthread_mutex_unlock(&p->lock);
		job->work(job);
		pthread_mutex_lock(&p->lock);
		first = !p->out.head;
		queue_push(&p->out, job);
		if (first)
			uv_async_send(&p->async);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void on_done(uv_async_t *async)
{
	struct pool *p = async->data;
	struct pool_job *job;

	pthread_mutex_lock(&p->lock);
	job = p->out.head;
	p->out.head = NULL;
	p->out.tail = &p->out.head;
	pthread_mutex_unlock(&p->lock);
	while (job) {
		struct pool_job *next = job->next;

		p->in_flight--;
		job->done(job);
		job = next;
	}
}

int pool_set_workers(struct pool *p, uint32_t workers)
{
	uint32_t running = p->running;
	int r = 0;

	if (workers < 1)
		workers = 1;
	if (workers > POOL_MAX_WORKERS)
		workers = POOL_MAX_WORKERS;
	pthread_mutex_lock(&p->lock);
	p->target = workers;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	while (p->running > workers)
		pthread_join(p->workers[--p->running].thread, NULL);
	while (p->running < workers && r == 0) {
		struct worker *w = &p->workers[p->running];

		*w = (struct worker){.pool = p, .number = p->running};
		r = -pthread_create(&w->thread, NULL, worker_run, w);
		if (r == 0)
			p->running++;
	}
	return p->running > 0 && running > 0 && r < 0 ? -EAGAIN : r;
}

static void on_async_closed(uv_handle_t *handle)
{
	free(handle->data);
}

int pool_new(uv_loop_t *loop, uint32_t workers, struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = uv_async_init(loop, &p->async, on_done);
	if (r < 0) {
		free(p);
		return r;
	}
	p->async.data = p;
	p->in.tail = &p->in.head;
	p->out.tail = &p->out.head;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	r = pool_set_workers(p, workers);
	if (r < 0 && p->running == 0) {
		pool_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pool_submit(struct pool *p, struct pool_job *job)
{
	p->in_flight++;
	pthread_mutex_lock(&p->lock);
	queue_push(&p->in, job);
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

uint32_t pool_workers(const struct pool *p)
{
	return p->running;
}

uint64_t pool_in_flight(const struct pool *p)
{
	return p->in_flight;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->target = 0;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	while (p->running > 0)
		pthread_join(p->workers[--p->running].thread, NULL);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	uv_close((uv_handle_t *)&p->async, on_async_closed);
}
