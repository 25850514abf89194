/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/analysis.h"
#include "analyzer/lanes.h"

const char *analysis_share_name(enum analysis_share share)
{
	static const char *const names[SHARE_COUNT] = {
	    [SHARE_DEVICE] = "device",           [SHARE_FETCH_STALL] = "fetch_stall",
	    [SHARE_PREP_STALL] = "prep_stall",   [SHARE_CHECKPOINT_STALL] = "checkpoint_stall",
	    [SHARE_CPU_STARVED] = "cpu_starved", [SHARE_OTHER] = "other",
	    [SHARE_COMPILING] = "compiling",
	};

	return (unsigned)share < SHARE_COUNT ? names[share] : "";
}

const char *analysis_verdict_name(enum analysis_verdict verdict)
{
	switch (verdict) {
	case ANALYSIS_INSUFFICIENT: return "insufficient data";
	case ANALYSIS_FETCH_BOUND: return "fetch-bound";
	case ANALYSIS_PREP_BOUND: return "prep-bound";
	case ANALYSIS_DEVICE_BOUND: return "device-bound";
	case ANALYSIS_CHECKPOINT_BOUND: return "checkpoint-bound";
	case ANALYSIS_CPU_STARVED: return "cpu-starved";
	case ANALYSIS_LOCK_BOUND: return "lock-bound";
	case ANALYSIS_UNCLEAR: return "unclear";
	}
	return "";
}

const char *analysis_loader_name(enum analysis_loader loader)
{
	switch (loader) {
	case LOADER_NONE: return "none";
	case LOADER_WORKERS: return "workers";
	case LOADER_INLINE: return "inline";
	case LOADER_DIESEL: return "diesel";
	case LOADER_THREADS: return "threads";
	}
	return "";
}

const char *analysis_method_name(enum analysis_method method)
{
	switch (method) {
	case METHOD_NONE: return "none";
	case METHOD_WALK: return "walk";
	case METHOD_REPLAY: return "replay";
	case METHOD_MARKS: return "marks";
	case METHOD_SAMPLED: return "sampled";
	}
	return "";
}

const char *analysis_counted_name(enum analysis_counted counted)
{
	switch (counted) {
	case COUNTED_NONE: break;
	case COUNTED_BACKWARD: return "backward passes";
	case COUNTED_BATCHES: return "batches";
	case COUNTED_WAITS: return "data waits";
	case COUNTED_LAUNCHES: return "launches";
	}
	return NULL;
}

const char *analysis_confidence_name(enum analysis_confidence confidence)
{
	switch (confidence) {
	case CONFIDENCE_LOW: return "low";
	case CONFIDENCE_MEDIUM: return "medium";
	case CONFIDENCE_HIGH: return "high";
	}
	return "";
}

const char *checkpoint_cause_name(enum checkpoint_cause cause)
{
	switch (cause) {
	case CHECKPOINT_COPY: return "copy_s";
	case CHECKPOINT_WRITE: return "write_s";
	case CHECKPOINT_AWAIT: return "await_s";
	case CHECKPOINT_WAIT: return "wait_s";
	case CHECKPOINT_LOCK: return "lock_s";
	case CHECKPOINT_CORES: return "cores_s";
	case CHECKPOINT_STORAGE: return "storage_s";
	case CHECKPOINT_LOADER: return "loader_s";
	case CHECKPOINT_UNKNOWN: return "unknown_s";
	case CHECKPOINT_CAUSES: break;
	}
	return "";
}

enum lane_state lane_state_of_share(enum analysis_share share)
{
	return share == SHARE_COMPILING ? LANE_COMPILING : (enum lane_state)share;
}

const char *lane_state_name(enum lane_state state)
{
	switch (state) {
	case LANE_DEVICE:
	case LANE_FETCH_STALL:
	case LANE_PREP_STALL:
	case LANE_CHECKPOINT:
	case LANE_STARVED:
	case LANE_OTHER: return analysis_share_name((enum analysis_share)state);
	case LANE_COMPILING: return analysis_share_name(SHARE_COMPILING);
	case LANE_CPU: return "computing";
	case LANE_FETCH: return "fetching";
	case LANE_QUEUE: return "without a core";
	case LANE_IDLE: return "idle";
	case LANE_BLOCKED: return "blocked";
	case LANE_GPU_WAIT: return "gpu_wait";
	case LANE_STATES: break;
	}
	return "";
}
