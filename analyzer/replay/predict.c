/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"
#include "lib/cleanup.h"
#include "native.h"
#include "split.h"
#include "window.h"

#define LOSS_MAX 0.02 /* of all records; with more, time that was not seen would count as none */

const char *what_if_bound(double fetch_stall, double prep_stall)
{
	if (fetch_stall + prep_stall < ANALYSIS_STALL_THRESHOLD)
		return analysis_verdict_name(ANALYSIS_DEVICE_BOUND);
	return analysis_verdict_name(fetch_stall >= prep_stall ? ANALYSIS_FETCH_BOUND : ANALYSIS_PREP_BOUND);
}

void predictions_free(struct predictions *predictions)
{
	if (!predictions)
		return;
	for (size_t i = 0; i < WHAT_IF_AXES; i++)
		free(predictions->curves[i].points);
	free(predictions->answer);
	free(predictions);
}

static double lost_ratio(const struct analysis_input *input)
{
	double lost = 0;

	for (size_t i = 0; i < input->n_losses; i++)
		lost += (double)input->losses[i].n_events;
	return lost > 0 ? lost / (lost + (double)input->n_events) : 0;
}

/* The factor on images that dieseld decodes, of which this share comes out of forms (NAN: none), which takes
 * form_part of the CPU time. */
static double native_speedup(double speedup, double forms_ratio, double form_part)
{
	return isnan(forms_ratio) ? speedup : speedup / model_form_cpu(1, form_part, forms_ratio);
}

/* Runs the scenario with what dieseld leaves of preparing; the interval is that of the part and the factors,
 * too. */
static int native_run(struct forecast *forecast, const struct estimate *part, double forms_ratio,
		      const struct model_scenario *scenario, struct forecast_point *ret_point)
{
	struct model_scenario least = *scenario, most = *scenario, native = *scenario;
	struct forecast_point point, slow, fast;
	int r;

	native.prep_cost *=
	    native_cost(part->value, native_speedup(NATIVE_SPEEDUP, forms_ratio, MODEL_FORM_PART));
	least.prep_cost *=
	    native_cost(part->low, native_speedup(NATIVE_SPEEDUP_LOW, forms_ratio, MODEL_FORM_PART_HIGH));
	most.prep_cost *=
	    native_cost(part->high, native_speedup(NATIVE_SPEEDUP_HIGH, forms_ratio, MODEL_FORM_PART_LOW));
	r = forecast_run(forecast, &native, &point);
	if (r == 0)
		r = forecast_run(forecast, &least, &slow);
	if (r == 0)
		r = forecast_run(forecast, &most, &fast);
	if (r < 0)
		return r;
	point.speedup.low = fmin(point.speedup.low, slow.speedup.low);
	point.speedup.high = fmax(point.speedup.high, fast.speedup.high);
	*ret_point = point;
	return 0;
}

/* dieseld uses all cores. */
static uint32_t native_workers(const struct forecast *forecast)
{
	return (uint32_t)fmax(forecast->job.loader.n_workers, floor(forecast->job.cores));
}

int predict_native(struct forecast *forecast, struct predictions *predictions)
{
	struct native_prediction *native = &predictions->native;
	struct model_scenario scenario = model_scenario_recorded();
	struct forecast_point point;
	int r;

	native->speedup = (struct estimate){NAN, NAN, NAN};
	native->fetch_stall = native->prep_stall = native->device = NAN;
	if (isnan(native->part.value))
		return 0;
	scenario.n_workers = native_workers(forecast);
	r = native_run(forecast, &native->part, NAN, &scenario, &point);
	if (r < 0)
		return r;
	native->speedup = point.speedup;
	native->fetch_stall = point.fetch_ratio;
	native->prep_stall = point.prep_ratio;
	native->device = point.device_ratio;
	return 0;
}

/* native: the part that dieseld does, or NULL. */
static int answer_point(struct forecast *forecast, const struct model_scenario *scenario,
			const struct estimate *native, double forms_ratio, struct what_if_answer *answer)
{
	struct model_scenario recorded = model_scenario_recorded();
	struct forecast_point point, before;
	double per_s;
	int r = forecast_run(forecast, &recorded, &before);

	if (r == 0)
		r = native ? native_run(forecast, native, forms_ratio, scenario, &point)
			   : forecast_run(forecast, scenario, &point);
	if (r < 0)
		return r;
	per_s = (double)forecast->n / forecast->recorded_ns * (double)NS_PER_S;
	*answer = (struct what_if_answer){
	    .speedup = point.speedup,
	    .steps_per_s = {point.speedup.value * per_s, point.speedup.low * per_s,
			    point.speedup.high * per_s},
	    .fetch_stall = point.fetch_ratio,
	    .prep_stall = point.prep_ratio,
	    .device = point.device_ratio,
	    .cached_ratio =
		isnan(scenario->cached_ratio) ? model_cached_ratio(&forecast->job) : scenario->cached_ratio,
	    .recorded_fetch_stall = before.fetch_ratio,
	    .recorded_prep_stall = before.prep_ratio,
	    .recorded_device = before.device_ratio,
	};
	return 0;
}

int predict_answer(struct forecast *forecast, const struct what_if_question *question,
		   struct predictions *predictions)
{
	struct model_scenario scenario = model_scenario_recorded();
	bool native = question->native && !isnan(predictions->native.part.value);
	double cached_ratio =
	    isnan(question->cache_ratio) ? model_cached_ratio(&forecast->job) : question->cache_ratio;

	scenario.cached_ratio = question->cache_ratio;
	if (native)
		scenario.n_workers = native_workers(forecast);
	if (!isnan(question->n_workers))
		scenario.n_workers = (uint32_t)question->n_workers;
	if (!isnan(question->storage_factor))
		scenario.storage_speed = question->storage_factor;
	if (!isnan(question->storage_bytes_per_s)) {
		/* Nothing was read from storage: how fast it is makes no difference. */
		if (predictions->storage_bytes_per_s.value > 0)
			scenario.storage_speed =
			    question->storage_bytes_per_s / predictions->storage_bytes_per_s.value;
	}
	if (!isnan(question->device_factor))
		scenario.device_speed = question->device_factor;
	if (!isnan(question->sample_factor))
		scenario.sample_size = question->sample_factor;
	if (!isnan(question->n_nodes))
		scenario.cached_ratio = fmin(question->n_nodes * cached_ratio, 1);
	predictions->answer = calloc(1, sizeof(*predictions->answer));
	return predictions->answer
		   ? answer_point(forecast, &scenario, native ? &predictions->native.part : NULL,
				  question->forms_ratio, predictions->answer)
		   : -ENOMEM;
}

static int predict(struct forecast *forecast, const struct study *study, struct predictions *predictions)
{
	int r = predict_rates(forecast, study->service, predictions);

	predictions->recorded_step_s = forecast->recorded_ns / (double)forecast->n / (double)NS_PER_S;
	predictions->replayed_step_s = forecast->replayed_ns / (double)forecast->n / (double)NS_PER_S;
	if (r == 0)
		r = predict_curves(forecast, predictions);
	if (r == 0)
		r = predict_needed(forecast, predictions);
	if (r == 0)
		r = predict_persistent(forecast, predictions);
	if (r == 0)
		r = predict_native(forecast, predictions);
	if (r == 0 && study->input->what_if)
		r = predict_answer(forecast, study->input->what_if, predictions);
	return r;
}

int predictions_find(const struct study *study, size_t n_warmup, const struct profile *profile,
		     struct predictions **ret_predictions, const char **ret_why)
{
	const char *why = study->service->why_not;
	struct predictions *predictions;
	struct forecast forecast;
	int r;

	if (!why && study->run->n_steps < n_warmup + ANALYSIS_STEPS_MIN)
		why = "too few steps";
	if (!why && lost_ratio(study->input) > LOSS_MAX)
		why = "too many records were lost";
	if (why) {
		*ret_predictions = NULL;
		*ret_why = why;
		return 0;
	}
	predictions = calloc(1, sizeof(*predictions));
	if (!predictions)
		return -ENOMEM;
	predictions->native.part = native_part(profile);
	r = forecast_init(&forecast, study->service, study->run->steps, n_warmup);
	if (r == 0) {
		if (forecast.error_ratio > SPLIT_TOLERANCE)
			why = "the replay does not reproduce the recording";
		else
			r = predict(&forecast, study, predictions);
		forecast_free(&forecast);
	}
	if (r == -EINVAL)
		why = "records contradict each other";
	if (r == -ENOMEM) {
		predictions_free(predictions);
		return r;
	}
	*ret_predictions = r == 0 && !why ? steal_pointer(predictions) : NULL;
	*ret_why = why;
	predictions_free(predictions);
	return 0;
}
