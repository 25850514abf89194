/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_table.h"

#include <errno.h>
#include <fcntl.h>

#include "bpf/gpu.h"
#include "bpf/shared/gpu_shared.h"
#include "lib/cleanup.h"
#include "bpf/symbols/symbol.h"

/*
 * Synchronising and asynchronous calls, as the driver API's manual describes them on its page about
 * synchronisation. cuMemcpyHtoD returns when it has read the host's memory, which may be before the device
 * has the data: it waits, but drains nothing. Neither does cuEventSynchronize, because work may be queued
 * behind the event.
 *
 * Everything that queues work must be here, or the time in which a GPU has nothing to do would not be a lower
 * bound. Only calls that training does not make are left out (arrays, textures, external semaphores).
 */
#define F(index, name, at, traits)                                                                           \
	{                                                                                                    \
		name, GPU_COOKIE(index, at, traits)                                                          \
	}

const struct gpu_function gpu_functions[] = {
    [1] = F(1, "cuStreamSynchronize", GPU_STREAM_1, GPU_WAITS | GPU_DRAINS_STREAM),
    [2] = F(2, "cuStreamSynchronize_ptsz", GPU_STREAM_1, GPU_WAITS | GPU_DRAINS_STREAM | GPU_PER_THREAD),
    [3] = F(3, "cuCtxSynchronize", GPU_STREAM_NULL, GPU_WAITS | GPU_DRAINS_ALL),
    [4] = F(4, "cuCtxSynchronize_v2", GPU_STREAM_NULL, GPU_WAITS | GPU_DRAINS_ALL),
    [5] = F(5, "cuEventSynchronize", GPU_STREAM_NULL, GPU_WAITS),
    [6] = F(6, "cuMemcpyDtoH", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS | GPU_DRAINS_STREAM),
    [7] = F(7, "cuMemcpyDtoH_v2", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS | GPU_DRAINS_STREAM),
    [8] = F(8, "cuMemcpyDtoH_v2_ptds", GPU_STREAM_NULL,
	    GPU_COPY | GPU_WAITS | GPU_DRAINS_STREAM | GPU_PER_THREAD),
    [9] = F(9, "cuMemcpyHtoD", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS),
    [10] = F(10, "cuMemcpyHtoD_v2", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS),
    [11] = F(11, "cuMemcpyHtoD_v2_ptds", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS | GPU_PER_THREAD),
    [12] = F(12, "cuMemcpy", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS),
    [13] = F(13, "cuMemcpy_ptds", GPU_STREAM_NULL, GPU_COPY | GPU_WAITS | GPU_PER_THREAD),
    [14] = F(14, "cuMemcpyDtoHAsync_v2", GPU_STREAM_4, GPU_COPY | GPU_WAITS_MAYBE),
    [15] = F(15, "cuMemcpyDtoHAsync_v2_ptsz", GPU_STREAM_4, GPU_COPY | GPU_WAITS_MAYBE | GPU_PER_THREAD),
    [16] = F(16, "cuMemcpyHtoDAsync_v2", GPU_STREAM_4, GPU_COPY | GPU_WAITS_MAYBE),
    [17] = F(17, "cuMemcpyHtoDAsync_v2_ptsz", GPU_STREAM_4, GPU_COPY | GPU_WAITS_MAYBE | GPU_PER_THREAD),
    [18] = F(18, "cuMemcpyAsync", GPU_STREAM_4, GPU_COPY | GPU_WAITS_MAYBE),
    [19] = F(19, "cuMemcpyAsync_ptsz", GPU_STREAM_4, GPU_COPY | GPU_WAITS_MAYBE | GPU_PER_THREAD),
    [20] = F(20, "cuMemFree_v2", GPU_STREAM_NULL, GPU_WAITS_MAYBE),
    [21] = F(21, "cuLaunchKernel", GPU_STREAM_9, GPU_LAUNCH),
    [22] = F(22, "cuLaunchKernel_ptsz", GPU_STREAM_9, GPU_LAUNCH | GPU_PER_THREAD),
    [23] = F(23, "cuLaunchKernelEx", GPU_STREAM_CONFIG, GPU_LAUNCH),
    [24] = F(24, "cuLaunchKernelEx_ptsz", GPU_STREAM_CONFIG, GPU_LAUNCH | GPU_PER_THREAD),
    [25] = F(25, "cuLaunchCooperativeKernel", GPU_STREAM_9, GPU_LAUNCH),
    [26] = F(26, "cuLaunchCooperativeKernel_ptsz", GPU_STREAM_9, GPU_LAUNCH | GPU_PER_THREAD),
    [27] = F(27, "cuGraphLaunch", GPU_STREAM_2, GPU_LAUNCH),
    [28] = F(28, "cuGraphLaunch_ptsz", GPU_STREAM_2, GPU_LAUNCH | GPU_PER_THREAD),
    [29] = F(29, "cuMemcpyDtoDAsync_v2", GPU_STREAM_4, GPU_COPY),
    [30] = F(30, "cuMemcpyDtoDAsync_v2_ptsz", GPU_STREAM_4, GPU_COPY | GPU_PER_THREAD),
    [31] = F(31, "cuMemcpyPeerAsync", GPU_STREAM_6, GPU_COPY),
    [32] = F(32, "cuMemcpyPeerAsync_ptsz", GPU_STREAM_6, GPU_COPY | GPU_PER_THREAD),
    [33] = F(33, "cuMemcpy2DAsync_v2", GPU_STREAM_2, GPU_COPY),
    [34] = F(34, "cuMemcpy2DAsync_v2_ptsz", GPU_STREAM_2, GPU_COPY | GPU_PER_THREAD),
    [35] = F(35, "cuMemcpy3DAsync_v2", GPU_STREAM_2, GPU_COPY),
    [36] = F(36, "cuMemcpy3DAsync_v2_ptsz", GPU_STREAM_2, GPU_COPY | GPU_PER_THREAD),
    [37] = F(37, "cuMemsetD8Async", GPU_STREAM_4, GPU_COPY),
    [38] = F(38, "cuMemsetD8Async_ptsz", GPU_STREAM_4, GPU_COPY | GPU_PER_THREAD),
    [39] = F(39, "cuMemsetD16Async", GPU_STREAM_4, GPU_COPY),
    [40] = F(40, "cuMemsetD16Async_ptsz", GPU_STREAM_4, GPU_COPY | GPU_PER_THREAD),
    [41] = F(41, "cuMemsetD32Async", GPU_STREAM_4, GPU_COPY),
    [42] = F(42, "cuMemsetD32Async_ptsz", GPU_STREAM_4, GPU_COPY | GPU_PER_THREAD),
    [43] = F(43, "cuMemsetD2D8Async", GPU_STREAM_6, GPU_COPY),
    [44] = F(44, "cuMemsetD2D8Async_ptsz", GPU_STREAM_6, GPU_COPY | GPU_PER_THREAD),
    [45] = F(45, "cuMemsetD2D32Async", GPU_STREAM_6, GPU_COPY),
    [46] = F(46, "cuMemsetD2D32Async_ptsz", GPU_STREAM_6, GPU_COPY | GPU_PER_THREAD),
};

#undef F

const uint32_t n_gpu_functions = sizeof(gpu_functions) / sizeof(gpu_functions[0]);

_Static_assert(sizeof(gpu_functions) / sizeof(gpu_functions[0]) <= GPU_FUNCTIONS,
	       "arrays of GPU_FUNCTIONS must hold every entry");

const char *gpu_function_name(uint32_t function)
{
	if (function >= n_gpu_functions || !gpu_functions[function].name)
		return "?";
	return gpu_functions[function].name;
}

int gpu_probes_count(const char *path, struct gpu_probes *ret_probes)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct gpu_probes probes = {0};
	struct symbol_file *file;
	int r;

	if (fd < 0)
		return -errno;
	r = symbol_file_open(fd, &file);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n_gpu_functions; i++) {
		uint64_t offset;
		bool cheap;

		if (!gpu_functions[i].name)
			continue;
		if (symbol_file_find(file, gpu_functions[i].name, true, &offset, &cheap)) {
			probes.n_missing++;
			continue;
		}
		probes.n_probed++;
		probes.n_expensive += !cheap;
	}
	symbol_file_close(file);
	*ret_probes = probes;
	return 0;
}
