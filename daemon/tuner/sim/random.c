/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/sim.h"

#include <math.h>

static uint64_t next(struct sim_random *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

double sim_uniform(struct sim_random *r, double low, double high)
{
	return low + (high - low) * ((double)(next(r) >> 11) * 0x1p-53);
}

double sim_log_uniform(struct sim_random *r, double low, double high)
{
	return exp(sim_uniform(r, log(low), log(high)));
}

double sim_normal(struct sim_random *r)
{
	double u = sim_uniform(r, 0x1p-60, 1), v = sim_uniform(r, 0, 1);

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}
