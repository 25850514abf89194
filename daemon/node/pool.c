/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "lib/clock.h"

#define IDLE_S             5                /* time after which a thread without work ends */
#define CHARGE_INTERVAL_NS (NS_PER_S / 100) /* minimum interval between charges of running tasks */

enum worker_state { WORKER_NONE, WORKER_RUNNING, WORKER_ENDED /* exited, must be joined */ };

struct pool_worker {
	struct pool *pool;
	pthread_t thread;
	pthread_cond_t wake;
	enum worker_state state;
	bool is_called; /* set by the thread that took this worker off the sleeping list, or gave its task a
			   place */
	struct pool_task *task;    /* the task that the worker runs or has paused */
	struct pool_worker *below; /* next in the list of sleeping workers */
	clockid_t clock;
};

struct pool {
	pthread_mutex_t lock; /* guards all but the loop thread's fields */
	struct work_turns turns;
	struct pool_lane own;
	struct pool_queue ready; /* tasks that have a place, but no thread yet */
	struct pool_queue out;
	uint32_t target;   /* number of threads that may work */
	uint32_t n_places; /* places taken by tasks that run or are ready */
	uint32_t n_ready;
	uint32_t n_threads;
	uint32_t n_free;  /* threads without a task; there are at most as many ready tasks */
	uint32_t n_awake; /* free threads that are awake: they check for a task before they sleep */
	struct pool_worker *sleeping;
	uint64_t last_charge_ns;
	bool ends;
	struct pool_worker workers[POOL_MAX_THREADS];
	/* loop thread only */
	uint64_t in_flight;
	uv_async_t async;
};

static void queue_init(struct pool_queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

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

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec t;

	return clock_gettime(clock, &t) == 0 ? (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec : 0;
}

/* ---- cost of tasks ------------------------------------------------------------------------------------- */

/* Returns the task's cost so far, and adds the CPU time used since the last call to its lane. */
static uint64_t cost_ns(struct pool_task *task, clockid_t clock, uint64_t now_ns)
{
	uint64_t held_ns = task->is_long ? task->held_ns + (now_ns - task->since_ns) : 0;
	uint64_t used_ns = cpu_ns(clock) - task->begin_cpu_ns + task->so_far_ns;

	if (used_ns > task->used_ns) {
		atomic_fetch_add_explicit(&task->lane->cpu_ns, used_ns - task->used_ns, memory_order_relaxed);
		task->used_ns = used_ns;
	}
	return used_ns > held_ns ? used_ns : held_ns;
}

static void charge(struct pool_task *task, clockid_t clock, uint64_t now_ns)
{
	work_charge(&task->lane->turns, cost_ns(task, clock, now_ns), &task->charged_ns);
}

/* Charges tasks while they run. Otherwise a user with long tasks would get further workers as if the tasks
 * were short. */
static void charge_running(struct pool *p)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (now_ns < p->last_charge_ns + CHARGE_INTERVAL_NS)
		return;
	p->last_charge_ns = now_ns;
	for (uint32_t i = 0; i < POOL_MAX_THREADS; i++) {
		struct pool_worker *w = &p->workers[i];

		if (w->task && w->task->since_ns && now_ns >= w->task->since_ns + CHARGE_INTERVAL_NS)
			charge(w->task, w->clock, now_ns);
	}
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static void *worker_run(void *argument);

static void call_worker(struct pool_worker *w)
{
	w->is_called = true;
	pthread_cond_signal(&w->wake);
}

/* Starts a thread. -EAGAIN: there can be no more threads. */
static int start_worker(struct pool *p)
{
	for (uint32_t i = 0; i < POOL_MAX_THREADS; i++) {
		struct pool_worker *w = &p->workers[i];
		int r;

		if (w->state == WORKER_RUNNING)
			continue;
		if (w->state == WORKER_ENDED)
			pthread_join(w->thread, NULL); /* does not block: the thread is about to end */
		w->state = WORKER_NONE;
		w->pool = p;
		r = pthread_create(&w->thread, NULL, worker_run, w);
		if (r != 0)
			return -r;
		w->state = WORKER_RUNNING;
		p->n_threads++;
		p->n_free++;
		p->n_awake++;
		return 0;
	}
	return -EAGAIN;
}

/* Returns true if there is, or was started, a thread for one more task. */
static bool has_thread(struct pool *p)
{
	return p->n_free > p->n_ready || start_worker(p) == 0;
}

static void wake_sleeping(struct pool *p)
{
	struct pool_worker *w = p->sleeping;

	p->sleeping = w->below;
	p->n_awake++;
	call_worker(w);
}

/* ---- places -------------------------------------------------------------------------------------------- */

static void give_place(struct pool *p, const struct work_choice *choice)
{
	struct pool_lane *lane = (struct pool_lane *)choice->lane;
	struct pool_task *task = queue_pop(&lane->waiting[choice->kind]);
	uint64_t charged_ns = work_begin(&p->turns, choice);

	p->n_places++;
	if (choice->kind == WORK_PAUSED) {
		task->charged_ns += charged_ns;
		task->since_ns = clock_monotonic_ns();
		call_worker(task->worker);
		return;
	}
	task->charged_ns = charged_ns;
	queue_push(&p->ready, task);
	p->n_ready++;
	if (p->n_ready > p->n_awake)
		wake_sleeping(p);
}

/* Gives free places to tasks in turn. If no thread can be started, the next thread that finishes its task
 * does this. */
static void give_places(struct pool *p)
{
	struct work_choice choice;

	if (p->n_places < p->target)
		charge_running(p);
	while (p->n_places < p->target && work_choose(&p->turns, &choice) &&
	       (choice.kind == WORK_PAUSED || has_thread(p)))
		give_place(p, &choice);
}

static enum work_kind kind_of(const struct pool_task *task)
{
	return task->is_long ? WORK_LONG : WORK_SHORT;
}

static void finish_task(struct pool *p, struct pool_worker *w, struct pool_task *task)
{
	bool first = !p->out.head;

	task->so_far_ns = task->elsewhere_ns;
	work_end(&p->turns, &task->lane->turns, cost_ns(task, w->clock, clock_monotonic_ns()),
		 task->charged_ns);
	w->task = NULL;
	p->n_places--;
	queue_push(&p->out, task);
	if (first)
		uv_async_send(&p->async);
}

static void run_task(struct pool *p, struct pool_worker *w, struct pool_task *task)
{
	p->n_ready--;
	p->n_free--;
	p->n_awake--;
	task->worker = w;
	task->held_ns = task->so_far_ns = task->used_ns = 0;
	task->begin_cpu_ns = cpu_ns(w->clock);
	task->since_ns = clock_monotonic_ns();
	w->task = task;
	pthread_mutex_unlock(&p->lock);
	task->work(task);
	pthread_mutex_lock(&p->lock);
	finish_task(p, w, task);
	p->n_free++;
	p->n_awake++;
	give_places(p);
}

static void stop_sleeping(struct pool *p, const struct pool_worker *w)
{
	struct pool_worker **link = &p->sleeping;

	while (*link != w)
		link = &(*link)->below;
	*link = w->below;
	p->n_awake++;
}

/* Sleeps until the worker is called. Returns false after IDLE_S without a call. */
static bool wait_for_work(struct pool *p, struct pool_worker *w)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_S;
	w->below = p->sleeping;
	p->sleeping = w;
	p->n_awake--;
	w->is_called = false;
	/* The last thread waits without a timeout: work always finds a thread, and an idle daemon does not
	 * wake up. */
	while (!w->is_called && r != ETIMEDOUT)
		r = p->n_threads > 1 ? pthread_cond_timedwait(&w->wake, &p->lock, &until)
				     : pthread_cond_wait(&w->wake, &p->lock);
	if (w->is_called)
		return true;
	stop_sleeping(p, w);
	return false;
}

/* Returns true if there are more threads without a task than there can be places for. */
static bool is_surplus(const struct pool *p)
{
	return p->n_free > p->target ||
	       p->n_places + p->n_free > p->target + 1; /* one extra thread for a task that pauses */
}

static void *worker_run(void *argument)
{
	struct pool_worker *w = argument;
	struct pool *p = w->pool;
	bool in_time = true;

	pthread_setname_np(pthread_self(), "dieseld-cpu");
	pthread_mutex_lock(&p->lock);
	(void)pthread_getcpuclockid(pthread_self(), &w->clock);
	for (;;) {
		struct pool_task *task = queue_pop(&p->ready);

		if (task) {
			run_task(p, w, task);
			in_time = true;
		} else if (p->ends || (p->n_threads > 1 && (!in_time || is_surplus(p)))) {
			break;
		} else {
			in_time = wait_for_work(p, w);
		}
	}
	p->n_threads--;
	p->n_free--;
	p->n_awake--;
	w->state = WORKER_ENDED;
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

bool pool_turn_is_over(struct pool *p, struct pool_task *task, uint64_t elsewhere_ns)
{
	bool over;

	pthread_mutex_lock(&p->lock);
	task->so_far_ns = elsewhere_ns;
	charge(task, task->worker->clock, clock_monotonic_ns());
	charge_running(p);
	over = p->n_places > p->target || (work_is_over(&p->turns, &task->lane->turns) && has_thread(p));
	pthread_mutex_unlock(&p->lock);
	return over;
}

void pool_pause(struct pool *p, struct pool_task *task)
{
	struct pool_worker *w = task->worker;
	uint64_t now_ns = clock_monotonic_ns();

	pthread_mutex_lock(&p->lock);
	w->is_called = p->n_places <= p->target && !has_thread(p); /* no other task could run */
	if (!w->is_called) {
		work_pause(&p->turns, &task->lane->turns, cost_ns(task, w->clock, now_ns), &task->charged_ns);
		task->held_ns += now_ns - task->since_ns;
		task->since_ns = 0;
		queue_push(&task->lane->waiting[WORK_PAUSED], task);
		p->n_places--;
		give_places(p);
	}
	while (!w->is_called)
		pthread_cond_wait(&w->wake, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

/* ---- the loop's side ----------------------------------------------------------------------------------- */

static void on_done(uv_async_t *async)
{
	struct pool *p = async->data;
	struct pool_task *task;

	pthread_mutex_lock(&p->lock);
	task = p->out.head;
	queue_init(&p->out);
	pthread_mutex_unlock(&p->lock);
	while (task) {
		struct pool_task *next = task->next;

		p->in_flight--;
		task->done(task);
		task = next;
	}
}

void pool_set_workers(struct pool *p, uint32_t workers)
{
	if (workers < 1)
		workers = 1;
	if (workers > POOL_MAX_WORKERS)
		workers = POOL_MAX_WORKERS;
	pthread_mutex_lock(&p->lock);
	p->target = p->turns.n_workers = workers;
	give_places(p);
	while (p->sleeping) /* surplus threads end */
		wake_sleeping(p);
	pthread_mutex_unlock(&p->lock);
}

static void on_async_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void init_locks(struct pool *p)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	for (uint32_t i = 0; i < POOL_MAX_THREADS; i++)
		pthread_cond_init(&p->workers[i].wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

int pool_new(uv_loop_t *loop, uint32_t workers, struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = work_turns_init(&p->turns, POOL_DAEMON);
	if (r == 0)
		r = uv_async_init(loop, &p->async, on_done);
	if (r < 0) {
		work_turns_free(&p->turns);
		free(p);
		return r;
	}
	p->async.data = p;
	queue_init(&p->out);
	queue_init(&p->ready);
	pool_lane_init(&p->own, POOL_DAEMON);
	init_locks(p);
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
	task->since_ns = 0;
	work_add(&p->turns, &task->lane->turns, kind_of(task));
	push(&task->lane->waiting[kind_of(task)], task);
	give_places(p);
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
	return p->target; /* written only on the loop thread */
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
	bool join[POOL_MAX_THREADS];

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->ends = true;
	for (uint32_t i = 0; i < POOL_MAX_THREADS; i++)
		join[i] = p->workers[i].state != WORKER_NONE;
	while (p->sleeping)
		wake_sleeping(p);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < POOL_MAX_THREADS; i++) {
		if (join[i])
			pthread_join(p->workers[i].thread, NULL);
		pthread_cond_destroy(&p->workers[i].wake);
	}
	pthread_mutex_destroy(&p->lock);
	work_turns_free(&p->turns);
	uv_close((uv_handle_t *)&p->async, on_async_closed);
}

void pool_lane_init(struct pool_lane *lane, uint32_t uid)
{
	*lane = (struct pool_lane){.cpu_ns = 0};
	work_lane_init(&lane->turns, uid);
	for (int i = 0; i < WORK_N_KINDS; i++)
		queue_init(&lane->waiting[i]);
}

void pool_lane_limit(struct pool *p, struct pool_lane *lane, uint32_t limit)
{
	pthread_mutex_lock(&p->lock);
	work_limit(&p->turns, &lane->turns, limit);
	give_places(p);
	pthread_mutex_unlock(&p->lock);
}

void pool_lane_limit_user(struct pool *p, struct pool_lane *lane, uint32_t limit)
{
	pthread_mutex_lock(&p->lock);
	work_limit_user(&lane->turns, limit);
	give_places(p);
	pthread_mutex_unlock(&p->lock);
}

uint32_t pool_lane_workers(const struct pool *p, const struct pool_lane *lane)
{
	uint32_t n = lane->turns.limit < lane->turns.user_limit ? lane->turns.limit : lane->turns.user_limit;

	return n < p->target ? n : p->target;
}

void pool_lane_charge(struct pool *p, struct pool_lane *lane, uint64_t cpu_ns)
{
	pthread_mutex_lock(&p->lock);
	work_charge(&lane->turns, cpu_ns, &(uint64_t){0});
	pthread_mutex_unlock(&p->lock);
	atomic_fetch_add_explicit(&lane->cpu_ns, cpu_ns, memory_order_relaxed);
}

uint64_t pool_lane_cpu_ns(const struct pool_lane *lane)
{
	return atomic_load_explicit(&lane->cpu_ns, memory_order_relaxed);
}

#ifndef NDEBUG
static uint32_t queue_length(const struct pool_queue *q)
{
	uint32_t n = 0;

	for (const struct pool_task *task = q->head; task; task = task->next)
		n++;
	return n;
}

void check_pool(struct pool *p)
{
	uint32_t n_threads = 0, n_busy = 0, n_sleeping = 0, n_placed;

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < POOL_MAX_THREADS; i++) {
		const struct pool_worker *w = &p->workers[i];

		n_threads += w->state == WORKER_RUNNING;
		n_busy += w->state == WORKER_RUNNING && w->task;
	}
	for (const struct pool_worker *w = p->sleeping; w; w = w->below)
		n_sleeping++;
	n_placed = queue_length(&p->ready);
	assert(p->n_threads == n_threads && p->n_free == n_threads - n_busy);
	assert(p->n_free == p->n_awake + n_sleeping);
	assert(p->n_ready == n_placed && p->n_places >= p->n_ready && p->n_places <= p->n_ready + n_busy);
	assert(p->in_flight >= n_placed + n_busy + queue_length(&p->out));
	pthread_mutex_unlock(&p->lock);
}
#endif
