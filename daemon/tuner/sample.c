/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner/stall_sample.h"

#include <math.h>

struct stall_sample stall_sample_unknown(void)
{
	return (struct stall_sample){
	    .source = STALL_SOURCE_NONE,
	    .shares = {.device = NAN,
		       .gpu_wait = NAN,
		       .fetch_stall = NAN,
		       .prep_stall = NAN,
		       .checkpoint_stall = NAN,
		       .cpu_starved = NAN,
		       .other = NAN},
	    .steps_per_s = NAN,
	    .samples_per_s = NAN,
	    .step_p50_s = NAN,
	    .step_p95_s = NAN,
	    .fetch_rate = NAN,
	    .prep_rate = NAN,
	    .device_rate = NAN,
	    .chunk_latency_s = NAN,
	    .chunk_latency_p95_s = NAN,
	    .source_bytes_per_s = NAN,
	    .reads_in_flight = NAN,
	    .reading_ratio = NAN,
	    .memory_hit_ratio = NAN,
	    .tiers.peer_hit_ratio = NAN,
	    .tiers.memory = {NAN, NAN, NAN},
	    .tiers.peer = {NAN, NAN, NAN},
	    .tiers.storage = {NAN, NAN, NAN},
	    .chunk_bytes = NAN,
	    .samples_per_chunk = NAN,
	    .ready_samples = NAN,
	    .daemon_cpu_s_per_sample = NAN,
	    .client_cpu_s_per_sample = NAN,
	    .handoff_s_per_sample = NAN,
	    .client_worker_bytes = NAN,
	    .daemon_workers_busy = NAN,
	    .client_workers_busy = NAN,
	    .run_queue_ratio = NAN,
	    .dataset_bytes = NAN,
	    .cached_bytes = NAN,
	    .need_bytes = NAN,
	    .decoded_cache.usable = NAN,
	    .decoded_cache.samples = NAN,
	    .decoded_cache.bytes = NAN,
	    .decoded_cache.space_bytes = NAN,
	    .decoded_cache.sample_bytes = NAN,
	    .decoded_cache.hit_ratio = NAN,
	    .decoded_cache.serve_ratio = NAN,
	    .decoded_cache.fresh_cpu_s_per_sample = NAN,
	    .decoded_cache.cpu_s_per_sample = NAN,
	};
}

struct stall_node stall_node_unknown(void)
{
	return (struct stall_node){
	    .memory_some_avg10 = NAN,
	    .memory_full_avg10 = NAN,
	    .cpu_some_avg10 = NAN,
	    .io_some_avg10 = NAN,
	    .io_full_avg10 = NAN,
	    .memory_limit_bytes = NAN,
	    .memory_headroom_bytes = NAN,
	    .memory_free_bytes = NAN,
	    .cores = NAN,
	    .cores_idle = NAN,
	    .oom_kills = 0,
	    .memory_some_now = NAN,
	};
}

double stall_reserve_bytes(double limit)
{
	return fmax(fmin(limit / 16, 256.0 * 1024 * 1024), limit / 64);
}
