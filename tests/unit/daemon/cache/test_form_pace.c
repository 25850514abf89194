/* SPDX-License-Identifier: Apache-2.0 */
/* When forms are asked of other nodes: by what the link and the CPU take, and never on a guess. */
#include "support.h"

#include <math.h>

#include "lib/clock.h"
#include "peers/form_pace.h"

#define MIB (UINT64_C(1) << 20)

/* A form of 1 MiB, which takes a worker 10 ms less than decoding. */
static const struct form_costs costs = {
    .decode_s = 0.011, .form_s = 0.001, .served = 1, .form_bytes = (double)MIB, .workers = 1};

/* So many bytes a second came, over one after the other. */
static void feed(struct form_pace *p, uint64_t *now_ns, double bytes_per_s, uint32_t n_found)
{
	for (int i = 0; i < 100; i++) {
		form_pace_begin(p, *now_ns);
		*now_ns += (uint64_t)((double)MIB / bytes_per_s * 1e9);
		form_pace_end(p, MIB, 1, n_found, *now_ns);
		*now_ns += NS_PER_S; /* nothing is under way */
	}
}

static uint32_t count_asks(struct form_pace *p, enum form_travel travel, const struct form_costs *c,
			   uint64_t now_ns)
{
	uint32_t n = 0;

	for (int i = 0; i < 640; i++)
		n += form_pace_asks(p, travel, c, now_ns);
	return n;
}

static void what_is_cheaper(void **state)
{
	struct form_costs many = costs, few = costs;
	struct form_pace p = {.bytes = 0};
	uint64_t now_ns = 1;

	(void)state;
	feed(&p, &now_ns, 200.0 * MIB, 1); /* 5 ms a form */
	assert_true(fabs(form_pace_link_s(&p, &costs) - 0.005) < 1e-6);
	assert_int_equal(count_asks(&p, FORM_TRAVEL_AUTO, &costs, now_ns), 640);
	assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_AUTO, &costs, now_ns), FORM_REASON_LINK);
	/* Four workers decode as much as the link brings; half the forms are of no use. */
	many.workers = 4;
	assert_int_equal(count_asks(&p, FORM_TRAVEL_AUTO, &many, now_ns), 10);
	assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_AUTO, &many, now_ns), FORM_REASON_CPU);
	few.served = 0.5;
	assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_AUTO, &few, now_ns), FORM_REASON_CPU);
	assert_int_equal(count_asks(&p, FORM_TRAVEL_ALWAYS, &many, now_ns), 640);
	assert_int_equal(count_asks(&p, FORM_TRAVEL_OFF, &costs, now_ns), 0);
}

static void what_is_not_measured_is_probed(void **state)
{
	const struct form_costs none = {
	    .decode_s = NAN, .form_s = NAN, .served = NAN, .form_bytes = NAN, .workers = 1};
	struct form_pace p = {.bytes = 0};
	uint64_t now_ns = 1;

	(void)state;
	assert_true(isnan(form_pace_link_s(&p, &costs)));
	assert_int_equal(count_asks(&p, FORM_TRAVEL_AUTO, &costs, now_ns), 80);
	assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_AUTO, &costs, now_ns), FORM_REASON_UNKNOWN);
	feed(&p, &now_ns, 200.0 * MIB, 1);
	assert_int_equal(count_asks(&p, FORM_TRAVEL_AUTO, &none, now_ns), 80);
	assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_AUTO, &none, now_ns), FORM_REASON_UNKNOWN);
}

/* Several at once share the link's time. */
static void at_once(void **state)
{
	struct form_pace p = {.bytes = 0};

	(void)state;
	for (uint64_t i = 0; i < 8; i++)
		form_pace_begin(&p, 1000);
	for (uint64_t i = 1; i <= 8; i++)
		form_pace_end(&p, MIB, 1, 1, 1000 + i * NS_PER_S / 100);
	assert_true(fabs(form_pace_link_s(&p, &costs) - 0.01) < 1e-6);
	assert_int_equal(p.n_under_way, 0);
}

static void others_have_none(void **state)
{
	struct form_pace p = {.bytes = 0};
	uint64_t now_ns = 1;

	(void)state;
	feed(&p, &now_ns, 200.0 * MIB, 0);
	assert_int_equal(count_asks(&p, FORM_TRAVEL_AUTO, &costs, now_ns), 10);
	assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_AUTO, &costs, now_ns), FORM_REASON_NOT_THERE);
}

/* For longer each time, and as ever after one that came. */
static void failures_pause(void **state)
{
	struct form_pace p = {.bytes = 0};
	uint64_t now_ns = NS_PER_S, last_ns, begin_ns;

	(void)state;
	for (uint64_t s = 1; s <= 60; s = s < 30 ? (2 * s < 30 ? 2 * s : 30) : 61) {
		form_pace_fail(&p, now_ns);
		form_pace_fail(&p, now_ns); /* it was under way at the same time */
		last_ns = now_ns + s * NS_PER_S - 1;
		assert_false(form_pace_asks(&p, FORM_TRAVEL_ALWAYS, &costs, last_ns));
		assert_int_equal(form_pace_reason(&p, FORM_TRAVEL_ALWAYS, &costs, last_ns),
				 FORM_REASON_PAUSE);
		now_ns += s * NS_PER_S;
		assert_true(form_pace_asks(&p, FORM_TRAVEL_ALWAYS, &costs, now_ns));
	}
	feed(&p, &now_ns, 200.0 * MIB, 1);
	begin_ns = now_ns;
	form_pace_fail(&p, now_ns);
	assert_int_equal(p.until_ns, begin_ns + NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_cheaper), cmocka_unit_test(what_is_not_measured_is_probed),
	    cmocka_unit_test(at_once),         cmocka_unit_test(others_have_none),
	    cmocka_unit_test(failures_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
