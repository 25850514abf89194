/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

#ifdef __BPF__
#include "bpf/event.h"
#else
#include <stdint.h>
#endif

/*
 * The cookie of a link tells a probe in libcuda about its function, and struct gpu_process is the state
 * that the probes keep for each process. A cookie is:
 *
 *   bits 0-7   index into the table of bpf/gpu.h
 *   bits 8-11  where the stream is, enum gpu_stream_at
 *   bits 16-   enum gpu_trait
 */

#define GPU_COOKIE_FUNCTION(cookie) ((cookie)&0xff)
#define GPU_COOKIE_STREAM(cookie)   (((cookie) >> 8) & 0xf)
#define GPU_COOKIE(function, at, traits)                                                                     \
	((unsigned long long)(function) | (unsigned long long)(at) << 8 | (unsigned long long)(traits))

/* Location of the stream argument: x86-64 passes six arguments in registers. */
enum gpu_stream_at {
	GPU_STREAM_NULL = 0, /* no argument: the default stream */
	GPU_STREAM_1 = 1,
	GPU_STREAM_2 = 2,
	GPU_STREAM_4 = 4,
	GPU_STREAM_6 = 6,
	GPU_STREAM_9 = 9,       /* on the stack */
	GPU_STREAM_CONFIG = 10, /* a field of the CUlaunchConfig to which the first argument points */
};

enum gpu_trait {
	GPU_LAUNCH = 1 << 16,        /* queues a kernel or graph */
	GPU_COPY = 1 << 17,          /* queues a copy or fill */
	GPU_WAITS = 1 << 18,         /* returns when the device is done */
	GPU_WAITS_MAYBE = 1 << 19,   /* may wait for the device; such waits take at least GPU_WAIT_MIN_NS */
	GPU_DRAINS_STREAM = 1 << 20, /* nothing is queued on its stream when it returns */
	GPU_DRAINS_ALL = 1 << 21,    /* nothing is queued on any stream when it returns */
	GPU_PER_THREAD = 1 << 22,    /* _ptsz, _ptds: the default stream is the thread's own */
};

/* An asynchronous copy with pageable memory waits for the device; one with pinned memory takes some us. */
#define GPU_WAIT_MIN_NS 50000

struct gpu_process {
	uint64_t start_boottime_ns; /* start of its main thread: a reused PID is another process */
	uint64_t idle_ns;           /* time since which the queue is known to be empty; 0: not known to be */
	uint64_t stream;            /* stream of the work queued since the queue was last empty */
	uint64_t n_launches, n_copies;
	uint64_t n_waits, wait_ns;
	uint64_t unknown_until_ns; /* until this time, work from before the recording may be queued; 0: no */
	uint32_t has_work;         /* work was queued since the queue was last empty */
	uint32_t mixed;            /* the queued work was on more than one stream */
};
