/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between this node's memory and storage there may be a third tier: what other nodes of the job hold, or read
 * for it. Where there is none, or nothing came from there yet, each of these is what memory and storage make
 * it.
 */
#include "state.h"

#include <math.h>

/* A slow one takes this many times the mean, if the p95 is not known. */
#define TAIL 1.5
/* The most by which a source that is waited for less is expected to give more. */
#define SPARE_TRUST 16.0
/* Times that long are as good. */
#define AS_GOOD 1.02

bool peers_known(const struct figures *f)
{
	return f->nodes > 1 && f->peer_bandwidth > 0 && f->peer_bytes > 0 && f->peer_latency_s > 0;
}

double tiers_nodes(const struct figures *f)
{
	return peers_known(f) ? f->nodes : 1;
}

struct model_tiers tiers_at(const struct figures *f, double cached_ratio)
{
	return model_tiers_of(cached_ratio, tiers_nodes(f), f->served >= 0 ? f->served : 1);
}

double tiers_in_flight(const struct figures *f)
{
	double sum, neither;

	if (!peers_known(f) || isnan(f->peers_in_flight) || isnan(f->asking))
		return f->in_flight;
	if (isnan(f->in_flight) || isnan(f->reading) || f->reading <= 0)
		return f->peers_in_flight;
	/* Over the time in which there is one or the other, which do not wait for each other. */
	sum = f->in_flight * f->reading + f->peers_in_flight * f->asking;
	neither = (1 - f->reading) * (1 - f->asking);
	return neither < 1 ? sum / (1 - neither) : 0;
}

static struct model_source peers_at(const struct figures *f, double bytes_per_s)
{
	return (struct model_source){.bytes = f->peer_bytes,
				     .bytes_per_s = bytes_per_s,
				     .latency_s = f->peer_latency_s,
				     .latency_p95_s = f->peer_latency_p95_s > 0 ? f->peer_latency_p95_s
										: f->peer_latency_s * TAIL};
}

static struct model_source storage_at(const struct figures *f, double bytes_per_s)
{
	return (struct model_source){.bytes = f->chunk_bytes,
				     .bytes_per_s = bytes_per_s,
				     .latency_s = f->latency_s,
				     .latency_p95_s =
					 f->latency_p95_s > 0 ? f->latency_p95_s : f->latency_s * TAIL};
}

double tiers_visit_s(const struct figures *f, const struct model_tiers *tiers, double storage_bytes_per_s,
		     double peer_bytes_per_s)
{
	struct model_source peers = peers_at(f, peer_bytes_per_s),
			    storage = storage_at(f, storage_bytes_per_s);

	return model_visit_s(tiers, &peers, &storage);
}

double tiers_cache_needed(const struct figures *f, double storage_bytes_per_s, double peer_bytes_per_s,
			  double rate, double most)
{
	struct model_source peers = peers_at(f, peer_bytes_per_s),
			    storage = storage_at(f, storage_bytes_per_s);
	double n = tiers_nodes(f), visit_s = f->samples_per_chunk / n / rate;
	struct model_tiers all;

	if (!(n > 1))
		return model_cache_needed(f->chunk_bytes / f->samples_per_chunk, INFINITY,
					  storage_bytes_per_s, rate);
	/* All nodes walk one order: of each chunk a node takes its ranks' part. */
	all = tiers_at(f, most);
	return model_tiers_cache_needed(n, f->served >= 0 ? f->served : 1, &peers, &storage,
					fmax(visit_s, model_visit_s(&all, &peers, &storage) * AS_GOOD));
}

double tiers_slow_s(const struct figures *f, const struct model_tiers *tiers)
{
	struct model_source peers = peers_at(f, NAN), storage = storage_at(f, NAN);
	double slow_s;

	if (!(tiers->peers > 0))
		return storage.latency_p95_s;
	slow_s = model_tiers_latency_s(tiers, &peers, &storage);
	return slow_s > 0 ? slow_s : peers.latency_p95_s; /* nothing was read of late */
}

double tiers_own_hits(const struct figures *f, double cached_ratio)
{
	return peers_known(f) ? fmin(cached_ratio, 1 / f->nodes) : cached_ratio;
}

enum tuner_tier tiers_of_bytes(const struct figures *f, double cached_ratio)
{
	struct model_tiers tiers = tiers_at(f, cached_ratio);

	if (!(tiers.peers > 0))
		return f->bandwidth > 0 && tiers.storage > 0 ? TUNER_TIER_STORAGE : TUNER_TIER_NONE;
	/* Beside a slower source another gives no more than it is asked for, so that bandwidth does not tell
	 * which one it is. The slower one has most of what is under way. */
	return tiers.storage * f->latency_s > tiers.peers * f->peer_latency_s ? TUNER_TIER_STORAGE
									      : TUNER_TIER_NODES;
}

double tiers_spare(const struct figures *f, enum tuner_tier tier)
{
	double own = tier == TUNER_TIER_NODES ? f->peers_in_flight : f->in_flight;

	if (!peers_known(f) || tiers_of_bytes(f, f->hit) == tier || !(own > 0))
		return 1;
	return fmin(fmax(tiers_in_flight(f) / own, 1), SPARE_TRUST);
}

enum tuner_tier tiers_of_time(const struct figures *f, double cached_ratio)
{
	struct model_tiers tiers = tiers_at(f, cached_ratio);
	struct model_source peers = peers_at(f, NAN), storage = storage_at(f, NAN);
	double slow_s = tiers_slow_s(f, &tiers);

	if (!(tiers.peers > 0))
		return f->latency_s > 0 && tiers.storage > 0 ? TUNER_TIER_STORAGE : TUNER_TIER_NONE;
	if (!(tiers.storage > 0) || !(storage.latency_p95_s > 0))
		return TUNER_TIER_NODES;
	/* The slower of the two, if enough of them come from there to be felt. */
	if (storage.latency_p95_s >= peers.latency_p95_s)
		return slow_s > peers.latency_p95_s ? TUNER_TIER_STORAGE : TUNER_TIER_NODES;
	return slow_s > storage.latency_p95_s ? TUNER_TIER_NODES : TUNER_TIER_STORAGE;
}
