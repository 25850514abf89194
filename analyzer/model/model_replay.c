/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "analyzer/model.h"
#include "lib/hash.h"

/* Internals of the replay: the state of a simulated worker. Worker w of W has batches w, w + W, w + 2 W, ...
 * of an epoch. */

enum sim_phase {
	SIM_IDLE,    /* no batch was requested */
	SIM_ABSENT,  /* not started before `until_ns` */
	SIM_COMPUTE, /* `left_ns` of CPU time */
	SIM_DELAY,   /* lasts until `until_ns` */
	SIM_FETCH_CPU,
	SIM_FETCH, /* lasts until `until_ns` */
};

struct sim_worker {
	enum sim_phase phase;
	double left_ns, until_ns;
	double width; /* cores that SIM_COMPUTE has; at least 1 */
	size_t segment, segment_end;
	size_t n_finished, n_published; /* batches of this epoch */
	double publish_left;            /* remaining part of the next batch to publish, 1 to 0 */
};

/* The storage and other parts of the scenario that concern reading. */
struct sim_reads {
	const struct model_job *job;
	const struct model_scenario *scenario;
	bool moved;                   /* workers do the work that the trainer did itself */
	double cores;                 /* cores of the scenario that can run at once */
	struct model_storage storage; /* storage of the scenario */
	double storage_state;
	double hit_ratio;       /* recorded ratio of the groups that read something */
	double mean_latency_ns; /* mean latency of recorded misses */
};

static inline bool sim_worker_runs(const struct sim_worker *worker)
{
	return worker->phase == SIM_COMPUTE || worker->phase == SIM_FETCH_CPU;
}

static inline bool sim_worker_sleeps(const struct sim_worker *worker)
{
	return worker->phase == SIM_ABSENT || worker->phase == SIM_DELAY || worker->phase == SIM_FETCH;
}

/* Returns a number in [0, 1), uniformly distributed and the same for the same segment in every replay. So a
 * larger cache holds everything that a smaller one does. */
static double lot(size_t i)
{
	uint64_t state = i;

	return (double)(splitmix64(&state) >> 11) * 0x1p-53;
}

static bool missed(const struct model_segment *segment)
{
	return segment->bytes > 0 || segment->latency_ns > 0;
}

static bool reads_something(const struct model_segment *segment)
{
	return missed(segment) || segment->size_bytes > 0;
}

double model_cached_ratio(const struct model_job *job)
{
	size_t n = 0, n_missed = 0;

	for (size_t i = 0; i < job->n_segments; i++) {
		n += reads_something(&job->segments[i]);
		n_missed += missed(&job->segments[i]);
	}
	return n ? 1 - (double)n_missed / (double)n : 1;
}

static bool has_quota(const struct model_scenario *scenario)
{
	return !isnan(scenario->cores) && scenario->cores != floor(scenario->cores);
}

/* Returns the number of cores on which the job's threads can run at once. */
static double scenario_cores(const struct model_job *job, const struct model_scenario *scenario)
{
	if (isnan(scenario->cores))
		return fmax(1, job->cores);
	return has_quota(scenario) ? fmax(ceil(scenario->cores), job->cores) : scenario->cores;
}

static struct sim_reads sim_reads_init(const struct model_job *job, const struct model_scenario *scenario)
{
	struct sim_reads reads = {.job = job,
				  .scenario = scenario,
				  .cores = scenario_cores(job, scenario),
				  .storage = job->storage,
				  .storage_state = job->storage.drained ? 0 : -INFINITY,
				  .hit_ratio = model_cached_ratio(job)};
	size_t n_missed = 0;

	for (size_t i = 0; i < job->n_segments; i++) {
		n_missed += missed(&job->segments[i]);
		reads.mean_latency_ns += job->segments[i].latency_ns;
	}
	reads.mean_latency_ns = n_missed ? reads.mean_latency_ns / (double)n_missed : 0;
	reads.storage.bytes_per_s *= scenario->storage_speed;
	return reads;
}

/* Returns true if the group is in memory. A cache of the recorded size holds exactly the recorded groups. */
static bool is_cached(const struct sim_reads *reads, size_t i)
{
	bool miss = missed(&reads->job->segments[i]);
	double hit = reads->hit_ratio, rank;

	if (reads->scenario->fetch_free)
		return true;
	if (isnan(reads->scenario->cached_ratio))
		return !miss;
	rank = miss ? hit + lot(i) * (1 - hit) : lot(i) * hit;
	return rank < reads->scenario->cached_ratio;
}

static void enter_compute(struct sim_worker *worker, const struct sim_reads *reads)
{
	const struct model_segment *segment = &reads->job->segments[worker->segment];

	worker->phase = SIM_COMPUTE;
	worker->width = fmin(fmax(1, segment->width), reads->cores);
	worker->left_ns = segment->compute_ns * reads->scenario->sample_size * reads->scenario->prep_cost;
	if (reads->moved) {
		worker->left_ns *= worker->width;
		worker->width = 1;
	}
}

static double cached_cpu_ns(const struct sim_reads *reads, const struct model_segment *segment)
{
	double ns = reads->job->cached_cpu_ns + segment->size_bytes * reads->job->cached_cpu_ns_per_byte;

	return fmin(ns, segment->fetch_cpu_ns);
}

static void enter_fetch_cpu(struct sim_worker *worker, const struct sim_reads *reads)
{
	const struct model_segment *segment = &reads->job->segments[worker->segment];

	worker->phase = SIM_FETCH_CPU;
	worker->left_ns =
	    is_cached(reads, worker->segment) ? cached_cpu_ns(reads, segment) : segment->fetch_cpu_ns;
	worker->left_ns *= reads->scenario->sample_size;
}

static void enter_fetch(struct sim_worker *worker, struct sim_reads *reads, double now_ns)
{
	const struct model_segment *segment = &reads->job->segments[worker->segment];
	double bytes = segment->bytes, latency_ns = segment->latency_ns;

	worker->phase = SIM_FETCH;
	worker->until_ns = now_ns;
	if (!reads_something(segment) || is_cached(reads, worker->segment))
		return;
	if (!missed(segment)) {
		bytes = segment->size_bytes;
		latency_ns = reads->mean_latency_ns;
	}
	bytes *= reads->scenario->sample_size;
	worker->until_ns += latency_ns / reads->scenario->storage_speed +
			    model_storage_wait(&reads->storage, &reads->storage_state, now_ns, bytes);
}

/* Begins work on a batch. */
static void sim_worker_take(struct sim_worker *worker, struct sim_reads *reads,
			    const struct model_batch *batch, double now_ns)
{
	worker->segment = batch->first_segment;
	worker->segment_end = batch->first_segment + batch->n_segments;
	if (worker->segment < worker->segment_end) {
		enter_compute(worker, reads);
		return;
	}
	/* Nothing to do: the phase ends immediately. */
	worker->phase = SIM_DELAY;
	worker->until_ns = now_ns;
}

/* Ends the current phase and begins the next one. Returns true if the batch is finished and the worker idle.
 */
static bool sim_worker_next(struct sim_worker *worker, struct sim_reads *reads, double now_ns)
{
	switch (worker->phase) {
	case SIM_IDLE: return false;
	case SIM_ABSENT: worker->phase = SIM_IDLE; return false;
	case SIM_COMPUTE:
		worker->phase = SIM_DELAY;
		worker->until_ns = now_ns;
		if (reads->scenario->prep_cost > 0)
			worker->until_ns += reads->job->segments[worker->segment].delay_ns;
		return false;
	case SIM_DELAY:
		if (worker->segment < worker->segment_end) {
			enter_fetch_cpu(worker, reads);
			return false;
		}
		break;
	case SIM_FETCH_CPU: enter_fetch(worker, reads, now_ns); return false;
	case SIM_FETCH:
		if (++worker->segment < worker->segment_end) {
			enter_compute(worker, reads);
			return false;
		}
		break;
	}
	worker->phase = SIM_IDLE;
	return true;
}

#define EPSILON_NS 0.01 /* maximum rounding error of a time that has ended */
/* Maximum of one service time, eleven days: a larger one is damage. The limit keeps sums finite. */
#define NS_MAX 1e15

enum trainer_phase {
	TRAINER_WAIT,
	TRAINER_HANDOVER, /* the batch's message has arrived, its tensors have not */
	TRAINER_CPU,
	TRAINER_SLEEP,
	TRAINER_DONE,
};

struct sim {
	const struct model_job *job;
	const struct model_scenario *scenario;
	struct sim_reads reads;
	struct sim_worker *workers; /* without workers, one entry: the trainer itself */
	size_t n_workers;
	bool is_inline;
	uint32_t prefetch;
	double sharing_ratio;
	struct model_loader loader;
	double now_ns;
	double quota_ns, quota_left_ns; /* CPU time per period; INFINITY: no quota */
	double period_end_ns;
	/* this epoch: steps [epoch_begin, epoch_end), of which n_sent are requested */
	size_t epoch, epoch_begin, epoch_end, n_sent;
	size_t step;
	enum trainer_phase phase;
	double left_ns, handover_left;
	double step_begin_ns, phase_begin_ns, wait_ns;
	double *step_out_ns, *wait_out_ns;
	struct model_outcome outcome;
};

struct model_scenario model_scenario_recorded(void)
{
	return (struct model_scenario){.cached_ratio = NAN,
				       .storage_speed = 1,
				       .device_speed = 1,
				       .peers_wait = 1,
				       .sample_size = 1,
				       .prep_cost = 1,
				       .sharing_ratio = MODEL_SHARING,
				       .cores = NAN,
				       .n_workers = UINT32_MAX};
}

static bool sane(double ns)
{
	return ns >= 0 && ns <= NS_MAX;
}

static bool segments_sane(const struct model_job *job)
{
	for (size_t i = 0; i < job->n_segments; i++) {
		const struct model_segment *segment = &job->segments[i];

		if (!sane(segment->compute_ns) || !sane(segment->width) || !sane(segment->delay_ns) ||
		    !sane(segment->fetch_cpu_ns) || !sane(segment->latency_ns) || !sane(segment->bytes) ||
		    !sane(segment->size_bytes))
			return false;
	}
	return true;
}

static bool job_sane(const struct model_job *job)
{
	const struct model_loader *loader = &job->loader;

	if (!job->n_steps || !job->n_epochs || job->epochs[0].first_step || !segments_sane(job) ||
	    !sane(loader->publish_idle_ns) || !sane(loader->publish_busy_ns) ||
	    !sane(loader->handover_idle_ns) || !sane(loader->handover_busy_ns) || !sane(job->cores) ||
	    !sane(job->gang) || !sane(job->sharing_ratio) || !sane(job->cached_cpu_ns) ||
	    !sane(job->cached_cpu_ns_per_byte) || !(job->storage.bytes_per_s > 0) ||
	    !sane(job->storage.burst_ns))
		return false;
	for (size_t i = 0; i < job->n_steps; i++) {
		const struct model_batch *batch = &job->batches[i];
		const struct model_step *step = &job->steps[i];

		if (batch->first_segment > job->n_segments ||
		    batch->n_segments > job->n_segments - batch->first_segment || !sane(step->cpu_ns) ||
		    !sane(step->sleep_ns) || !(step->peers_ns <= step->sleep_ns) || !sane(step->fixed_ns))
			return false;
	}
	for (size_t i = 0; i < job->n_epochs; i++)
		if (job->epochs[i].first_step >= job->n_steps || !sane(job->epochs[i].start_ns) ||
		    !sane(job->epochs[i].spacing_ns) ||
		    (i && job->epochs[i].first_step <= job->epochs[i - 1].first_step))
			return false;
	return true;
}

static bool scenario_sane(const struct model_scenario *scenario)
{
	return sane(scenario->sharing_ratio) && scenario->storage_speed > 1e-6 &&
	       scenario->storage_speed < 1e9 && scenario->device_speed > 1e-6 &&
	       scenario->device_speed < 1e9 && scenario->sample_size >= 0 && scenario->sample_size < 1e6 &&
	       scenario->prep_cost >= 0 && scenario->prep_cost < 1e6 &&
	       (isnan(scenario->cores) ||
		(scenario->cores >= MODEL_CORES_MIN && scenario->cores <= MODEL_CORES_MAX));
}

bool model_gives_workers(const struct model_job *job, const struct model_scenario *scenario)
{
	return !job->loader.n_workers && scenario->n_workers && scenario->n_workers != UINT32_MAX;
}

static void epoch_begin(struct sim *sim)
{
	const struct model_job *job = sim->job;
	const struct model_epoch *epoch = &job->epochs[sim->epoch];
	bool there = sim->scenario->persistent && sim->epoch && epoch->fresh;

	sim->epoch_begin = epoch->first_step;
	sim->epoch_end =
	    sim->epoch + 1 < job->n_epochs ? job->epochs[sim->epoch + 1].first_step : job->n_steps;
	sim->n_sent = sim->is_inline ? 0 : sim->n_workers * sim->prefetch;
	for (size_t w = 0; w < sim->n_workers; w++) {
		struct sim_worker *worker = &sim->workers[w];

		*worker = (struct sim_worker){.phase = SIM_IDLE, .publish_left = 1};
		if (sim->is_inline)
			continue;
		worker->phase = SIM_ABSENT;
		worker->until_ns =
		    sim->now_ns + (there ? 0 : epoch->start_ns + (double)w * epoch->spacing_ns);
	}
}

/* Returns the worker of the current step; *ret_number: index of the step's batch among its batches. */
static struct sim_worker *turn_of(const struct sim *sim, size_t *ret_number)
{
	size_t i = sim->step - sim->epoch_begin;

	*ret_number = i / sim->n_workers;
	return &sim->workers[i % sim->n_workers];
}

/* Makes idle workers take the batches requested from them. */
static void workers_feed(struct sim *sim)
{
	for (size_t w = 0; w < sim->n_workers; w++) {
		struct sim_worker *worker = &sim->workers[w];
		size_t i = worker->n_finished * sim->n_workers + w;

		if (worker->phase == SIM_IDLE && i < sim->n_sent && sim->epoch_begin + i < sim->epoch_end)
			sim_worker_take(worker, &sim->reads, &sim->job->batches[sim->epoch_begin + i],
					sim->now_ns);
	}
}

static double sleep_of(const struct sim *sim, const struct model_step *step)
{
	double left_out_ns = (1 - sim->scenario->peers_wait) * step->peers_ns;

	return (step->sleep_ns - left_out_ns) / sim->scenario->device_speed + step->fixed_ns;
}

static void step_end(struct sim *sim)
{
	double step_ns = sim->now_ns - sim->step_begin_ns;
	double busy_ns = sim->now_ns - sim->phase_begin_ns;
	const struct model_step *step = &sim->job->steps[sim->step];
	double alone_ns = step->cpu_ns / sim->scenario->device_speed + sleep_of(sim, step);

	sim->outcome.device_ns += busy_ns;
	sim->outcome.starved_ns += fmax(0, busy_ns - alone_ns);
	sim->outcome.wait_ns += step_ns - busy_ns;
	if (sim->step_out_ns)
		sim->step_out_ns[sim->step] = step_ns;
	if (sim->wait_out_ns)
		sim->wait_out_ns[sim->step] = step_ns - busy_ns;
	sim->step_begin_ns = sim->now_ns;
	sim->step++;
	sim->phase = sim->step < sim->job->n_steps ? TRAINER_WAIT : TRAINER_DONE;
	if (sim->phase == TRAINER_WAIT && sim->step == sim->epoch_end) {
		sim->epoch++;
		epoch_begin(sim);
	}
}

static void device_begin(struct sim *sim)
{
	if (!sim->is_inline)
		sim->n_sent++;
	sim->phase = TRAINER_CPU;
	sim->phase_begin_ns = sim->now_ns;
	sim->left_ns =
	    sim->scenario->device_free ? 0 : sim->job->steps[sim->step].cpu_ns / sim->scenario->device_speed;
}

/* Advances the trainer as far as possible without time passing. */
static void trainer_advance(struct sim *sim)
{
	struct sim_worker *worker;
	size_t number;

	for (;;) {
		switch (sim->phase) {
		case TRAINER_WAIT:
			worker = turn_of(sim, &number);
			if (sim->is_inline) {
				if (worker->n_finished <= number) {
					sim->n_sent = number + 1;
					return;
				}
				device_begin(sim);
				break;
			}
			if (worker->n_published <= number)
				return;
			sim->phase = TRAINER_HANDOVER;
			sim->handover_left = sim->loader.handover_busy_ns > 0 ? 1 : 0;
			break;
		case TRAINER_HANDOVER:
			if (sim->handover_left > 0)
				return;
			device_begin(sim);
			break;
		case TRAINER_CPU: {
			const struct model_step *step = &sim->job->steps[sim->step];

			if (sim->left_ns > EPSILON_NS)
				return;
			sim->phase = TRAINER_SLEEP;
			sim->left_ns = sim->scenario->device_free ? 0 : sleep_of(sim, step);
			break;
		}
		case TRAINER_SLEEP:
			if (sim->left_ns > EPSILON_NS)
				return;
			step_end(sim);
			break;
		case TRAINER_DONE: return;
		}
	}
}

/* Returns the cores that threads ask for at this time; 0: none runs. */
static double cores_wanted(const struct sim *sim)
{
	double busy = 0;

	for (size_t w = 0; w < sim->n_workers; w++)
		if (sim_worker_runs(&sim->workers[w]))
			busy += sim->workers[w].phase == SIM_COMPUTE ? sim->workers[w].width : 1;
	if (sim->phase == TRAINER_CPU)
		busy += fmax(1, sim->job->gang);
	return busy;
}

/* Returns the speed of one thread: its share of the cores, reduced if the other cores are busy; 0 if the
 * period's quota is used up. */
static double thread_speed(const struct sim *sim, double busy)
{
	double cores = sim->reads.cores, slow = 1;

	if (sim->quota_left_ns <= 0)
		return 0;
	if (busy <= 1)
		return 1;
	if (cores > 1)
		slow += sim->sharing_ratio * (fmin(busy, cores) - 1) / (cores - 1);
	return fmin(1, cores / busy) / slow;
}

static void quota_renew(struct sim *sim)
{
	if (isinf(sim->quota_ns) || sim->now_ns < sim->period_end_ns - EPSILON_NS)
		return;
	sim->period_end_ns =
	    (floor((sim->now_ns + EPSILON_NS) / MODEL_QUOTA_PERIOD_NS) + 1) * MODEL_QUOTA_PERIOD_NS;
	sim->quota_left_ns = sim->quota_ns;
}

/* Returns the ns until the quota of this period is used up or renewed. INFINITY: no thread uses it. */
static double quota_pause_ns(const struct sim *sim, double busy)
{
	double ns;

	if (isinf(sim->quota_ns) || busy <= 0)
		return INFINITY;
	ns = sim->period_end_ns - sim->now_ns;
	return sim->quota_left_ns > 0 ? fmin(ns, sim->quota_left_ns / fmin(busy, sim->reads.cores)) : ns;
}

static void quota_use(struct sim *sim, double busy, double ns)
{
	sim->quota_left_ns -= fmin(busy, sim->reads.cores) * ns;
	if (sim->quota_left_ns < EPSILON_NS)
		sim->quota_left_ns = 0;
}

/* Returns the speed of a hand-off, in 1 / ns. It takes idle_ns or busy_ns, depending on the worker.
 * INFINITY: it takes no time. */
static double handoff_speed(const struct sim_worker *worker, double idle_ns, double busy_ns)
{
	double ns = worker->phase == SIM_COMPUTE ? busy_ns : idle_ns;

	return ns > 0 ? 1 / ns : INFINITY;
}

static double publish_speed(const struct sim *sim, const struct sim_worker *worker)
{
	return handoff_speed(worker, sim->loader.publish_idle_ns, sim->loader.publish_busy_ns);
}

static double handover_speed(const struct sim *sim)
{
	size_t number;

	return handoff_speed(turn_of(sim, &number), sim->loader.handover_idle_ns,
			     sim->loader.handover_busy_ns);
}

/* Returns the ns until the next change. INFINITY: there will be none. */
static double quiet_ns(const struct sim *sim, double speed)
{
	double ns = INFINITY;

	for (size_t w = 0; w < sim->n_workers; w++) {
		const struct sim_worker *worker = &sim->workers[w];

		if (sim_worker_runs(worker))
			ns = fmin(ns, worker->left_ns / speed);
		else if (sim_worker_sleeps(worker))
			ns = fmin(ns, worker->until_ns - sim->now_ns);
		if (worker->n_published < worker->n_finished)
			ns = fmin(ns, worker->publish_left / publish_speed(sim, worker));
	}
	if (sim->phase == TRAINER_CPU)
		ns = fmin(ns, sim->left_ns / speed);
	else if (sim->phase == TRAINER_SLEEP)
		ns = fmin(ns, sim->left_ns);
	else if (sim->phase == TRAINER_HANDOVER)
		ns = fmin(ns, sim->handover_left / handover_speed(sim));
	return fmax(ns, 0);
}

static double progress(double left, double speed, double ns)
{
	double done = isinf(speed) ? left : speed * ns;

	return left - done > 1e-9 ? left - done : 0;
}

static void workers_pass(struct sim *sim, double ns, double speed)
{
	for (size_t w = 0; w < sim->n_workers; w++) {
		struct sim_worker *worker = &sim->workers[w];
		bool over = false;

		if (worker->n_published < worker->n_finished) {
			worker->publish_left = progress(worker->publish_left, publish_speed(sim, worker), ns);
			if (worker->publish_left <= 0) {
				worker->n_published++;
				worker->publish_left = 1;
			}
		}
		if (sim_worker_runs(worker)) {
			worker->left_ns -= ns * speed;
			over = worker->left_ns <= EPSILON_NS;
		} else if (sim_worker_sleeps(worker)) {
			over = worker->until_ns <= sim->now_ns + EPSILON_NS;
		}
		if (over && sim_worker_next(worker, &sim->reads, sim->now_ns))
			worker->n_finished++;
	}
}

static int sim_run(struct sim *sim)
{
	epoch_begin(sim);
	for (;;) {
		double busy, speed, ns;

		trainer_advance(sim);
		if (sim->phase == TRAINER_DONE)
			return 0;
		workers_feed(sim);
		quota_renew(sim);
		busy = cores_wanted(sim);
		speed = thread_speed(sim, busy);
		ns = fmin(quiet_ns(sim, speed), quota_pause_ns(sim, busy));
		if (isinf(ns))
			return -EINVAL;
		quota_use(sim, speed > 0 ? busy : 0, ns);
		/* Advances hand-offs first, because their speeds are those of the phases before this step. */
		if (sim->phase == TRAINER_HANDOVER)
			sim->handover_left = progress(sim->handover_left, handover_speed(sim), ns);
		else if (sim->phase == TRAINER_CPU)
			sim->left_ns -= ns * speed;
		else if (sim->phase == TRAINER_SLEEP)
			sim->left_ns -= ns;
		sim->now_ns += ns;
		workers_pass(sim, ns, speed);
		sim->outcome.n_events++;
	}
}

int model_replay(const struct model_job *job, const struct model_scenario *scenario, double *step_ns,
		 double *wait_ns, struct model_outcome *ret_outcome)
{
	struct sim sim = {.job = job,
			  .scenario = scenario,
			  .prefetch = job->loader.prefetch ? job->loader.prefetch : 2,
			  .sharing_ratio = job->sharing_ratio,
			  .loader = job->loader,
			  .step_out_ns = step_ns,
			  .wait_out_ns = wait_ns};
	uint32_t n = scenario->n_workers == UINT32_MAX ? job->loader.n_workers : scenario->n_workers;
	int r;

	if (n > MODEL_WORKERS_MAX || !job_sane(job) || !scenario_sane(scenario))
		return -EINVAL;
	sim.is_inline = !n;
	sim.n_workers = n ? n : 1;
	sim.reads = sim_reads_init(job, scenario);
	sim.reads.moved = model_gives_workers(job, scenario);
	if (sim.reads.moved) {
		sim.sharing_ratio = fmax(job->sharing_ratio, scenario->sharing_ratio);
		sim.loader.publish_idle_ns = sim.loader.publish_busy_ns = MODEL_PUBLISH_NS;
		sim.loader.handover_idle_ns = sim.loader.handover_busy_ns = MODEL_HANDOVER_NS;
	}
	sim.quota_ns = has_quota(scenario) ? scenario->cores * MODEL_QUOTA_PERIOD_NS : INFINITY;
	sim.quota_left_ns = sim.quota_ns;
	sim.period_end_ns = MODEL_QUOTA_PERIOD_NS;
	sim.workers = calloc(sim.n_workers, sizeof(*sim.workers));
	if (!sim.workers)
		return -ENOMEM;
	r = sim_run(&sim);
	free(sim.workers);
	if (r < 0)
		return r;
	sim.outcome.wall_ns = sim.now_ns;
	*ret_outcome = sim.outcome;
	return 0;
}
