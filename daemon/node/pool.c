/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "lib/clock.h"

#define IDLE_S 5 /* a thread without work ends after so long */

enum worker_state { WORKER_NONE, WORKER_RUNNING, WORKER_ENDED /* to be joined */ };

struct worker {
	struct pool *pool;
	pthread_t thread;
	enum worker_state state;
};

struct pool {
	pthread_mutex_t lock; /* guards all but the loop thread's fields */
	pthread_cond_t wake;
	struct pool_lane *lanes; /* with tasks waiting */
	struct pool_lane own;
	struct pool_queue out;
	struct turns turns;  /* of lanes, in ns */
	uint32_t target;     /* how many threads may work */
	uint32_t n_threads;  /* threads now */
	uint32_t n_sleeping; /* of these; a woken one counts until it runs */
	uint32_t n_starting;
	uint32_t n_waiting; /* tasks in lanes */
	struct worker workers[POOL_MAX_WORKERS];
	/* loop thread only */
	uint64_t in_flight;
	uv_async_t async;
};

static void queue_push(struct pool_queue *q, struct pool_task *task)
{
	task->next = NULL;
	*q->tail = task;
	q->tail = &task->next;
}

static void queue_push_first(struct pool_queue *q, struct pool_task *task)
{
	task->next = q->head;
	if (!q->head)
		q->tail = &task->next;
	q->head = task;
}

static struct pool_task *queue_pop(struct pool_queue *q)
{
	struct pool_task *task = q->head;

	if (task) {
		q->head = task->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return task;
}

static void lane_add(struct pool *p, struct pool_lane *lane)
{
	/* A lane that had nothing to do gets no credit for that. */
	if (lane->running == 0)
		turn_enter(&p->turns, &lane->turn, 0);
	lane->next = p->lanes;
	p->lanes = lane;
}

static void lane_remove(struct pool *p, struct pool_lane *lane)
{
	struct pool_lane **link = &p->lanes;

	while (*link != lane)
		link = &(*link)->next;
	*link = lane->next;
}

/* The lane whose turn it is, of those that may run one more. */
static struct pool_lane *pick_lane(const struct pool *p)
{
	struct pool_lane *best = NULL;

	for (struct pool_lane *l = p->lanes; l; l = l->next) {
		if (l->running < l->limit && (!best || l->turn.used < best->turn.used))
			best = l;
	}
	return best;
}

/* Takes the next task. Its expected time is charged at once, so that a second worker does not take from the
 * same lane. */
static struct pool_task *take_task(struct pool *p)
{
	struct pool_lane *lane = pick_lane(p);
	struct pool_task *task;

	if (!lane)
		return NULL;
	p->turns.now = lane->turn.used;
	task = queue_pop(&lane->waiting);
	if (!lane->waiting.head)
		lane_remove(p, lane);
	p->n_waiting--;
	lane->running++;
	turn_charge(&lane->turn, lane->mean_ns, TURN_WEIGHT);
	return task;
}

static void charge(struct pool_lane *lane, uint64_t charged_ns, uint64_t used_ns)
{
	lane->running--;
	lane->turn.used += used_ns - charged_ns; /* may go down: unsigned arithmetic wraps correctly */
	lane->mean_ns = (lane->mean_ns * 7 + used_ns) / 8;
	atomic_fetch_add_explicit(&lane->cpu_ns, used_ns, memory_order_relaxed);
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Sleeps until there may be work. Returns false if the time was up first. */
static bool wait_for_work(struct pool *p)
{
	struct timespec until;
	int r;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_S;
	p->n_sleeping++;
	/* The last thread stays: work can always be done, and a daemon with nothing to do does not wake up.
	 */
	r = p->n_threads > 1 ? pthread_cond_timedwait(&p->wake, &p->lock, &until)
			     : pthread_cond_wait(&p->wake, &p->lock);
	p->n_sleeping--;
	return r != ETIMEDOUT;
}

static void run_task(struct pool *p, struct pool_task *task)
{
	struct pool_lane *lane = task->lane;
	uint64_t charged_ns = lane->mean_ns, begin_ns, used_ns;
	bool first;

	pthread_mutex_unlock(&p->lock);
	begin_ns = thread_cpu_ns();
	task->work(task);
	used_ns = thread_cpu_ns() - begin_ns + task->elsewhere_ns;
	pthread_mutex_lock(&p->lock);
	charge(lane, charged_ns, used_ns);
	first = !p->out.head;
	queue_push(&p->out, task);
	if (first)
		uv_async_send(&p->async);
}

/* Whoever takes a task sees to it that a sleeping thread takes the next one, if there is one that may run. */
static void wake_another(struct pool *p)
{
	if (p->n_sleeping > 0 && pick_lane(p))
		pthread_cond_signal(&p->wake);
}

static void *worker_run(void *argument)
{
	struct worker *w = argument;
	struct pool *p = w->pool;
	bool in_time = true;

	pthread_setname_np(pthread_self(), "dieseld-cpu");
	pthread_mutex_lock(&p->lock);
	p->n_starting--;
	while (p->n_threads <= p->target) {
		struct pool_task *task = take_task(p);

		if (task) {
			wake_another(p);
			run_task(p, task);
			in_time = true;
		} else if (in_time || p->n_threads == 1)
			in_time = wait_for_work(p);
		else
			break;
	}
	wake_another(p);
	p->n_threads--;
	w->state = WORKER_ENDED;
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void on_done(uv_async_t *async)
{
	struct pool *p = async->data;
	struct pool_task *task;

	pthread_mutex_lock(&p->lock);
	task = p->out.head;
	p->out.head = NULL;
	p->out.tail = &p->out.head;
	pthread_mutex_unlock(&p->lock);
	while (task) {
		struct pool_task *next = task->next;

		p->in_flight--;
		task->done(task);
		task = next;
	}
}

/* Called with the lock held. -EAGAIN: no more threads can be had. */
static int start_worker(struct pool *p)
{
	for (uint32_t i = 0; i < POOL_MAX_WORKERS; i++) {
		struct worker *w = &p->workers[i];
		int r;

		if (w->state == WORKER_RUNNING)
			continue;
		if (w->state == WORKER_ENDED)
			pthread_join(w->thread,
				     NULL); /* does not block: the thread has given up the lock for good */
		*w = (struct worker){.pool = p};
		r = pthread_create(&w->thread, NULL, worker_run, w);
		if (r != 0)
			return -r;
		w->state = WORKER_RUNNING;
		p->n_threads++;
		p->n_starting++;
		return 0;
	}
	return -EAGAIN;
}

/* Called with the lock held. Starts as many threads as there is work for. If no more can be had, the running
 * ones do the work later. */
static void start_workers(struct pool *p)
{
	while (p->n_threads < p->target && p->n_waiting > p->n_sleeping + p->n_starting) {
		if (start_worker(p) < 0)
			break;
	}
}

void pool_set_workers(struct pool *p, uint32_t workers)
{
	if (workers < 1)
		workers = 1;
	if (workers > POOL_MAX_WORKERS)
		workers = POOL_MAX_WORKERS;
	pthread_mutex_lock(&p->lock);
	p->target = workers;
	start_workers(p);
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

static void on_async_closed(uv_handle_t *handle)
{
	free(handle->data);
}

int pool_new(uv_loop_t *loop, uint32_t workers, struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));
	pthread_condattr_t monotonic;
	int r;

	if (!p)
		return -ENOMEM;
	r = uv_async_init(loop, &p->async, on_done);
	if (r < 0) {
		free(p);
		return r;
	}
	p->async.data = p;
	p->out.tail = &p->out.head;
	pool_lane_init(&p->own);
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&p->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pool_set_workers(p, workers);
	pthread_mutex_lock(&p->lock);
	r = start_worker(p);
	pthread_mutex_unlock(&p->lock);
	if (r < 0) {
		pool_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

static void submit(struct pool *p, struct pool_lane *lane, struct pool_task *task,
		   void (*push)(struct pool_queue *q, struct pool_task *task))
{
	p->in_flight++;
	task->elsewhere_ns = 0;
	pthread_mutex_lock(&p->lock);
	task->lane = lane ? lane : &p->own;
	if (!task->lane->waiting.head)
		lane_add(p, task->lane);
	push(&task->lane->waiting, task);
	p->n_waiting++;
	if (task->lane->running < task->lane->limit) {
		if (p->n_sleeping > 0)
			pthread_cond_signal(&p->wake);
		start_workers(p);
	}
	pthread_mutex_unlock(&p->lock);
}

void pool_submit(struct pool *p, struct pool_lane *lane, struct pool_task *task)
{
	submit(p, lane, task, queue_push);
}

void pool_submit_first(struct pool *p, struct pool_lane *lane, struct pool_task *task)
{
	submit(p, lane, task, queue_push_first);
}

uint32_t pool_workers(const struct pool *p)
{
	return p->target; /* written by the loop's thread only */
}

uint32_t pool_threads(struct pool *p)
{
	uint32_t n;

	pthread_mutex_lock(&p->lock);
	n = p->n_threads;
	pthread_mutex_unlock(&p->lock);
	return n;
}

uint64_t pool_in_flight(const struct pool *p)
{
	return p->in_flight;
}

void pool_free(struct pool *p)
{
	bool join[POOL_MAX_WORKERS];

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->target = 0;
	for (uint32_t i = 0; i < POOL_MAX_WORKERS; i++)
		join[i] = p->workers[i].state != WORKER_NONE;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < POOL_MAX_WORKERS; i++) {
		if (join[i])
			pthread_join(p->workers[i].thread, NULL);
	}
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	uv_close((uv_handle_t *)&p->async, on_async_closed);
}

void pool_lane_init(struct pool_lane *lane)
{
	*lane = (struct pool_lane){.limit = POOL_MAX_WORKERS};
	lane->waiting.tail = &lane->waiting.head;
}

void pool_lane_limit(struct pool *p, struct pool_lane *lane, uint32_t limit)
{
	pthread_mutex_lock(&p->lock);
	lane->limit = limit < 1 ? 1 : limit;
	if (lane->waiting.head) {
		start_workers(p);
		pthread_cond_broadcast(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
}

uint32_t pool_lane_workers(const struct pool *p, const struct pool_lane *lane)
{
	return lane->limit < p->target ? lane->limit : p->target;
}

uint64_t pool_lane_cpu_ns(const struct pool_lane *lane)
{
	return atomic_load_explicit(&lane->cpu_ns, memory_order_relaxed);
}
