/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/model.h"

/* Tolerance for a ratio that is a whole number except for rounding: it must not be rounded up by one. */
#define ROUNDING 1e-9
/* Extents of decoded copies are not filled to the last byte. */
#define DECODED_SLACK 1.08

static double clamp01(double x)
{
	return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Returns seconds per byte; 0 for a bandwidth that is unlimited or not known. */
static double per_byte(double bytes_per_s)
{
	return bytes_per_s > 0 ? 1 / bytes_per_s : 0;
}

double model_fetch_rate(double cached_ratio, double sample_bytes, double memory_bytes_per_s,
			double storage_bytes_per_s)
{
	double x = clamp01(cached_ratio);
	double seconds =
	    sample_bytes * (x * per_byte(memory_bytes_per_s) + (1 - x) * per_byte(storage_bytes_per_s));

	return seconds > 0 ? 1 / seconds : INFINITY;
}

double model_prep_rate(double n_workers, double cores, double cpu_s_per_sample)
{
	double n = n_workers < 1 ? 1 : n_workers;

	if (cores >= 1 && n > cores)
		n = cores;
	return cpu_s_per_sample > 0 ? n / cpu_s_per_sample : INFINITY;
}

double model_speed(double fetch_rate, double prep_rate, double device_rate)
{
	return fmin(fmin(fetch_rate, prep_rate), device_rate);
}

enum model_bound model_bound_of(double fetch_rate, double prep_rate, double device_rate)
{
	if (device_rate <= fmin(fetch_rate, prep_rate))
		return MODEL_DEVICE_BOUND;
	return fetch_rate < prep_rate ? MODEL_FETCH_BOUND : MODEL_PREP_BOUND;
}

double model_cache_needed(double sample_bytes, double memory_bytes_per_s, double storage_bytes_per_s,
			  double rate)
{
	double slow = per_byte(storage_bytes_per_s), fast = per_byte(memory_bytes_per_s);
	double have = sample_bytes > 0 && rate > 0 ? 1 / (rate * sample_bytes) : INFINITY;

	if (slow <= have)
		return 0;
	if (fast > have || fast >= slow)
		return NAN;
	return clamp01((slow - have) / (slow - fast));
}

static uint32_t ceil_count(double x)
{
	if (!(x > 0))
		return 0;
	return x >= UINT32_MAX ? UINT32_MAX : (uint32_t)ceil(x - ROUNDING);
}

uint32_t model_workers_needed(double cpu_s_per_sample, double rate)
{
	uint32_t n = ceil_count(cpu_s_per_sample * rate);

	return n ? n : 1;
}

uint32_t model_prefetch_depth(double chunk_latency_s, double rate, double samples_per_chunk)
{
	uint32_t n = samples_per_chunk > 0 ? ceil_count(chunk_latency_s * rate / samples_per_chunk) : 0;

	return n < UINT32_MAX ? n + 1 : n;
}

double model_decoded_memory(double n_samples, double decoded_bytes)
{
	return DECODED_SLACK * n_samples * decoded_bytes;
}

double model_decoded_cover(double bytes, double all_bytes)
{
	return all_bytes > 0 ? clamp01(bytes / all_bytes) : 0;
}

double model_decoded_cpu(double fresh_s, double decoded_s, double hit)
{
	return fresh_s - clamp01(hit) * (fresh_s - decoded_s);
}
