/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_pace.h"

#define ENOUGH 4   /* minimum number of chunks before a mean counts */
#define PART   8   /* 1/PART is the weight of each further chunk in the mean */
#define WORTH  1.2 /* minimum ratio: a change must justify its writes, and must not be chance */

void stage_mean_add(struct stage_mean *m, uint64_t ns, uint64_t bytes)
{
	double value = bytes ? (double)ns / (double)bytes : 0;

	if (!bytes)
		return;
	m->n += m->n < PART;
	m->ns_per_byte += (value - m->ns_per_byte) / m->n;
}

void stage_best_add(struct stage_mean *m, uint64_t ns, uint64_t bytes)
{
	double value = bytes ? (double)ns / (double)bytes : 0;

	if (!bytes)
		return;
	if (m->n == 0 || value < m->ns_per_byte)
		m->ns_per_byte = value;
	m->n++;
}

bool stage_pace_decide(struct stage_pace *p, const struct stage_mean *disk)
{
	const struct stage_mean *staged = p->staged.n >= ENOUGH ? &p->staged : disk;
	bool was_off = p->is_off;

	if (p->storage.n < ENOUGH || staged->n < ENOUGH)
		return false;
	if (was_off)
		p->is_off = p->storage.ns_per_byte < WORTH * staged->ns_per_byte;
	else
		p->is_off = p->storage.ns_per_byte * WORTH < staged->ns_per_byte ||
			    (p->staged.n < ENOUGH && p->storage.ns_per_byte < WORTH * staged->ns_per_byte);
	return p->is_off != was_off;
}
