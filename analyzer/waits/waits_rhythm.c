/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "downloads.h"
#include "rhythm.h"
#include "waits.h"

/*
 * No backward passes, no DataLoader, no workers: NumPy, scikit-learn, JAX, with a loader of the job's own.
 * The rhythm of what the trainer reads tells its steps.
 */
#define SAMPLE_GAP_NS UINT64_C(300000) /* of computing; less lies between two calls for one sample */

static uint32_t n_reads_of(const struct timeline_call *call)
{
	return call->kind == CALL_GROUP ? call->n_reads : call_read_bytes(call) > 0;
}

/* All calls for one sample are a beat. */
static size_t beats_find(const struct timeline_thread *trainer, const struct downloads *downloads,
			 struct beat *beats)
{
	uint64_t exec_ns = 0, read_bytes = 0;
	size_t n = 0;

	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];
		uint64_t gap_ns;

		if (!downloads_touches(downloads, call) || (call->flags & EVENT_FLAG_CLIPPED))
			continue;
		gap_ns = n ? timeline_account(trainer, beats[n - 1].end_ns, call->begin_ns).cpu_ns : 0;
		read_bytes += call_read_bytes(call);
		if (!n || gap_ns >= SAMPLE_GAP_NS) {
			exec_ns += gap_ns;
			beats[n++] = (struct beat){.begin_ns = call->begin_ns,
						   .first_ns = call->begin_ns,
						   .exec_begin_ns = exec_ns,
						   .pause_ns = gap_ns};
			gap_ns = 0;
		}
		exec_ns += gap_ns + timeline_account(trainer, call->begin_ns, call->end_ns).cpu_ns;
		beats[n - 1].end_ns = beats[n - 1].last_ns = call->end_ns;
		beats[n - 1].exec_end_ns = exec_ns;
		beats[n - 1].read_bytes = read_bytes;
		beats[n - 1].n_reads += n_reads_of(call);
	}
	return n;
}

/* What lies between two stretches of computing is loading. */
static int waits_take(const struct timeline_thread *trainer, const struct rhythm *rhythm,
		      struct data_waits *waits)
{
	uint64_t at_ns = rhythm->begin_ns;
	int r = 0;

	for (size_t i = 0; r == 0 && i < rhythm->n_computing; i++) {
		const struct interval *computing = &rhythm->computing[i];
		uint64_t read_ns = computing->begin_ns - rhythm->sample_ns;
		uint64_t end_ns = timeline_after_cpu(trainer, read_ns, rhythm->sample_ns, computing->end_ns);

		if (at_ns < end_ns)
			r = data_waits_add(
			    waits,
			    (struct data_wait){.begin_ns = at_ns, .end_ns = end_ns, .ready_ns = end_ns});
		at_ns = computing->end_ns;
	}
	return r;
}

int data_waits_find_rhythm(const struct timeline_thread *trainer, struct data_waits *waits)
{
	struct beat *beats = calloc(trainer->n_calls + 1, sizeof(*beats));
	struct downloads downloads = {0};
	struct rhythm rhythm = {0};
	int r = beats ? downloads_find(trainer, &downloads) : -ENOMEM;

	if (r == 0)
		r = rhythm_find(beats, beats_find(trainer, &downloads, beats), 1, trainer->last_ns, &rhythm);
	if (r == 0)
		r = waits_take(trainer, &rhythm, waits);
	if (r == 0)
		r = data_waits_find_reads(trainer, &downloads, waits);
	rhythm_free(&rhythm);
	downloads_free(&downloads);
	free(beats);
	return r;
}
