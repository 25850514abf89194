/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "lib/proc_task.h"
#include "rhythm.h"
#include "sampled_trainer.h"

#define PAUSE_WEIGHT 0.1 /* looks blur pauses more than counts */
#define FILE_READS   2   /* at least: a file's content and its end */

/* Looks that saw the trainer read or wait for a file. A read is on average in the middle of its look. */
static size_t beats_find(const struct sampled_thread *thread, struct beat *beats)
{
	uint64_t exec_ns = 0, read_bytes = 0;
	size_t n = 0;

	for (size_t i = 0; i < thread->n; i++) {
		const struct event *look = thread->looks[i];
		uint64_t half_ns = (look->end_ns - look->start_ns) / 2;

		exec_ns += look->sample.exec_ns;
		read_bytes += look->sample.read_bytes;
		if (!look->sample.n_reads && look->sample.wait != PROC_WAIT_FILE_READ)
			continue;
		beats[n] = (struct beat){.begin_ns = look->start_ns,
					 .end_ns = look->end_ns,
					 .first_ns = look->start_ns + (look->sample.n_reads ? half_ns : 0),
					 .last_ns = look->end_ns - half_ns,
					 .exec_begin_ns = exec_ns - look->sample.exec_ns,
					 .exec_end_ns = exec_ns,
					 .read_bytes = read_bytes,
					 .n_reads = look->sample.n_reads,
					 .n_samples = (double)look->sample.n_reads / FILE_READS};
		beats[n].pause_ns = n ? beats[n].begin_ns - beats[n - 1].end_ns : 0;
		n++;
	}
	return n;
}

static int take(const struct rhythm *rhythm, struct sampled_trainer *trainer)
{
	trainer->computing = calloc(rhythm->n_computing + 1, sizeof(*trainer->computing));
	if (!trainer->computing)
		return -ENOMEM;
	for (size_t i = 0; i < rhythm->n_computing; i++)
		trainer->computing[i] =
		    (struct sampled_stretch){rhythm->computing[i].begin_ns, rhythm->computing[i].end_ns};
	trainer->n_computing = rhythm->n_computing;
	trainer->n_steps = rhythm->n_steps;
	trainer->begin_ns = rhythm->begin_ns;
	trainer->end_ns = rhythm->end_ns;
	return 0;
}

int sampled_inline_find(const struct sampled_thread *thread, struct sampled_trainer *trainer)
{
	struct beat *beats = calloc(thread->n + 1, sizeof(*beats));
	struct rhythm rhythm = {0};
	int r = -ENOMEM;

	if (beats)
		r = rhythm_find(beats, beats_find(thread, beats), PAUSE_WEIGHT,
				thread->looks[thread->n - 1]->end_ns, &rhythm);
	if (r == 0 && rhythm.n_steps)
		r = take(&rhythm, trainer);
	rhythm_free(&rhythm);
	free(beats);
	return r;
}
