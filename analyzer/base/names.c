/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/analysis.h"
#include "analyzer/lanes.h"

const char *analysis_share_name(enum analysis_share share)
{
	switch (share) {
	case SHARE_DEVICE: return "device";
	case SHARE_FETCH_STALL: return "fetch_stall";
	case SHARE_PREP_STALL: return "prep_stall";
	case SHARE_CHECKPOINT_STALL: return "checkpoint_stall";
	case SHARE_CPU_STARVED: return "cpu_starved";
	case SHARE_OTHER: return "other";
	case SHARE_COMPILING: return "compiling";
	case SHARE_COUNT: break;
	}
	return "";
}

const char *analysis_verdict_name(enum analysis_verdict verdict)
{
	switch (verdict) {
	case ANALYSIS_INSUFFICIENT: return "insufficient data";
	case ANALYSIS_FETCH_BOUND: return "fetch-bound";
	case ANALYSIS_PREP_BOUND: return "prep-bound";
	case ANALYSIS_DEVICE_BOUND: return "device-bound";
	case ANALYSIS_CHECKPOINT_BOUND: return "checkpoint-bound";
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

const char *analysis_confidence_name(enum analysis_confidence confidence)
{
	switch (confidence) {
	case CONFIDENCE_LOW: return "low";
	case CONFIDENCE_MEDIUM: return "medium";
	case CONFIDENCE_HIGH: return "high";
	}
	return "";
}

const char *lane_state_name(enum lane_state state)
{
	switch (state) {
	case LANE_DEVICE: return "device";
	case LANE_FETCH_STALL: return "fetch_stall";
	case LANE_PREP_STALL: return "prep_stall";
	case LANE_CHECKPOINT: return "checkpoint_stall";
	case LANE_STARVED: return "cpu_starved";
	case LANE_OTHER: return "other";
	case LANE_CPU: return "computing";
	case LANE_FETCH: return "fetching";
	case LANE_QUEUE: return "without a core";
	case LANE_IDLE: return "idle";
	case LANE_BLOCKED: return "blocked";
	case LANE_GPU_WAIT: return "gpu_wait";
	case LANE_COMPILING: return "compiling";
	case LANE_STATES: break;
	}
	return "";
}
