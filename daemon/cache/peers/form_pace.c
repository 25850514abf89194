/* SPDX-License-Identifier: Apache-2.0 */
#include "form_pace.h"

#include <math.h>

#include "lib/clock.h"

/* The gain is to be clear: what is measured is never exact, and taking forms in costs CPU time of its own. */
#define GAIN 1.5
/* One batch of so many asks though it does not look worth it: links and jobs change. */
#define PROBE_UNKNOWN 8
#define PROBE_NO      64
/* As long as fewer were asked for, nothing is known. */
#define ASKED_MIN 64
#define FOUND_MIN 0.05
#define BYTES_MIN (double)(4 << 20)
/* Beyond that, the past is halved. */
#define BYTES_KEPT   (double)(256 << 20)
#define ASKED_KEPT   4096
#define PAUSE_MIN_NS NS_PER_S
#define PAUSE_MAX_NS (30 * NS_PER_S)

double form_costs_saved_s(const struct form_costs *costs)
{
	return (costs->decode_s - costs->form_s) * costs->served / costs->workers;
}

double form_pace_link_s(const struct form_pace *p, const struct form_costs *costs)
{
	if (p->bytes < BYTES_MIN || !(p->busy_s > 0))
		return NAN;
	return costs->form_bytes * p->busy_s / p->bytes;
}

enum form_reason form_pace_reason(const struct form_pace *p, enum form_travel travel,
				  const struct form_costs *costs, uint64_t now_ns)
{
	double saved_s = form_costs_saved_s(costs), link_s = form_pace_link_s(p, costs);

	if (travel == FORM_TRAVEL_OFF)
		return FORM_REASON_OFF;
	if (now_ns < p->until_ns)
		return FORM_REASON_PAUSE;
	if (travel == FORM_TRAVEL_ALWAYS)
		return FORM_REASON_ALWAYS;
	if (p->n_asked >= ASKED_MIN && p->n_found < FOUND_MIN * p->n_asked)
		return FORM_REASON_NOT_THERE;
	if (isnan(saved_s) || isnan(link_s))
		return FORM_REASON_UNKNOWN;
	return link_s * GAIN < saved_s ? FORM_REASON_LINK : FORM_REASON_CPU;
}

bool form_pace_asks(struct form_pace *p, enum form_travel travel, const struct form_costs *costs,
		    uint64_t now_ns)
{
	uint64_t n = p->n_batches++;

	switch (form_pace_reason(p, travel, costs, now_ns)) {
	case FORM_REASON_OFF:
	case FORM_REASON_PAUSE: return false;
	case FORM_REASON_ALWAYS:
	case FORM_REASON_LINK: return true;
	case FORM_REASON_UNKNOWN: return n % PROBE_UNKNOWN == 0;
	case FORM_REASON_CPU:
	case FORM_REASON_NOT_THERE: return n % PROBE_NO == 0;
	}
	return false;
}

static void take_time(struct form_pace *p, uint64_t now_ns)
{
	if (p->n_under_way > 0 && now_ns > p->since_ns)
		p->busy_s += (double)(now_ns - p->since_ns) / 1e9;
	p->since_ns = now_ns;
}

void form_pace_begin(struct form_pace *p, uint64_t now_ns)
{
	take_time(p, now_ns);
	p->n_under_way++;
}

static void forget_some(struct form_pace *p)
{
	if (p->bytes > BYTES_KEPT) {
		p->bytes /= 2;
		p->busy_s /= 2;
	}
	if (p->n_asked > ASKED_KEPT) {
		p->n_asked /= 2;
		p->n_found /= 2;
	}
}

void form_pace_end(struct form_pace *p, uint64_t bytes, uint32_t n_asked, uint32_t n_found, uint64_t now_ns)
{
	take_time(p, now_ns);
	p->n_under_way--;
	p->bytes += (double)bytes;
	p->n_asked += n_asked;
	p->n_found += n_found;
	if (n_found > 0)
		p->pause_ns = 0;
	forget_some(p);
}

void form_pace_fail(struct form_pace *p, uint64_t now_ns)
{
	/* Several that were under way together fail once. */
	if (now_ns < p->until_ns)
		return;
	p->pause_ns = p->pause_ns ? 2 * p->pause_ns : PAUSE_MIN_NS;
	if (p->pause_ns > PAUSE_MAX_NS)
		p->pause_ns = PAUSE_MAX_NS;
	p->until_ns = now_ns + p->pause_ns;
}
