/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/pages/page_cache_find.h"
#include "analyzer/timeline/calls.h"
#include "lib/array.h"
#include "lib/sorted.h"

#define HEADER_BYTES 4 /* multiprocessing sends a length before each message */

static int birth_compare(const void *left, const void *right)
{
	const struct service_worker *a = left, *b = right;

	if (a->thread->first_ns != b->thread->first_ns)
		return a->thread->first_ns < b->thread->first_ns ? -1 : 1;
	return a->thread->tid < b->thread->tid ? -1 : a->thread->tid > b->thread->tid;
}

static int batch_add(struct service_worker *worker, const struct service_batch *batch)
{
	if (array_reserve(worker->batches, worker->n_batches, worker->n_allocated) < 0)
		return -ENOMEM;
	worker->batches[worker->n_batches++] = *batch;
	return 0;
}

/* Minimum time between messages. Two messages in quick succession are the end of an epoch, or a wake-up of
 * a persistent worker: nothing was loaded. */
#define BATCH_MIN_NS UINT64_C(20000)
#define WORK_MIN     0.02 /* fraction of the median batch's work; less is not a batch */

static bool writes_results(const struct roles *roles, const struct timeline_thread *thread)
{
	for (size_t i = 0; i < thread->n_calls; i++)
		if (call_is_pipe_write(&thread->calls[i]) && roles_is_result(roles, thread->calls[i].inode))
			return true;
	return false;
}

/* Finds the worker's helper threads. A thread that hands batches over does not count as a helper: its time is
 * in the hand-offs. */
static void helpers_find(const struct study *study, const struct timeline_thread *of, struct service *service)
{
	const struct timeline *timeline = study->timeline;

	service->n_helpers = 0;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (thread == of || !timeline_same_process(thread, of) || !thread->n_offs ||
		    writes_results(study->roles, thread))
			continue;
		service->helpers[service->n_helpers++] = thread;
	}
}

static int batches_of_worker(const struct roles *roles, struct service_worker *worker,
			     struct service *service)
{
	const struct timeline_thread *thread = worker->thread;
	uint64_t begin_ns = 0;

	for (size_t i = 0; i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];
		bool reads = call_is_pipe_read(call);

		if ((!reads && !call_is_pipe_poll(call)) || roles_is_result(roles, call->inode))
			continue;
		if (begin_ns && call->begin_ns > begin_ns + BATCH_MIN_NS) {
			struct service_batch batch = {.begin_ns = begin_ns, .end_ns = call->begin_ns};

			if (service_segments_add(thread, begin_ns, call->begin_ns, service, &batch) < 0 ||
			    batch_add(worker, &batch) < 0)
				return -ENOMEM;
		}
		begin_ns = reads && call->result > HEADER_BYTES ? call->end_ns : 0;
	}
	return 0;
}

/* The feeder writes one message per batch, in the batches' order. */
static void publications_find(const struct study *study, struct service_worker *worker)
{
	for (size_t i = 0; i < study->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &study->timeline->threads[i];
		size_t k = 0;

		if (!timeline_same_process(thread, worker->thread) || thread == worker->thread)
			continue;
		for (size_t c = 0; c < thread->n_calls && k < worker->n_batches; c++) {
			const struct timeline_call *call = &thread->calls[c];

			if (!call_is_pipe_write(call) || !roles_is_result(study->roles, call->inode))
				continue;
			/* A message from before the first batch belongs to one that was not seen. The feeder
			 * may write before the worker looks for its next index, or only after the worker's
			 * next batch. */
			while (k < worker->n_batches && worker->batches[k].published_ns)
				k++;
			if (k < worker->n_batches && call->end_ns > worker->batches[k].begin_ns)
				worker->batches[k++].published_ns = call->end_ns;
		}
	}
}

static int batches_of_trainer(const struct study *study, struct service *service)
{
	const struct data_waits *waits = study->waits;
	struct service_worker *worker = &service->workers[0];

	worker->thread = study->roles->trainer;
	service->n_workers = 1;
	helpers_find(study, worker->thread, service);
	for (size_t i = data_waits_from(waits, study->run->begin_ns); i < waits->n; i++) {
		struct service_batch batch = {.begin_ns = waits->items[i].begin_ns,
					      .end_ns = waits->items[i].end_ns};

		if (batch.begin_ns >= study->run->end_ns)
			break;
		if (service_segments_add(worker->thread, batch.begin_ns, batch.end_ns, service, &batch) < 0 ||
		    batch_add(worker, &batch) < 0)
			return -ENOMEM;
	}
	return 0;
}

static double work_ns(const struct service *service, const struct service_batch *batch)
{
	double ns = 0;

	for (size_t i = 0; i < batch->n_segments; i++) {
		const struct model_segment *segment = &service->segments[batch->first_segment + i];

		ns += segment->compute_ns + segment->fetch_cpu_ns + segment->latency_ns;
	}
	return ns;
}

/* Removes false batches: a persistent worker that is notified of a new epoch answers at once. */
static int batches_weed(struct service *service)
{
	double *work;
	size_t n = 0;

	for (size_t w = 0; w < service->n_workers; w++)
		n += service->workers[w].n_batches;
	work = calloc(n + 1, sizeof(*work));
	if (!work)
		return -ENOMEM;
	n = 0;
	for (size_t w = 0; w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++)
			work[n++] = work_ns(service, &service->workers[w].batches[i]);
	qsort(work, n, sizeof(*work), compare_double);
	for (size_t w = 0; w < service->n_workers; w++) {
		struct service_worker *worker = &service->workers[w];
		size_t n_kept = 0;

		for (size_t i = 0; i < worker->n_batches; i++)
			if (work_ns(service, &worker->batches[i]) >= WORK_MIN * work[n / 2])
				worker->batches[n_kept++] = worker->batches[i];
		worker->n_batches = n_kept;
	}
	free(work);
	return 0;
}

static int batches_find(const struct study *study, struct service *service)
{
	size_t n = study->roles->n_workers;

	service->workers = calloc(n + 1, sizeof(*service->workers));
	service->helpers = calloc(study->timeline->n_threads + 1, sizeof(const struct timeline_thread *));
	if (!service->workers || !service->helpers)
		return -ENOMEM;
	if (study->waits->loader == LOADER_INLINE)
		return batches_of_trainer(study, service);
	for (size_t i = 0; i < n; i++)
		if (study->roles->worker_loaders[i])
			service->workers[service->n_workers++] = (struct service_worker){
			    .thread = study->roles->workers[i], .loader = study->roles->worker_loaders[i]};
	qsort(service->workers, service->n_workers, sizeof(*service->workers), birth_compare);
	for (size_t i = 0; i < service->n_workers; i++) {
		helpers_find(study, service->workers[i].thread, service);
		if (batches_of_worker(study->roles, &service->workers[i], service) < 0)
			return -ENOMEM;
		publications_find(study, &service->workers[i]);
	}
	return batches_weed(service);
}

/*
 * Estimates how long handing a batch over takes, while the worker's main thread computes (it holds the
 * interpreter's lock, and releases it for a moment every 5 ms) and while it does not. Both times are solved
 * from sums over all hand-offs: each is one unit of work, done at one of two speeds at any time. If workers
 * compute all the time, no hand-over shows the time without computing: then that is the CPU time of both its
 * ends.
 */
#define MOSTLY_IDLE 0.2
#define IDLE_MIN    5 /* fewest hand-offs of an idle worker to learn from */

struct handoff {
	double busy_ns, idle_ns; /* parts of the hand-off's time, by the state of the worker's main thread */
	double cpu_ns;           /* CPU time of both its ends; 0: not known */
};

struct handoffs {
	struct handoff *items;
	size_t n, n_allocated;
};

/* Returns the time in which the worker computed, or waited for a core or a lock. The lock is the
 * interpreter's, which the hand-off then holds. */
static double busy_between_ns(const struct timeline_thread *worker, uint64_t begin_ns, uint64_t end_ns)
{
	struct timeline_account account = timeline_account(worker, begin_ns, end_ns);
	const struct timeline_off *off = timeline_off_before(worker, end_ns);
	uint64_t locked_ns = 0;

	for (; off && off >= worker->offs && off->waking_ns > begin_ns; off--) {
		const struct timeline_call *call =
		    off->state ? timeline_call_at(worker, off->begin_ns) : NULL;
		uint64_t from_ns = off->begin_ns > begin_ns ? off->begin_ns : begin_ns,
			 to_ns = off->waking_ns < end_ns ? off->waking_ns : end_ns;

		if (call && call->kind == CALL_FUTEX && from_ns < to_ns)
			locked_ns += to_ns - from_ns;
	}
	return (double)(account.cpu_ns + account.queue_ns + locked_ns);
}

/* Adds a hand-off. worker NULL: not known. */
static int handoff_add(struct handoffs *handoffs, const struct timeline_thread *worker, double cpu_ns,
		       uint64_t begin_ns, uint64_t end_ns)
{
	double busy_ns =
	    worker ? fmin(busy_between_ns(worker, begin_ns, end_ns), (double)(end_ns - begin_ns)) : 0;

	if (array_reserve(handoffs->items, handoffs->n, handoffs->n_allocated) < 0)
		return -ENOMEM;
	handoffs->items[handoffs->n++] = (struct handoff){
	    .busy_ns = busy_ns, .idle_ns = (double)(end_ns - begin_ns) - busy_ns, .cpu_ns = cpu_ns};
	return 0;
}

static int whole_compare(const void *left, const void *right)
{
	const struct handoff *a = left, *b = right;
	double x = a->busy_ns + a->idle_ns, y = b->busy_ns + b->idle_ns;

	return x < y ? -1 : x > y;
}

static void handoffs_solve(struct handoffs *handoffs, double *ret_idle_ns, double *ret_busy_ns)
{
	double busy_ns = 0, idle_ns = 0, cpu_ns = 0, alone_ns, left;
	size_t n = handoffs->n, n_idle = 0, k = 0;

	*ret_idle_ns = *ret_busy_ns = 0;
	if (!n)
		return;
	qsort(handoffs->items, n, sizeof(*handoffs->items), whole_compare);
	for (size_t i = 0; i < n; i++) {
		const struct handoff *item = &handoffs->items[i];

		busy_ns += item->busy_ns;
		idle_ns += item->idle_ns;
		cpu_ns += item->cpu_ns;
		n_idle += item->busy_ns <= MOSTLY_IDLE * (item->busy_ns + item->idle_ns);
	}
	/* The median of the hand-offs of an idle worker. If there are too few: the time of the quickest
	 * tenth, or the CPU time. */
	alone_ns = handoffs->items[n / 10].busy_ns + handoffs->items[n / 10].idle_ns;
	if (cpu_ns > 0)
		alone_ns = fmin(alone_ns, cpu_ns / (double)n);
	for (size_t i = 0; n_idle >= IDLE_MIN && i < n; i++) {
		const struct handoff *item = &handoffs->items[i];

		if (item->busy_ns <= MOSTLY_IDLE * (item->busy_ns + item->idle_ns) && k++ == n_idle / 2)
			alone_ns = item->busy_ns + item->idle_ns;
	}
	if (alone_ns < 1)
		alone_ns = 1;
	left = (double)n - idle_ns / alone_ns;
	*ret_idle_ns = alone_ns;
	*ret_busy_ns = left > 0 ? fmax(alone_ns, busy_ns / left) : alone_ns;
}

static int publications_measure(struct service *service)
{
	struct model_loader *loader = &service->job.loader;
	struct handoffs handoffs = {0};
	int r = 0;

	for (size_t w = 0; w < service->n_workers; w++) {
		const struct service_worker *worker = &service->workers[w];

		for (size_t i = 0; r == 0 && i < worker->n_batches; i++) {
			const struct service_batch *batch = &worker->batches[i];

			if (batch->published_ns)
				r = handoff_add(&handoffs, worker->thread, 0, batch->end_ns,
						batch->published_ns > batch->end_ns ? batch->published_ns
										    : batch->end_ns);
		}
	}
	if (r == 0)
		handoffs_solve(&handoffs, &loader->publish_idle_ns, &loader->publish_busy_ns);
	free(handoffs.items);
	return r;
}

/* Returns the worker with a thread, *ret_thread, that answered on a socket meanwhile; NULL: none was seen. */
static const struct timeline_thread *giver(const struct study *study, const struct service *service,
					   uint64_t begin_ns, uint64_t end_ns,
					   const struct timeline_thread **ret_thread)
{
	for (size_t i = 0; i < study->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &study->timeline->threads[i];
		size_t k;

		if (study->roles->of[i] != ROLE_HANDOFF || thread->first_ns >= end_ns ||
		    thread->last_ns <= begin_ns)
			continue;
		k = timeline_call_from(thread, begin_ns);
		while (k < thread->n_calls && thread->calls[k].end_ns <= end_ns &&
		       !call_is_socket(&thread->calls[k]))
			k++;
		if (k == thread->n_calls || thread->calls[k].end_ns > end_ns)
			continue;
		for (size_t w = 0; w < service->n_workers; w++)
			if (service->workers[w].thread->tgid == thread->tgid) {
				*ret_thread = thread;
				return service->workers[w].thread;
			}
	}
	return NULL;
}

/* Returns the time when the trainer could first take the batch: when it was woken for it, unless the batch
 * was ready before. */
static uint64_t known_ns(const struct timeline_thread *trainer, const struct data_wait *wait)
{
	const struct timeline_off *off = timeline_off_before(trainer, wait->ready_ns);

	if (!off || !off->state || off->waking_ns <= wait->begin_ns || off->waking_ns > wait->ready_ns)
		return wait->begin_ns;
	return off->waking_ns;
}

static int handovers_measure(const struct study *study, struct service *service)
{
	struct model_loader *loader = &service->job.loader;
	const struct data_waits *waits = study->waits;
	struct handoffs handoffs = {0};
	int r = 0;

	for (size_t i = data_waits_from(waits, study->run->begin_ns); r == 0 && i < waits->n; i++) {
		const struct data_wait *wait = &waits->items[i];
		const struct timeline_thread *worker, *thread;
		double cpu_ns = 0;
		uint64_t from_ns;

		if (wait->begin_ns >= study->run->end_ns)
			break;
		if (wait->ready_ns <= wait->begin_ns || wait->ready_ns >= wait->end_ns)
			continue;
		from_ns = known_ns(study->roles->trainer, wait);
		worker = giver(study, service, wait->ready_ns, wait->end_ns, &thread);
		if (worker)
			cpu_ns =
			    (double)(timeline_account(study->roles->trainer, from_ns, wait->end_ns).cpu_ns +
				     timeline_account(thread, from_ns, wait->end_ns).cpu_ns);
		r = handoff_add(&handoffs, worker, cpu_ns, from_ns, wait->end_ns);
	}
	if (r == 0)
		handoffs_solve(&handoffs, &loader->handover_idle_ns, &loader->handover_busy_ns);
	free(handoffs.items);
	return r;
}

static int service_handoffs_measure(const struct study *study, struct service *service)
{
	int r = publications_measure(service);

	return r == 0 ? handovers_measure(study, service) : r;
}

/*
 * Cores are not quite independent: hardware threads share one, and all share caches and memory. The trainer's
 * steps show how much a thread is slowed down while the job keeps the other cores busy. They do the same work
 * each time, while the workers compute more in some steps than in others. With f, the share of a step's time
 * in which the other cores were busy, its speed is
 *
 *     1 / T = (1 - b f) / T_alone
 *
 * A line through the speeds of all steps gives b. The share is taken instead of the time because a step that
 * takes longer for any other reason sees more of the workers.
 */
#define STEPS_MIN 20
#define SURE      3   /* standard errors that b must be above 0 */
#define B_MAX     0.5 /* maximum slow-down: two hardware threads of a core run at half speed each */

struct line {
	double n, x, y, xx, xy, yy;
};

static void line_add(struct line *line, double x, double y)
{
	line->n++;
	line->x += x;
	line->y += y;
	line->xx += x * x;
	line->xy += x * y;
	line->yy += y * y;
}

/* Returns b of y = a (1 - b x); 0 unless it is significantly above 0. */
static double line_solve(const struct line *line)
{
	double sxx = line->xx - line->x * line->x / line->n, sxy = line->xy - line->x * line->y / line->n;
	double syy = line->yy - line->y * line->y / line->n;
	double slope, intercept, error;

	if (line->n < STEPS_MIN || !(sxx > 0) || !(syy > 0))
		return 0;
	slope = sxy / sxx;
	intercept = (line->y - slope * line->x) / line->n;
	error = sqrt(fmax(0, syy - slope * sxy) / (line->n - 2) / sxx);
	if (!(intercept > 0) || -slope < SURE * error)
		return 0;
	return fmin(-slope / intercept, B_MAX);
}

/* Returns the share of the thread's running time between begin and end in which the job's other threads kept
 * the other cores busy. */
static double others_load(const struct service *service, uint64_t begin_ns, uint64_t end_ns, double own_ns)
{
	double others_ns = (double)cores_busy(&service->cores, begin_ns, end_ns) - own_ns;
	double cores = service->job.cores;

	if (cores <= 1 || own_ns <= 0)
		return 0;
	return fmin(fmax(others_ns / (cores - 1) / (double)(end_ns - begin_ns), 0), 1);
}

/* Returns the start of the last part of a step, which no wait interrupts. */
static uint64_t device_begin_ns(const struct data_waits *waits, const struct analysis_step *step)
{
	uint64_t begin_ns = step->begin_ns;

	for (size_t i = data_waits_from(waits, begin_ns);
	     i < waits->n && waits->items[i].begin_ns < step->backward_ns; i++)
		begin_ns = waits->items[i].end_ns;
	return begin_ns < step->end_ns ? begin_ns : step->end_ns;
}

static double step_others_load(const struct study *study, const struct service *service, size_t k)
{
	const struct analysis_step *step = &study->run->steps[k];
	uint64_t begin_ns = device_begin_ns(study->waits, step);

	return others_load(service, begin_ns, step->end_ns, service->steps[k].cpu_ns);
}

/* Sets job.sharing_ratio, and shortens steps and segments by the time that sharing added. */
static void service_sharing_measure(const struct study *study, struct service *service)
{
	struct line line = {0};
	double b;

	for (size_t k = 0; k < study->run->n_steps; k++)
		if (service->steps[k].cpu_ns > 0)
			line_add(&line, step_others_load(study, service, k), 1e9 / service->steps[k].cpu_ns);
	b = line_solve(&line);
	service->job.sharing_ratio = b / (1 - b);
	for (size_t k = 0; b > 0 && k < study->run->n_steps; k++)
		service->steps[k].cpu_ns *= 1 - b * step_others_load(study, service, k);
	for (size_t w = 0; b > 0 && w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++) {
			const struct service_batch *batch = &service->workers[w].batches[i];
			double own_ns = 0, alone;

			for (size_t q = 0; q < batch->n_segments; q++)
				own_ns += service->segments[batch->first_segment + q].compute_ns *
					  fmax(1, service->segments[batch->first_segment + q].width);
			alone = 1 - b * others_load(service, batch->begin_ns, batch->end_ns, own_ns);
			for (size_t q = 0; q < batch->n_segments; q++)
				service->segments[batch->first_segment + q].compute_ns *= alone;
		}
}

/*
 * A quick disk delivers a file's bytes before the reader needs them, so no thread sleeps for them. Single
 * reads do not show this. The kernel's count of pages that came into its cache says how many such bytes there
 * were; they belong to the reads that took most CPU time, because each of those had pages to make.
 */

#define INSTANT_NS 1.0 /* duration of a miss that took no time, to mark it as a miss */

struct quick {
	double cost; /* CPU ns per byte */
	size_t request;
};

static int quick_compare(const void *left, const void *right)
{
	const struct quick *a = left, *b = right;

	return a->cost > b->cost ? -1 : a->cost < b->cost;
}

/* Marks the reads with most CPU time as misses until their bytes reach the count. */
static void misses_take(struct service *service, const struct quick *quick, size_t n, double bytes)
{
	for (size_t i = 0; i < n; i++) {
		const struct service_request *request = &service->requests[quick[i].request];

		if (bytes < request->request.bytes / 2)
			return;
		bytes -= request->request.bytes;
		service->segments[request->segment].latency_ns = INSTANT_NS;
	}
}

static void hits_leave(struct service *service)
{
	size_t n = 0;

	for (size_t i = 0; i < service->n_requests; i++)
		if (service->segments[service->requests[i].segment].latency_ns > 0)
			service->requests[n++] = service->requests[i];
	service->n_requests = n;
}

/* Finds which of the reads that nobody waited for came from storage all the same, and drops the requests of
 * the others. */
static int service_misses_find(const struct study *study, struct service *service)
{
	struct quick *quick = calloc(service->n_requests + 1, sizeof(*quick));
	double missed_bytes = page_cache_cold_bytes(study->input, study->run);
	size_t n = 0;

	if (!quick)
		return -ENOMEM;
	for (size_t i = 0; i < service->n_requests; i++) {
		const struct service_request *request = &service->requests[i];
		const struct model_segment *segment = &service->segments[request->segment];

		if (request->request.at_ns < (double)study->run->begin_ns ||
		    request->request.at_ns >= (double)study->run->end_ns)
			continue;
		if (request->request.wait_ns > 0)
			missed_bytes -= request->request.bytes;
		else
			quick[n++] = (struct quick){segment->fetch_cpu_ns / segment->size_bytes, i};
	}
	qsort(quick, n, sizeof(*quick), quick_compare);
	if (!isnan(missed_bytes))
		misses_take(service, quick, n, missed_bytes);
	free(quick);
	hits_leave(service);
	return 0;
}

/* Workers [first, end) of one loader that were alive at the same time. */
struct generation {
	size_t first, end;
	uint64_t begin_ns; /* start of its first batch */
	size_t *n_dealt;   /* number of dealt batches of each worker, by index in service->workers */
};

static uint64_t first_begin_ns(const struct service_worker *worker)
{
	return worker->n_batches ? worker->batches[0].begin_ns : UINT64_MAX;
}

static struct generation generation_at(const struct service *service, size_t first, size_t *n_dealt)
{
	struct generation generation = {
	    .first = first, .end = first, .begin_ns = UINT64_MAX, .n_dealt = n_dealt};
	uint64_t last_ns = UINT64_MAX;

	while (generation.end < service->n_workers) {
		const struct service_worker *worker = &service->workers[generation.end];
		uint64_t begin_ns = first_begin_ns(worker);

		if (worker->loader != service->workers[first].loader ||
		    (worker->n_batches && begin_ns > last_ns))
			break;
		if (worker->n_batches) {
			uint64_t end_ns = worker->batches[worker->n_batches - 1].end_ns;

			if (begin_ns < generation.begin_ns)
				generation.begin_ns = begin_ns;
			if (last_ns == UINT64_MAX || end_ns > last_ns)
				last_ns = end_ns;
		}
		generation.end++;
	}
	return generation;
}

/* Adds an epoch: the time from its first wait until its workers took their first index. */
static void epoch_add(struct service *service, const struct generation *generation, size_t first_step,
		      uint64_t wait_ns)
{
	size_t n = generation->end - generation->first;
	struct model_epoch *epoch = &service->epochs[service->job.n_epochs++];
	uint64_t first_ns = UINT64_MAX, last_ns = 0;

	*epoch = (struct model_epoch){.first_step = first_step};
	for (size_t w = generation->first; w < generation->end; w++) {
		const struct service_worker *worker = &service->workers[w];
		uint64_t begin_ns;

		if (generation->n_dealt[w] >= worker->n_batches)
			continue;
		begin_ns = worker->batches[generation->n_dealt[w]].begin_ns;
		first_ns = begin_ns < first_ns ? begin_ns : first_ns;
		last_ns = begin_ns > last_ns ? begin_ns : last_ns;
	}
	if (first_ns == UINT64_MAX)
		return;
	first_ns = first_ns > wait_ns ? first_ns : wait_ns;
	epoch->start_ns = (double)(first_ns - wait_ns);
	if (last_ns > first_ns && n > 1)
		epoch->spacing_ns = (double)(last_ns - first_ns) / (double)(n - 1);
}

/* Steps [first_step, end_step) get the generation's next batches, in turn; a worker that was seen with fewer
 * batches repeats them. */
static void batches_deal(struct service *service, const struct generation *generation, size_t first_step,
			 size_t end_step)
{
	size_t n = generation->end - generation->first;

	for (size_t k = first_step; k < end_step; k++) {
		size_t w = generation->first + (k - first_step) % n;
		const struct service_worker *worker = &service->workers[w];
		size_t i = generation->n_dealt[w]++;

		if (!worker->n_batches)
			continue;
		service->n_matched += i < worker->n_batches;
		i %= worker->n_batches;
		service->batches[k] =
		    (struct model_batch){worker->batches[i].first_segment, worker->batches[i].n_segments};
	}
}

/* Returns the number of batches that the generation had started before at_ns. */
static size_t n_begun(const struct service *service, const struct generation *generation, uint64_t at_ns)
{
	size_t n = 0;

	for (size_t w = generation->first; w < generation->end; w++) {
		const struct service_worker *worker = &service->workers[w];

		n += sorted_count(worker->n_batches, i, worker->batches[i].begin_ns < at_ns);
	}
	return n;
}

/*
 * Returns the step in [step, end) before which the generation pauses: everything it had begun was consumed,
 * and there is more to come. A loader that has indices left is ahead by the time of the backward pass; one
 * that stays for the next epoch (persistent workers) begins again. end: none. Counting needs a generation
 * that was seen from its birth.
 */
static size_t epoch_end(const struct study *study, const struct service *service,
			const struct generation *generation, size_t first, size_t step, size_t end)
{
	const struct analysis_step *steps = study->run->steps;

	if (!service->workers[generation->first].thread->born_ns)
		return end;
	for (size_t k = step; k + 1 < end; k++)
		if (n_begun(service, generation, steps[k].backward_ns) == k + 1 - first)
			return k + 1;
	return end;
}

static void generation_deal(const struct study *study, struct service *service,
			    const struct generation *generation, size_t first, size_t end)
{
	uint32_t n = (uint32_t)(generation->end - generation->first);

	for (size_t step = first; step < end;) {
		size_t next = epoch_end(study, service, generation, first, step, end);

		epoch_add(service, generation, step, study->run->steps[step].begin_ns);
		/* Workers older than the recording may have been started long before. */
		service->epochs[service->job.n_epochs - 1].fresh =
		    step == first && service->workers[generation->first].thread->born_ns;
		batches_deal(service, generation, step, next);
		step = next;
	}
	if (n > service->job.loader.n_workers)
		service->job.loader.n_workers = n;
}

/* Finds the batches and epochs of the job's steps. */
static int service_batches_deal(const struct study *study, struct service *service)
{
	const struct window *window = study->run;
	size_t *n_dealt = calloc(service->n_workers + 1, sizeof(*n_dealt)), step = 0;
	struct generation generation;

	if (!n_dealt)
		return -ENOMEM;
	generation = generation_at(service, 0, n_dealt);
	while (step < window->n_steps && generation.first < generation.end) {
		struct generation next = generation_at(service, generation.end, n_dealt);
		size_t end = step;

		/* A step belongs to the last workers that had begun when its wait was over. */
		while (end < window->n_steps &&
		       (next.first == next.end || next.begin_ns >= window->steps[end].backward_ns))
			end++;
		if (end > step)
			generation_deal(study, service, &generation, step, end);
		step = end;
		generation = next;
	}
	free(n_dealt);
	return 0;
}

/* Default cost of a page-cache hit, if the recording has none to learn from: opening, reading and closing a
 * file, and copying from memory that no CPU cache holds. */
#define CACHED_CPU_NS      12000.0
#define CACHED_NS_PER_BYTE 0.2

#define HITS_MIN 20 /* fewer reads from memory are not enough to learn from */

#define PREFETCH 2 /* DataLoader's default */

static int request_compare(const void *left, const void *right)
{
	const struct service_request *a = left, *b = right;

	return a->request.at_ns < b->request.at_ns ? -1 : a->request.at_ns > b->request.at_ns;
}

static int service_storage_fit(struct service *service)
{
	struct model_request *requests;
	size_t n = service->n_requests;
	int r;

	service->job.storage.bytes_per_s = service->storage.bytes_per_s = INFINITY;
	if (!n)
		return 0;
	qsort(service->requests, n, sizeof(*service->requests), request_compare);
	requests = calloc(n, sizeof(*requests));
	if (!requests)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		requests[i] = service->requests[i].request;
	r = model_storage_fit(requests, n, &service->storage);
	free(requests);
	return r;
}

/* Like service_foreign_queue_ns(), for the trainer outside of its data waits. */
static uint64_t foreign_queue_of_step(const struct study *study, const struct service *service,
				      const struct analysis_step *step)
{
	const struct data_waits *waits = study->waits;
	uint64_t at_ns = step->begin_ns, ns = 0;

	for (size_t i = data_waits_from(waits, at_ns); at_ns < step->end_ns; i++) {
		uint64_t from_ns = step->end_ns, to_ns = step->end_ns;

		if (i < waits->n && waits->items[i].begin_ns < step->end_ns) {
			from_ns = waits->items[i].begin_ns;
			to_ns = waits->items[i].end_ns;
		}
		if (from_ns > at_ns)
			ns += service_foreign_queue_ns(service, study->roles->trainer, at_ns, from_ns);
		at_ns = to_ns > at_ns ? to_ns : at_ns;
	}
	return ns;
}

/* The share device is the trainer's computing, except for its sleeps until a device or other ranks are done.
 */
static struct model_step step_measure(const struct study *study, const struct service *service,
				      const struct analysis_step *step)
{
	const uint64_t *share_ns = step->share_ns;
	uint64_t spin_ns = 0,
		 sleep_ns = partition_gpu_wait(study->partition, step->begin_ns, step->end_ns, &spin_ns);
	uint64_t peers_ns = partition_collective_ns(study->partition, step->begin_ns, step->end_ns);
	uint64_t fixed_ns = share_ns[SHARE_CHECKPOINT_STALL] + share_ns[SHARE_OTHER] +
			    share_ns[SHARE_COMPILING] +
			    partition_gil_ns(study->partition, step->begin_ns, step->end_ns) +
			    foreign_queue_of_step(study, service, step);

	sleep_ns -= spin_ns < sleep_ns ? spin_ns : sleep_ns;
	sleep_ns += peers_ns;
	if (sleep_ns > share_ns[SHARE_DEVICE])
		sleep_ns = share_ns[SHARE_DEVICE];
	return (struct model_step){.cpu_ns = (double)(share_ns[SHARE_DEVICE] - sleep_ns),
				   .sleep_ns = (double)sleep_ns,
				   .peers_ns = (double)(peers_ns < sleep_ns ? peers_ns : sleep_ns),
				   .fixed_ns = (double)fixed_ns};
}

static void steps_measure(const struct study *study, struct service *service)
{
	for (size_t k = 0; k < study->run->n_steps; k++)
		service->steps[k] = step_measure(study, service, &study->run->steps[k]);
}

/* Returns the number of cores that the trainer's process uses at once while the trainer computes. */
static double gang_measure(const struct study *study, const struct service *service)
{
	const struct window *window = study->run;
	double helpers_ns = 0, trainer_ns = 0;

	for (size_t k = 0; k < window->n_steps; k++)
		trainer_ns += service->steps[k].cpu_ns;
	for (size_t i = 0; i < study->timeline->n_threads; i++)
		if (study->roles->of[i] == ROLE_HELPER)
			helpers_ns += (double)timeline_account(&study->timeline->threads[i], window->begin_ns,
							       window->end_ns)
					  .exec_ns;
	/* The batches already contain this part of the helpers' time. */
	if (study->waits->loader == LOADER_INLINE)
		helpers_ns = fmax(0, helpers_ns - service->helpers_ns);
	return trainer_ns > 0 ? 1 + helpers_ns / trainer_ns : 1;
}

static int samples_count(struct service *service)
{
	uint32_t *counts;
	size_t n = 0;

	for (size_t w = 0; w < service->n_workers; w++)
		n += service->workers[w].n_batches;
	counts = calloc(n + 1, sizeof(*counts));
	if (!counts)
		return -ENOMEM;
	n = 0;
	for (size_t w = 0; w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++)
			counts[n++] = service->workers[w].batches[i].n_files;
	qsort(counts, n, sizeof(*counts), compare_u32);
	service->batch_samples = n ? counts[n / 2] : 0;
	free(counts);
	return 0;
}

/* Between two batches a worker that is not ahead looks for its next index. The least that this takes, which
 * the quickest tenth shows, belongs to each batch. */
static int turnaround_add(struct service *service)
{
	double *gaps;
	size_t n = 0;

	for (size_t w = 0; w < service->n_workers; w++)
		n += service->workers[w].n_batches;
	gaps = calloc(n + 1, sizeof(*gaps));
	if (!gaps)
		return -ENOMEM;
	n = 0;
	for (size_t w = 0; w < service->n_workers; w++)
		for (size_t i = 1; i < service->workers[w].n_batches; i++)
			gaps[n++] = (double)(service->workers[w].batches[i].begin_ns -
					     service->workers[w].batches[i - 1].end_ns);
	qsort(gaps, n, sizeof(*gaps), compare_double);
	for (size_t w = 0; n && w < service->n_workers; w++)
		for (size_t i = 0; i < service->workers[w].n_batches; i++)
			if (service->workers[w].batches[i].n_segments)
				service->segments[service->workers[w].batches[i].first_segment].delay_ns +=
				    gaps[n / 10];
	free(gaps);
	return 0;
}

/* Measures the cost of reading from memory, from the reads that did not wait, if there are enough. Some of
 * those reads came from quick storage and cost several times as much, so the mean would be too high. */
static int cached_cost_measure(struct service *service)
{
	struct model_job *job = &service->job;
	double *costs = calloc(service->n_segments + 1, sizeof(*costs));
	size_t n = 0;

	if (!costs)
		return -ENOMEM;
	for (size_t i = 0; i < service->n_segments; i++) {
		const struct model_segment *segment = &service->segments[i];

		if (!(segment->latency_ns > 0) && segment->size_bytes > 0)
			costs[n++] = segment->fetch_cpu_ns / segment->size_bytes;
	}
	qsort(costs, n, sizeof(*costs), compare_double);
	job->cached_cpu_ns = n >= HITS_MIN ? 0 : CACHED_CPU_NS;
	job->cached_cpu_ns_per_byte = n >= HITS_MIN ? costs[n / 4] : CACHED_NS_PER_BYTE;
	free(costs);
	return 0;
}

static void inline_deal(const struct study *study, struct service *service)
{
	const struct service_worker *worker = &service->workers[0];
	size_t i = 0;

	service->epochs[service->job.n_epochs++] = (struct model_epoch){0};
	for (size_t k = 0; k < study->run->n_steps; k++) {
		const struct analysis_step *step = &study->run->steps[k];
		struct model_batch batch = {0};

		/* A batch may have been cut into several waits, whose segments follow each other. */
		while (i < worker->n_batches && worker->batches[i].end_ns <= step->begin_ns)
			i++;
		for (; i < worker->n_batches && worker->batches[i].begin_ns < step->end_ns; i++) {
			if (!batch.n_segments)
				batch.first_segment = worker->batches[i].first_segment;
			batch.n_segments += worker->batches[i].n_segments;
		}
		service->n_matched += batch.n_segments > 0;
		service->batches[k] = batch;
	}
}

static const char *judge(const struct service *service, size_t n_steps)
{
	if (service->n_workers > MODEL_WORKERS_MAX)
		return "too many worker processes";
	if (!service->job.n_epochs)
		return "no batch of a worker was recorded completely";
	if (2 * service->n_matched < n_steps)
		return "most batches were not recorded";
	return NULL;
}

static int job_assemble(const struct study *study, struct service *service)
{
	size_t n_steps = study->run->n_steps;
	struct model_job *job = &service->job;
	int r;

	service->batches = calloc(n_steps + 1, sizeof(*service->batches));
	service->steps = calloc(n_steps + 1, sizeof(*service->steps));
	service->epochs = calloc(n_steps + 1, sizeof(*service->epochs));
	if (!service->batches || !service->steps || !service->epochs)
		return -ENOMEM;
	steps_measure(study, service);
	job->loader.prefetch = PREFETCH;
	job->gang = fmin(gang_measure(study, service), job->cores);
	if (study->waits->loader != LOADER_INLINE)
		service_sharing_measure(study, service);
	r = service_misses_find(study, service);
	if (r == 0)
		r = cached_cost_measure(service);
	if (r == 0)
		r = samples_count(service);
	if (r == 0)
		r = service_storage_fit(service);
	if (r < 0)
		return r;
	if (study->waits->loader == LOADER_INLINE) {
		inline_deal(study, service);
	} else {
		r = service_batches_deal(study, service);
		if (r == 0)
			r = turnaround_add(service);
		if (r == 0)
			r = service_handoffs_measure(study, service);
		if (r < 0)
			return r;
	}
	job->segments = service->segments;
	job->n_segments = service->n_segments;
	job->batches = service->batches;
	job->steps = service->steps;
	job->n_steps = n_steps;
	job->epochs = service->epochs;
	service->why_not = judge(service, n_steps);
	return 0;
}

/* Returns the reason for loaders that work outside the recorded processes, where another recording would
 * not help. */
static const char *why_no_batches(enum analysis_loader loader)
{
	switch (loader) {
	case LOADER_WORKERS:
	case LOADER_INLINE: return NULL;
	case LOADER_DIESEL:
		return "dieseld serves this job, and its work is not in the recording. Ask its tuner: "
		       "dieselctl jobs --json >jobs.json && diesel-analyze what-if jobs.json";
	case LOADER_THREADS:
		return "the job uses a queue of its own, whose batches cannot be told apart: the replay "
		       "supports only batches of DataLoader workers and of the trainer";
	case LOADER_NONE: break;
	}
	return "no loader was seen";
}

int service_extract(const struct study *study, uint32_t n_cpus, struct service *ret_service)
{
	struct service service = {.job.cores = n_cpus ? n_cpus : 1};
	int r = 0;

	service.why_not = why_no_batches(study->waits->loader);
	if (service.why_not) {
		/* nothing to extract */
	} else if (!study->run->n_steps) {
		service.why_not = "no complete step was seen";
	} else {
		r = cores_count(study->timeline, n_cpus ? n_cpus : 1, &service.cores);
		if (r == 0)
			r = batches_find(study, &service);
		if (r == 0)
			r = job_assemble(study, &service);
	}
	if (r < 0) {
		service_free(&service);
		return r;
	}
	*ret_service = service;
	return 0;
}

int service_serve(const struct service *service, struct model_job *job, struct model_segment **ret_segments)
{
	struct model_segment *segments;

	if (!(service->storage.bytes_per_s < INFINITY)) {
		*ret_segments = NULL;
		return 0;
	}
	segments = calloc(job->n_segments + 1, sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	for (size_t i = 0; i < job->n_segments; i++) {
		struct model_segment *segment = &segments[i];

		*segment = job->segments[i];
		if (!(segment->latency_ns > 0) || !(segment->size_bytes > 0))
			continue;
		segment->bytes = segment->size_bytes;
		segment->latency_ns = fmin(segment->latency_ns, service->storage.latency_ns);
	}
	job->segments = *ret_segments = segments;
	job->storage = service->storage;
	return 0;
}

void service_free(struct service *service)
{
	for (size_t i = 0; i < service->n_workers; i++)
		free(service->workers[i].batches);
	free(service->workers);
	free(service->helpers);
	cores_free(&service->cores);
	free(service->requests);
	free(service->segments);
	free(service->batches);
	free(service->steps);
	free(service->epochs);
	*service = (struct service){0};
}
