/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "lib/clock.h"
#include "lib/container_of.h"

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

#define WORK_BUCKETS 64

/* Maximum by which a user's usage may be below that of others. The user makes up for missed turns at once,
 * and others must not wait long for that. */
#define BEHIND_NS UINT64_C(500000000)

struct work_user {
	struct work_user *next; /* next in its bucket */
	struct work_user *busy_next, **busy_link;
	uint32_t uid;
	uint32_t n_lanes; /* lanes with tasks that wait or run */
	uint32_t n_running, n_paused;
	uint32_t limit;   /* maximum number of tasks that run at one time */
	uint64_t mean_ns; /* mean cost of a task */
	struct turn turn;
	struct turns turns; /* turns among the user's lanes */
	/* Lanes that may run another task. ready: a short task or a paused one; fresh: only a new long
	 * task. */
	struct turn_queue ready, fresh;
	struct turn_entry entry; /* entry in work_turns.idle */
};

struct work_turns {
	uint32_t n_workers; /* number of threads that may work */
	uint32_t n_users;   /* users with tasks that wait or run */
	struct turns turns;
	struct turn_queue idle; /* users without running or paused tasks */
	struct work_user *busy; /* all other users; at most as many as there are running and paused tasks */
	struct work_user *users[WORK_BUCKETS];
	struct work_user *fallback; /* the user to charge if memory for a further user's record runs out */
};

struct work_choice {
	struct pool_lane *lane;
	enum work_kind kind;
};

struct pool {
	pthread_mutex_t lock; /* guards all but the loop thread's fields */
	struct work_turns turns;
	struct pool_lane own;
	struct pool_queue ready; /* tasks that have a place, but no thread yet */
	struct pool_queue out;
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

/*
 * ---- turns of users and of their lanes ----
 *
 * Workers are shared among the users who want one, and a user's share among his lanes, however many there
 * are. Both go by turns (turns.h), measured by the cost of tasks. At its start a task is charged the mean
 * cost of the user's tasks, and later its actual cost so far. While others have tasks waiting, no user gets
 * more workers than his share; otherwise he may have all. No function here reads a clock, blocks or locks.
 */

static struct work_user **bucket_of(struct work_turns *t, uint32_t uid)
{
	return &t->users[uid % WORK_BUCKETS];
}

/* Forgets idle users of the bucket, but only after others have used as much: leaving and coming back must not
 * clear a debt. */
static void forget_users(const struct work_turns *t, struct work_user **bucket)
{
	for (struct work_user **link = bucket; *link;) {
		struct work_user *u = *link;

		if (u == t->fallback || u->n_lanes > 0 || (t->n_users > 0 && u->turn.used > t->turns.now)) {
			link = &u->next;
			continue;
		}
		*link = u->next;
		free(u);
	}
}

/* Does not access the lanes. */
static void work_turns_free(struct work_turns *t)
{
	for (uint32_t i = 0; i < WORK_BUCKETS; i++) {
		while (t->users[i]) {
			struct work_user *u = t->users[i];

			t->users[i] = u->next;
			free(u);
		}
	}
}

static struct work_user *user_of(struct work_turns *t, uint32_t uid)
{
	struct work_user **bucket = bucket_of(t, uid), *u = *bucket;

	while (u && u->uid != uid)
		u = u->next;
	if (u)
		return u;
	forget_users(t, bucket);
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	*u = (struct work_user){.next = *bucket, .uid = uid, .limit = UINT32_MAX};
	*bucket = u;
	return u;
}

/* fallback: uid to charge for tasks of a user who cannot be recorded for lack of memory. -ENOMEM. */
static int work_turns_init(struct work_turns *t, uint32_t fallback)
{
	*t = (struct work_turns){.n_workers = 1};
	t->fallback = user_of(t, fallback);
	return t->fallback ? 0 : -ENOMEM;
}

static uint32_t share_of(const struct work_turns *t)
{
	uint32_t n = t->n_users > 0 ? t->n_users : 1;

	return t->n_workers > n ? (t->n_workers + n - 1) / n : 1;
}

/* Returns false while the user has many paused tasks: each holds a process, so no further task may begin. */
static bool may_begin(const struct work_turns *t, const struct work_user *u)
{
	return u->n_paused < 2 * share_of(t);
}

/* Puts the lane into the right queue of its user after a change. */
static void lane_place(struct pool_lane *lane)
{
	struct work_user *u = lane->user;

	turn_queue_remove(&lane->entry);
	if (lane->n_running >= lane->limit)
		return;
	if (lane->n[WORK_SHORT] > 0 || lane->n[WORK_PAUSED] > 0)
		turn_queue_add(&u->ready, &lane->entry, lane->turn.used);
	else if (lane->n[WORK_LONG] > 0)
		turn_queue_add(&u->fresh, &lane->entry, lane->turn.used);
}

static void user_place(struct work_turns *t, struct work_user *u)
{
	bool is_busy = u->n_running > 0 || u->n_paused > 0;

	turn_queue_remove(&u->entry);
	if (is_busy && !u->busy_link) {
		u->busy_next = t->busy;
		u->busy_link = &t->busy;
		if (u->busy_next)
			u->busy_next->busy_link = &u->busy_next;
		t->busy = u;
	} else if (!is_busy && u->busy_link) {
		*u->busy_link = u->busy_next;
		if (u->busy_next)
			u->busy_next->busy_link = u->busy_link;
		u->busy_link = NULL;
	}
	if (!is_busy && (u->ready.first || u->fresh.first))
		turn_queue_add(&t->idle, &u->entry, u->turn.used);
}

static bool is_active(const struct pool_lane *lane)
{
	return lane->n_running + lane->n[WORK_SHORT] + lane->n[WORK_LONG] + lane->n[WORK_PAUSED] > 0;
}

static void place(struct work_turns *t, struct pool_lane *lane)
{
	struct work_user *u = lane->user;

	lane_place(lane);
	if (!is_active(lane)) {
		lane->user = NULL;
		if (--u->n_lanes == 0)
			t->n_users--;
	}
	user_place(t, u);
}

/* Records that one more task waits. */
static void work_add(struct work_turns *t, struct pool_lane *lane, enum work_kind kind)
{
	struct work_user *u = lane->user;

	if (!u) {
		u = user_of(t, lane->uid);
		u = u ? u : t->fallback;
		if (u->n_lanes++ == 0) {
			t->n_users++;
			turn_enter(&t->turns, &u->turn, 0);
		}
		lane->user = u;
		u->limit = lane->user_limit;
		turn_enter(&u->turns, &lane->turn, 0);
	}
	lane->n[kind]++;
	place(t, lane);
}

static struct pool_lane *first_lane(const struct work_turns *t, const struct work_user *u)
{
	const struct turn_entry *ready = u->ready.first, *fresh = may_begin(t, u) ? u->fresh.first : NULL;

	if (ready && fresh)
		return container_of(fresh->used < ready->used ? fresh : ready, struct pool_lane, entry);
	return ready   ? container_of(ready, struct pool_lane, entry)
	       : fresh ? container_of(fresh, struct pool_lane, entry)
		       : NULL;
}

static enum work_kind next_kind(const struct work_turns *t, const struct pool_lane *lane)
{
	bool is_fresh = lane->n[WORK_LONG] > 0 && may_begin(t, lane->user);
	bool is_long = lane->n[WORK_PAUSED] > 0 || is_fresh;

	if (lane->n[WORK_SHORT] > 0 && (lane->was_long || !is_long))
		return WORK_SHORT;
	return lane->n[WORK_PAUSED] > 0 ? WORK_PAUSED : WORK_LONG;
}

/* Returns true if user u goes before user v. u_running, v_running: their running tasks, without the task in
 * question. */
static bool goes_first(const struct work_turns *t, const struct work_user *u, uint32_t u_running,
		       const struct work_user *v, uint32_t v_running)
{
	bool u_has_less = u_running < share_of(t), v_has_less = v_running < share_of(t);

	return u_has_less != v_has_less ? u_has_less : u->turn.used < v->turn.used;
}

/* Chooses the next task. gives: the user whose running task would give up its place for it; NULL: none. */
static bool choose(const struct work_turns *t, const struct work_user *gives, struct work_choice *ret)
{
	const struct work_user *best =
	    t->idle.first ? container_of(t->idle.first, struct work_user, entry) : NULL;

	for (const struct work_user *u = t->busy; u; u = u->busy_next) {
		if (u->n_running - (u == gives) < u->limit && first_lane(t, u) &&
		    (!best || goes_first(t, u, u->n_running, best, best->n_running)))
			best = u;
	}
	if (!best)
		return false;
	ret->lane = first_lane(t, best);
	ret->kind = next_kind(t, ret->lane);
	return true;
}

static void charge_turn(struct pool_lane *lane, uint64_t ns)
{
	turn_charge(&lane->turn, ns, TURN_WEIGHT);
	turn_charge(&lane->user->turn, ns, TURN_WEIGHT);
}

/* Records that the chosen task runs. Returns its expected cost, which is charged. */
static uint64_t work_begin(struct work_turns *t, const struct work_choice *choice)
{
	struct pool_lane *lane = choice->lane;
	struct work_user *u = lane->user;

	turn_enter(&t->turns, &u->turn, BEHIND_NS);
	turn_enter(&u->turns, &lane->turn, BEHIND_NS);
	turns_reach(&t->turns, (int64_t)u->turn.used);
	turns_reach(&u->turns, (int64_t)lane->turn.used);
	charge_turn(lane, u->mean_ns);
	lane->n[choice->kind]--;
	lane->n_running++;
	lane->was_long = choice->kind != WORK_SHORT;
	u->n_running++;
	u->n_paused -= choice->kind == WORK_PAUSED;
	place(t, lane);
	return u->mean_ns;
}

/* Charges a task up to its cost so far. *charged: the amount charged for it so far, at first from
 * work_begin(); 0 for work outside of tasks. Charges nothing if no task of the lane waits or runs: a lane
 * that comes back gets no credit anyway. */
static void work_charge(struct pool_lane *lane, uint64_t cost, uint64_t *charged)
{
	if (cost <= *charged || !lane->user)
		return;
	charge_turn(lane, cost - *charged);
	*charged = cost;
	lane_place(lane);
}

/* Returns true if a running long task should pause because another task's turn comes first. */
static bool work_is_over(const struct work_turns *t, const struct pool_lane *lane)
{
	const struct work_user *u = lane->user;
	struct work_choice other;

	if (!choose(t, u, &other))
		return false;
	if (other.lane->user != u)
		return goes_first(t, other.lane->user, other.lane->user->n_running, u, u->n_running - 1);
	return other.lane == lane ? other.kind == WORK_SHORT : other.lane->turn.used < lane->turn.used;
}

/* Replaces the charged amount by the cost. Usage may go down: unsigned arithmetic wraps correctly. */
static void settle(struct pool_lane *lane, uint64_t cost, uint64_t *charged)
{
	lane->turn.used += cost - *charged;
	lane->user->turn.used += cost - *charged;
	*charged = cost;
}

/* Records that a long task pauses. cost: its cost so far. */
static void work_pause(struct work_turns *t, struct pool_lane *lane, uint64_t cost, uint64_t *charged)
{
	settle(lane, cost, charged);
	lane->n_running--;
	lane->user->n_running--;
	lane->n[WORK_PAUSED]++;
	lane->user->n_paused++;
	place(t, lane);
}

/* Records that a task has ended. cost: its total cost. */
static void work_end(struct work_turns *t, struct pool_lane *lane, uint64_t cost, uint64_t charged)
{
	struct work_user *u = lane->user;

	settle(lane, cost, &charged);
	u->mean_ns = (u->mean_ns * 7 + cost) / 8;
	lane->n_running--;
	u->n_running--;
	place(t, lane);
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
	work_charge(task->lane, cost_ns(task, clock, now_ns), &task->charged_ns);
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
	struct pool_task *task = queue_pop(&choice->lane->waiting[choice->kind]);
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

	if (p->n_places < p->turns.n_workers)
		charge_running(p);
	while (p->n_places < p->turns.n_workers && choose(&p->turns, NULL, &choice) &&
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
	work_end(&p->turns, task->lane, cost_ns(task, w->clock, clock_monotonic_ns()), task->charged_ns);
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
	return p->n_free > p->turns.n_workers ||
	       p->n_places + p->n_free > p->turns.n_workers + 1; /* one extra thread for a task that pauses */
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
	over = p->n_places > p->turns.n_workers || (work_is_over(&p->turns, task->lane) && has_thread(p));
	pthread_mutex_unlock(&p->lock);
	return over;
}

void pool_pause(struct pool *p, struct pool_task *task)
{
	struct pool_worker *w = task->worker;
	uint64_t now_ns = clock_monotonic_ns();

	pthread_mutex_lock(&p->lock);
	w->is_called = p->n_places <= p->turns.n_workers && !has_thread(p); /* no other task could run */
	if (!w->is_called) {
		work_pause(&p->turns, task->lane, cost_ns(task, w->clock, now_ns), &task->charged_ns);
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
	p->turns.n_workers = workers;
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
	work_add(&p->turns, task->lane, kind_of(task));
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
	return p->turns.n_workers; /* written only on the loop thread */
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
	*lane = (struct pool_lane){.uid = uid, .limit = UINT32_MAX, .user_limit = UINT32_MAX};
	for (int i = 0; i < WORK_N_KINDS; i++)
		queue_init(&lane->waiting[i]);
}

void pool_lane_limit(struct pool *p, struct pool_lane *lane, uint32_t limit)
{
	pthread_mutex_lock(&p->lock);
	lane->limit = limit < 1 ? 1 : limit;
	if (lane->user)
		place(&p->turns, lane);
	give_places(p);
	pthread_mutex_unlock(&p->lock);
}

void pool_lane_limit_user(struct pool *p, struct pool_lane *lane, uint32_t limit)
{
	pthread_mutex_lock(&p->lock);
	lane->user_limit = limit < 1 ? 1 : limit;
	if (lane->user)
		lane->user->limit = lane->user_limit;
	give_places(p);
	pthread_mutex_unlock(&p->lock);
}

uint32_t pool_lane_workers(const struct pool *p, const struct pool_lane *lane)
{
	uint32_t n = lane->limit < lane->user_limit ? lane->limit : lane->user_limit;

	return n < p->turns.n_workers ? n : p->turns.n_workers;
}

void pool_lane_charge(struct pool *p, struct pool_lane *lane, uint64_t cpu_ns)
{
	pthread_mutex_lock(&p->lock);
	work_charge(lane, cpu_ns, &(uint64_t){0});
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
