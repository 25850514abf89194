/* SPDX-License-Identifier: Apache-2.0 */
/* Models the CPU time that decoded forms save: analyzer/model.h with the measured figures. */
#include "state.h"

#include <math.h>

#include "analyzer/model.h"

/* Share of the demand. If the other knobs reach it, forms need no more memory. */
#define AS_GOOD 0.98
/* Share of the expected form hits that must be reached before the effect is judged. */
#define FILLED 0.8
/* Epochs that filling takes: a form made in one epoch is used in the next. */
#define FILL_EPOCHS 2.5
#define FILL_MIN_S  600.0
#define FILL_MAX_S  86400.0
/* Minimum growth that is worth a change, as a ratio. */
#define STEP  1.1
#define MIB   0x1p20
#define LEAST 0.05 /* share of the CPU time that forms never save */

/* Returns true if enough is known of the job's decoding to say anything. */
static bool forms_known(const struct job_figures *f)
{
	return f->decoded > 0 && f->fresh_s > 0 && f->daemon_cpu_s > 0;
}

double forms_all_bytes(const struct job_figures *f)
{
	double stored = f->chunk_bytes / f->samples_per_chunk;

	return model_form_memory(f->decoded, f->form_size > 0 ? f->form_size : MODEL_FORM_TIMES * stored);
}

double forms_cover(const struct job_figures *f, double bytes)
{
	return model_form_cover(bytes, forms_all_bytes(f));
}

static double out_of_form_s(const struct job_figures *f)
{
	return f->form_s > 0 ? f->form_s : MODEL_FORM_PART * f->fresh_s;
}

static double forms_hit(const struct job_figures *f, double bytes)
{
	return forms_cover(f, bytes) * (f->form_serve >= 0 ? f->form_serve : 1);
}

double forms_daemon_cpu_s(const struct tuner_job *job, const struct job_figures *f, uint64_t bytes)
{
	double form_s = out_of_form_s(f), to = (double)bytes, then, now;

	if (!forms_known(f))
		return f->daemon_cpu_s;
	/* Forms of an earlier job stay in memory as long as this knob keeps its value. */
	if (bytes == job->in_force.value[TUNER_FORM_BYTES] && f->form_bytes > to)
		to = f->form_bytes;
	then = model_form_cpu(f->fresh_s, form_s, forms_hit(f, to));
	now = model_form_cpu(f->fresh_s, form_s, f->form_hit > 0 ? f->form_hit : 0);
	return fmax(f->daemon_cpu_s + then - now, LEAST * f->daemon_cpu_s);
}

uint64_t forms_target(const struct tuner_job *job, const struct job_figures *f, double goal)
{
	uint64_t now = job->in_force.value[TUNER_FORM_BYTES];
	double want;

	if (!forms_known(f) || !(f->form_room > 0) || goal >= f->demand * AS_GOOD)
		return now;
	want = floor(fmin(forms_all_bytes(f), f->form_room) / MIB) * MIB;
	return want > (double)now * STEP ? (uint64_t)want : now;
}

bool forms_fill(const struct job_figures *f, uint64_t bytes)
{
	return forms_known(f) && !(f->form_hit >= FILLED * forms_hit(f, (double)bytes));
}

uint64_t forms_fill_ns(const struct job_figures *f)
{
	double epochs_s = f->decoded > 0 && f->rate > 0 ? FILL_EPOCHS * f->decoded / f->rate : 0;

	return (uint64_t)(fmin(fmax(epochs_s, FILL_MIN_S), FILL_MAX_S) * (double)SECOND_NS);
}

/* Either of two measurements is enough. The CPU time of all decoding includes effects that nobody foresaw,
 * but neighbours inflate it, in some seconds more than in others. The decoders' own figures are means over
 * the job's life. */
bool forms_save(const struct knob_change *c, const struct job_figures *after, double part)
{
	double promised = c->cpu_before - c->cpu_expected, all = c->cpu_before - after->daemon_cpu_s;
	double own = after->form_hit * (after->fresh_s - after->form_s);

	return fmax(all, own) >= part * promised;
}
