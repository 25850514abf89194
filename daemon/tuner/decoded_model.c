/* SPDX-License-Identifier: Apache-2.0 */
/* Models the CPU time that decoded copies save: analyzer/model.h with the measured figures. */
#include "state.h"

#include <math.h>

#include "analyzer/model.h"

/* Share of the demand. If the other knobs reach it, decoded copies need no more memory. */
#define AS_GOOD 0.98
/* Share of the expected hits of decoded copies that must be reached before the effect is judged. */
#define FILLED 0.8
/* Epochs that filling takes: a decoded copy made in one epoch is used in the next. */
#define FILL_EPOCHS 2.5
#define FILL_MIN_S  600.0
#define FILL_MAX_S  86400.0
/* Minimum growth that is worth a change, as a ratio. */
#define STEP  1.1
#define MIB   0x1p20
#define LEAST 0.05 /* share of the CPU time that decoded copies never save */

/* Returns true if enough is known about the job's decoding for a model. */
static bool decoded_known(const struct job_figures *f)
{
	return f->decoded > 0 && f->fresh_s > 0 && f->daemon_cpu_s > 0;
}

double decoded_all_bytes(const struct job_figures *f)
{
	double stored = f->chunk_bytes / f->samples_per_chunk;

	return model_decoded_memory(f->decoded,
				    f->decoded_size > 0 ? f->decoded_size : MODEL_DECODED_TIMES * stored);
}

double decoded_cover(const struct job_figures *f, double bytes)
{
	return model_decoded_cover(bytes, decoded_all_bytes(f));
}

static double out_of_decoded_s(const struct job_figures *f)
{
	return f->decoded_s > 0 ? f->decoded_s : MODEL_DECODED_PART * f->fresh_s;
}

static double decoded_hit(const struct job_figures *f, double bytes)
{
	return decoded_cover(f, bytes) * (f->decoded_serve >= 0 ? f->decoded_serve : 1);
}

double decoded_daemon_cpu_s(const struct tuner_job *job, const struct job_figures *f, uint64_t bytes)
{
	double decoded_s = out_of_decoded_s(f), to = (double)bytes, then, now;

	if (!decoded_known(f))
		return f->daemon_cpu_s;
	/* Decoded copies of an earlier job stay in memory as long as this knob keeps its value. */
	if (bytes == job->in_force.value[TUNER_DECODED_BYTES] && f->decoded_bytes > to)
		to = f->decoded_bytes;
	then = model_decoded_cpu(f->fresh_s, decoded_s, decoded_hit(f, to));
	now = model_decoded_cpu(f->fresh_s, decoded_s, f->decoded_hit > 0 ? f->decoded_hit : 0);
	return fmax(f->daemon_cpu_s + then - now, LEAST * f->daemon_cpu_s);
}

uint64_t decoded_target(const struct tuner_job *job, const struct job_figures *f, double goal)
{
	uint64_t now = job->in_force.value[TUNER_DECODED_BYTES];
	double want;

	if (!decoded_known(f) || !(f->decoded_space > 0) || goal >= f->demand * AS_GOOD)
		return now;
	want = floor(fmin(decoded_all_bytes(f), f->decoded_space) / MIB) * MIB;
	return want > (double)now * STEP ? (uint64_t)want : now;
}

bool decoded_fill(const struct job_figures *f, uint64_t bytes)
{
	return decoded_known(f) && !(f->decoded_hit >= FILLED * decoded_hit(f, (double)bytes));
}

uint64_t decoded_fill_ns(const struct job_figures *f)
{
	double epochs_s = f->decoded > 0 && f->rate > 0 ? FILL_EPOCHS * f->decoded / f->rate : 0;

	return (uint64_t)(fmin(fmax(epochs_s, FILL_MIN_S), FILL_MAX_S) * (double)SECOND_NS);
}

/* Either of two measurements is enough. The CPU time of all decoding includes effects that nobody foresaw,
 * but neighbours inflate it, in some seconds more than in others. The decoders' own figures are means over
 * the job's life. */
bool decoded_save(const struct knob_change *c, const struct job_figures *after, double part)
{
	double promised = c->cpu_before - c->cpu_expected, all = c->cpu_before - after->daemon_cpu_s;
	double own = after->decoded_hit * (after->fresh_s - after->decoded_s);

	return fmax(all, own) >= part * promised;
}
