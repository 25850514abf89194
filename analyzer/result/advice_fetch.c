/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about waits for data that is read. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advice.h"
#include "advice_data.h"
#include "advice_plan.h"

static const struct estimate *speedup_at(const struct what_if_curve *curve, double x)
{
	static const struct estimate unknown = {NAN, NAN, NAN};

	for (size_t i = 0; i < curve->n_points; i++)
		if (curve->points[i].x == x)
			return &curve->points[i].speedup;
	return &unknown;
}

static double gain_without_fetch(const struct analysis *analysis)
{
	return advice_gain_of(advice_share(analysis, SHARE_FETCH_STALL));
}

static void cheaper_reading(struct advice_plan *plan, enum analysis_confidence confidence,
			    const struct estimate *gain)
{
	char pack[ADVICE_PACK_BYTES];

	advice_pack(plan->analysis, pack, sizeof(pack));
	advice_add(plan, gain_without_fetch(plan->analysis), confidence, gain,
		   "Make reading cheaper: move the dataset to faster storage or into memory, or serve it "
		   "with dieseld: %s",
		   pack);
}

static void on_storage(struct advice_plan *plan)
{
	const struct predictions *predictions = plan->analysis->predictions;
	double cache = predictions->cache_ratio_needed.value,
	       storage = predictions->storage_factor_needed.value;
	const struct estimate *gain = speedup_at(&predictions->curves[WHAT_IF_CACHE], 1);
	char pack[ADVICE_PACK_BYTES];

	if (advice_in_vain(gain))
		return;
	if (isnan(cache) || isnan(storage)) {
		cheaper_reading(plan, CONFIDENCE_MEDIUM, gain);
		return;
	}
	advice_pack(plan->analysis, pack, sizeof(pack));
	advice_add(plan, gain_without_fetch(plan->analysis), CONFIDENCE_MEDIUM, gain,
		   "Keep %.0f %% of the dataset in memory, or read %.1f times as fast: from faster storage, "
		   "or by dieseld: %s",
		   100 * cache, storage, pack);
}

#define READ_AHEAD_EXCESS 3 /* times as much read from storage as used: less is the price of large reads */

/* Read-ahead that nobody uses costs bandwidth: without it, storage is faster by as much. */
static void on_read_ahead(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double excess = analysis->page_cache ? page_cache_excess(analysis->page_cache) : 0;
	const struct what_if_curve *curve;
	const struct estimate *gain = NULL;

	if (excess < READ_AHEAD_EXCESS)
		return;
	curve = analysis->predictions ? &analysis->predictions->curves[WHAT_IF_STORAGE] : NULL;
	for (size_t i = curve ? curve->n_points : 0; i-- > 0 && !gain;)
		if (curve->points[i].x <= excess && curve->points[i].x > 1)
			gain = &curve->points[i].speedup;
	if (gain && advice_in_vain(gain))
		return;
	advice_add(
	    plan, gain_without_fetch(analysis), CONFIDENCE_MEDIUM, gain,
	    "Turn read-ahead off where records are read at random (lmdb.open(readahead=False), MADV_RANDOM, "
	    "POSIX_FADV_RANDOM): %.0f times as much came from storage as was used",
	    excess);
}

void advice_on_fetch(struct advice_plan *plan)
{
	const struct analysis *analysis = plan->analysis;
	double fetch = analysis_steady_ratio(analysis, SHARE_FETCH_STALL);
	bool workers = analysis->loader == LOADER_WORKERS;
	uint32_t n = analysis->workers.n_at_once;

	if (fetch < ADVICE_NOTABLE)
		return;
	on_read_ahead(plan);
	if (analysis->loader == LOADER_DIESEL) {
		if (2 * analysis->peers_ns > analysis->share_ns[SHARE_FETCH_STALL])
			advice_add(plan, gain_without_fetch(analysis), CONFIDENCE_MEDIUM, NULL,
				   "Bring chunks from the job's other nodes sooner: dieseld waits for these "
				   "and not for storage; `dieselctl cluster status` and diesel-top say for "
				   "which, and how fast its link is");
		else
			advice_add(plan, gain_without_fetch(analysis), CONFIDENCE_HIGH, NULL,
				   "Give dieseld a larger cache or a deeper prefetch: it still waits for "
				   "storage");
		return;
	}
	if (analysis->predictions) {
		on_storage(plan);
		return;
	}
	cheaper_reading(plan, analysis->method == METHOD_WALK && workers ? CONFIDENCE_LOW : CONFIDENCE_HIGH,
			NULL);
	if (workers && n && analysis->workers.fetch_ns > analysis->workers.cpu_ns)
		advice_add(
		    plan, advice_gain_of(advice_share(analysis, SHARE_FETCH_STALL) / 2), CONFIDENCE_LOW, NULL,
		    "Use %u workers instead of %u, if the storage serves several readers at once", 2 * n, n);
}
