/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/sim.h"

#include <math.h>

#define MIB 0x1p20

static struct sim_truth random_truth(struct sim_random *r, double cores)
{
	struct sim_truth t = {0};
	double chunk = sim_log_uniform(r, 4 * MIB, 16 * MIB), drive;

	t.sample_bytes = sim_log_uniform(r, 4e3, 4e5);
	t.samples_per_chunk = fmax(floor(chunk / t.sample_bytes), 1);
	chunk = t.sample_bytes * t.samples_per_chunk;
	/* Storage from a slow network to NVMe; the trainer asks for between 1/20 and 5 times what storage
	 * delivers. */
	t.storage_bytes_per_s = sim_log_uniform(r, 30e6, 3e9);
	t.latency_s = chunk / t.storage_bytes_per_s * sim_log_uniform(r, 0.8, 8);
	drive = t.storage_bytes_per_s / t.sample_bytes;
	t.device_rate = drive * sim_log_uniform(r, 0.05, 5);
	/* An epoch of 8 to 60 s, so that caches fill during the simulation. */
	t.dataset_bytes = ceil(t.device_rate * t.sample_bytes * sim_log_uniform(r, 8, 60) / chunk) * chunk;
	t.dataset_bytes = fmax(t.dataset_bytes, 64 * chunk);
	/* The daemon's work takes from a tenth of a core to more cores than there are. */
	t.daemon_cpu_s = sim_log_uniform(r, 0.05, cores) / t.device_rate;
	if (sim_uniform(r, 0, 1) < 0.6)
		t.client_cpu_s = sim_log_uniform(r, 0.05, cores) / t.device_rate;
	t.handoff_s = sim_log_uniform(r, 0.3, 3) * (5e-6 + 1.5e-9 * t.sample_bytes);
	t.window = floor(sim_log_uniform(r, 1, 17));
	t.ready = floor(sim_log_uniform(r, 64, 1024));
	t.reads_max = floor(sim_log_uniform(r, 4, 33));
	t.worker_bytes = sim_log_uniform(r, 20e6, 300e6);
	t.trainer_cores = sim_uniform(r, 0, 0.5);
	return t;
}

/* Changes one or two things: another augmentation, colder storage, a smaller model. */
static struct sim_truth changed_truth(struct sim_random *r, struct sim_truth t)
{
	double what = sim_uniform(r, 0, 1), by = sim_log_uniform(r, 1.6, 4);

	if (sim_uniform(r, 0, 1) < 0.5)
		by = 1 / by;
	if (what < 0.35) {
		t.storage_bytes_per_s *= by;
		t.latency_s /= by;
	} else if (what < 0.7) {
		t.device_rate *= by;
	} else {
		t.daemon_cpu_s *= by;
		t.client_cpu_s *= by;
	}
	return t;
}

static struct sim_job random_job(struct sim_random *r, const struct sim_scenario *s, double memory)
{
	struct sim_job job;

	job.phases[0] = random_truth(r, s->cores);
	for (uint32_t i = 1; i < SIM_MAX_PHASES; i++)
		job.phases[i] = changed_truth(r, job.phases[i - 1]);
	job.start = (struct tuner_knobs){.value = {(uint64_t)(memory * sim_uniform(r, 0.3, 0.9)),
						   (uint64_t)sim_uniform(r, 1, 9),
						   (uint64_t)sim_uniform(r, 1, s->cores + 0.99),
						   (uint64_t)sim_uniform(r, 0, s->cores + 0.99)}};
	return job;
}

struct sim_scenario sim_scenario_random(uint64_t seed, uint32_t n_jobs)
{
	struct sim_random r = {.state = seed * 1000003 + n_jobs};
	struct sim_scenario s = {.seed = seed, .n_jobs = n_jobs, .phase_s = 120};
	double data = 0, need = 0;

	s.cores = floor(sim_uniform(&r, 2, 8.99));
	s.n_phases = sim_uniform(&r, 0, 1) < 0.5 ? 1 : sim_uniform(&r, 0, 1) < 0.7 ? 2 : 3;
	s.noise = sim_uniform(&r, 0, 0.08);
	if (sim_uniform(&r, 0, 1) < 0.15 && n_jobs == 1) {
		s.burst_period_s = sim_uniform(&r, 6, 40);
		s.burst_factor = sim_uniform(&r, 0.3, 0.8);
		s.n_phases = 1;
	}
	for (uint32_t i = 0; i < n_jobs; i++)
		s.jobs[i] = random_job(&r, &s, 1e9);
	for (uint32_t i = 0; i < n_jobs; i++) {
		data += s.jobs[i].phases[0].dataset_bytes;
		need = fmax(need, sim_need_bytes(&s.jobs[i].phases[0]));
	}
	/* Memory for between a third of the data and more than all of it, plus the needs of sessions. */
	s.memory_bytes = fmax(data * sim_log_uniform(&r, 0.3, 3), 2.5 * n_jobs * need);
	for (uint32_t i = 0; i < n_jobs; i++) {
		uint64_t *cache = &s.jobs[i].start.value[TUNER_CACHE_BYTES];

		*cache = (uint64_t)fmax((double)*cache / 1e9 * s.memory_bytes / n_jobs,
					sim_need_bytes(&s.jobs[i].phases[0]));
		if (s.jobs[i].phases[0].client_cpu_s <= 0)
			s.jobs[i].start.value[TUNER_CLIENT_WORKERS] = 0;
	}
	return s;
}

struct sim_scenario sim_scenario_decoding(uint64_t seed)
{
	struct sim_scenario s = sim_scenario_random(seed, 1);
	struct sim_random r = {.state = seed * 1000003 + 0x666f726d};
	struct sim_truth *t = &s.jobs[0].phases[0];
	double samples, rate;

	s.n_phases = 1;
	s.phase_s = SIM_MAX_S;
	s.burst_period_s = 0;
	t->client_cpu_s = 0;
	t->daemon_cpu_s = s.cores * sim_log_uniform(&r, 1.5, 20) / t->device_rate;
	t->decoded_bytes = t->sample_bytes * sim_log_uniform(&r, 1.5, 6);
	t->decoded_part = sim_uniform(&r, 0.3, 0.9);
	/* Storage that is fast enough for that rate, and an epoch of 10 to 60 s. */
	rate = s.cores / t->daemon_cpu_s;
	t->storage_bytes_per_s = fmax(t->storage_bytes_per_s, 3 * rate * t->sample_bytes);
	t->latency_s = t->sample_bytes * t->samples_per_chunk / t->storage_bytes_per_s;
	samples = fmax(rate * sim_log_uniform(&r, 10, 60), 64 * t->samples_per_chunk);
	t->dataset_bytes = ceil(samples / t->samples_per_chunk) * t->samples_per_chunk * t->sample_bytes;
	/* Memory for the sessions' needs, and for between a tenth and 1.5 times of all decoded copies. */
	s.memory_bytes = 1.5 * sim_need_bytes(t) + samples * t->decoded_bytes * sim_log_uniform(&r, 0.1, 1.5);
	s.jobs[0].start = (struct tuner_knobs){.value = {(uint64_t)s.memory_bytes, 4, (uint64_t)s.cores}};
	/* Half of the scenarios have large photographs, whose decoded copies serve only the crops decoded at
	 * their scale. */
	t->decoded_serve = sim_uniform(&r, 0, 1) < 0.5 ? 1 : sim_uniform(&r, 0.4, 1);
	return s;
}
