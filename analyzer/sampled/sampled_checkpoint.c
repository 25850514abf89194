/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "lib/array.h"
#include "lib/proc_task.h"
#include "sampled_trainer.h"

/*
 * Bytes count when a write call returns, and serialising goes on between two calls. So from a look that saw a
 * large write, or found the trainer writing or syncing, a checkpoint reaches back to the first write of some
 * size after the last read: reads are for the data of the steps before and after.
 */

#define CHECKPOINT_BYTES UINT64_C(65536)
#define FIRST_BYTES      4096             /* log lines and requests to workers are smaller */
#define GAP_NS           (50 * NS_PER_MS) /* between two large writes */
#define SLEEP_NS         (20 * NS_PER_MS) /* a longer sync counts without bytes */
#define BACK_NS          (UINT64_C(30) * NS_PER_S)

/* The bytes of a look may come from what the thread did before: from compiling, whose files are no
 * checkpoint. */
static bool of_compiler(const struct sampled_thread *thread, size_t i)
{
	return thread->looks[i]->sample.place == SAMPLE_PLACE_COMPILING ||
	       (i && thread->looks[i - 1]->sample.place == SAMPLE_PLACE_COMPILING);
}

static bool writes(const struct sampled_thread *thread, size_t i)
{
	const struct event *look = thread->looks[i];

	return !of_compiler(thread, i) &&
	       (look->sample.written_bytes >= CHECKPOINT_BYTES || look->sample.wait == PROC_WAIT_FILE_WRITE);
}

static uint64_t first_write_ns(const struct sampled_thread *thread, size_t i)
{
	uint64_t end_ns = thread->looks[i]->end_ns, begin_ns = thread->looks[i]->start_ns;

	while (i-- > 0) {
		const struct event *look = thread->looks[i];

		if (look->sample.n_reads || end_ns - look->start_ns > BACK_NS || of_compiler(thread, i))
			break;
		if (look->sample.written_bytes >= FIRST_BYTES)
			begin_ns = look->start_ns;
	}
	return begin_ns;
}

/* Index past the large writes and syncs that begin with look i; i: they make no checkpoint. */
static size_t writes_end(const struct sampled_thread *thread, size_t i)
{
	uint64_t bytes = 0, sleep_ns = 0;
	size_t last = i;

	for (size_t k = i; k < thread->n; k++) {
		const struct event *look = thread->looks[k];

		if (writes(thread, k)) {
			last = k;
			bytes += look->sample.written_bytes;
			sleep_ns += look->sample.wait == PROC_WAIT_FILE_WRITE ? sampled_sleep_ns(look) : 0;
		} else if (look->end_ns - thread->looks[last]->end_ns > GAP_NS) {
			break;
		}
	}
	return bytes >= CHECKPOINT_BYTES || sleep_ns >= SLEEP_NS ? last + 1 : i;
}

int sampled_checkpoints_find(const struct sampled_thread *thread, struct sampled_stretch **ret_stretches,
			     size_t *ret_n)
{
	struct sampled_stretch *stretches = NULL;
	size_t n = 0, n_allocated = 0;

	for (size_t i = 0; i < thread->n;) {
		size_t end = writes(thread, i) ? writes_end(thread, i) : i;

		if (end == i) {
			i++;
			continue;
		}
		if (array_room(stretches, n, n_allocated) < 0) {
			free(stretches);
			return -ENOMEM;
		}
		stretches[n] =
		    (struct sampled_stretch){first_write_ns(thread, i), thread->looks[end - 1]->end_ns};
		if (n && stretches[n].begin_ns < stretches[n - 1].end_ns)
			stretches[n - 1].end_ns = stretches[n].end_ns;
		else
			n++;
		i = end;
	}
	*ret_stretches = stretches;
	*ret_n = n;
	return 0;
}
