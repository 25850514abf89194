/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/sim.h"

#include <math.h>

#include "lib/hash.h"

double sim_uniform(struct sim_random *r, double low, double high)
{
	return low + (high - low) * ((double)(splitmix64(&r->state) >> 11) * 0x1p-53);
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
