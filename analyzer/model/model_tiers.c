/* SPDX-License-Identifier: Apache-2.0 */
/* Three tiers: this node's memory, the other nodes of the job, storage. */
#include "analyzer/model.h"

#define HALVINGS 50 /* of a search: to a byte of any dataset, to a ns of any wait */

#define QUANTILE   0.95
#define QUANTILE_Z 1.6448536269514722 /* of the normal distribution */

double model_own_reads(double cached_ratio, double n_nodes)
{
	double missing = 1 - cached_ratio;

	if (!(n_nodes > 1) || !(missing > 0))
		return 1;
	return (1 - fmin(1, n_nodes * cached_ratio)) / n_nodes / missing;
}

struct model_tiers model_tiers_of(double cached_ratio, double n_nodes, double served)
{
	double missing = 1 - cached_ratio;
	double peers = n_nodes > 1 ? missing * (1 - model_own_reads(cached_ratio, n_nodes)) * served : 0;

	return (struct model_tiers){
	    .memory = cached_ratio, .peers = fmax(peers, 0), .storage = missing - fmax(peers, 0)};
}

/* Seconds for a share of what a source gives; nothing of it takes nothing, however slow it is. */
static double share_s(double share, const struct model_source *source)
{
	return share > 0 ? source->bytes / source->bytes_per_s * share : 0;
}

double model_visit_s(const struct model_tiers *tiers, const struct model_source *peers,
		     const struct model_source *storage)
{
	double slow = share_s(tiers->storage, storage), quick = share_s(tiers->peers, peers);

	return isnan(slow) || isnan(quick) ? NAN : fmax(slow, quick);
}

double model_tiers_cache_needed(double n_nodes, double served, const struct model_source *peers,
				const struct model_source *storage, double visit_s)
{
	double low = 0, high = 1;

	for (int i = 0; i < HALVINGS; i++) {
		double x = i ? (low + high) / 2 : 0; /* first of all: none */
		struct model_tiers tiers = model_tiers_of(x, n_nodes, served);
		double takes_s = model_visit_s(&tiers, peers, storage);

		if (isnan(takes_s))
			return NAN;
		if (takes_s <= visit_s)
			high = x;
		else
			low = x;
		if (high <= low)
			break;
	}
	return high;
}

/* A source's times, taken to be distributed log-normally. */
struct spread {
	double middle, width; /* of the logarithm */
};

static struct spread spread_of(const struct model_source *source)
{
	double ratio =
	    source->latency_p95_s > source->latency_s ? log(source->latency_p95_s / source->latency_s) : 0;
	/* mean = e^(m + w^2 / 2), p95 = e^(m + z w): of the two solutions, the narrower one. */
	double width = QUANTILE_Z - sqrt(fmax(QUANTILE_Z * QUANTILE_Z - 2 * ratio, 0));

	return (struct spread){.middle = log(source->latency_s) - width * width / 2, .width = width};
}

/* The part that takes longer. */
static double slower(const struct spread *spread, double seconds)
{
	double away = log(seconds) - spread->middle;

	return spread->width > 0 ? erfc(away / spread->width * M_SQRT1_2) / 2 : away < 0;
}

double model_tiers_latency_s(const struct model_tiers *tiers, const struct model_source *peers,
			     const struct model_source *storage)
{
	double missing = tiers->peers + tiers->storage, part, mean, low, high;
	struct spread near, far;

	if (!(tiers->peers > 0) || !(missing > 0))
		return fmax(storage->latency_p95_s, storage->latency_s);
	if (!(tiers->storage > 0))
		return fmax(peers->latency_p95_s, peers->latency_s);
	if (!(peers->latency_s > 0) || !(storage->latency_s > 0))
		return NAN;
	near = spread_of(peers);
	far = spread_of(storage);
	part = tiers->peers / missing;
	mean = part * peers->latency_s + (1 - part) * storage->latency_s;
	low = fmin(peers->latency_s, storage->latency_s) / 2;
	high = fmax(fmax(peers->latency_s, peers->latency_p95_s),
		    fmax(storage->latency_s, storage->latency_p95_s));
	for (int i = 0; i < HALVINGS; i++) {
		double seconds = (low + high) / 2;

		if (part * slower(&near, seconds) + (1 - part) * slower(&far, seconds) > 1 - QUANTILE)
			low = seconds;
		else
			high = seconds;
	}
	return fmax(high, mean);
}
