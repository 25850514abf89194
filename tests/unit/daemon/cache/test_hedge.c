/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "load/hedge.h"

static const double minimum_s = (double)HEDGE_MIN_NS / 1e9;

static double after_s(double answer_s, double storage_s)
{
	return (double)hedge_after_ns(answer_s, storage_s) / 1e9;
}

static void what_is_not_known_is_not_hedged(void **state)
{
	assert_true(hedge_after_ns(NAN, 0.1) == UINT64_MAX);
	assert_true(hedge_after_ns(0.1, NAN) == UINT64_MAX);
	assert_true(hedge_after_ns(1e300, 0.1) == UINT64_MAX);
	assert_true(hedge_after_ns(INFINITY, 0.1) == UINT64_MAX);
}

static void an_owner_may_read_it_first(void **state)
{
	for (double answer_s = 1e-5; answer_s < 10; answer_s *= 1.7)
		for (double storage_s = 1e-5; storage_s < 10; storage_s *= 1.7) {
			double s = after_s(answer_s, storage_s);

			assert_true(s >= minimum_s);
			assert_true(s >= 1.999 * answer_s);
			assert_true(s >= 0.999 * (answer_s + 3 * storage_s));
			assert_true(s <= 1.001 * fmax(minimum_s, 2 * answer_s + 3 * storage_s));
		}
}

static void answers_pay_for_it(void **state)
{
	struct hedge_account a = {0};
	uint32_t n = 0;

	for (; hedge_may(&a); n++)
		hedge_spend(&a);
	assert_int_equal(n, HEDGE_FIRST);
	for (uint32_t i = 0; i + 1 < HEDGE_PRICE; i++)
		hedge_answered(&a);
	assert_false(hedge_may(&a));
	hedge_answered(&a);
	assert_true(hedge_may(&a));
	hedge_spend(&a);
	assert_false(hedge_may(&a));
}

static void little_can_be_saved_up(void **state)
{
	struct hedge_account a = {0};
	uint32_t n = 0;

	for (int i = 0; i < 100000; i++)
		hedge_answered(&a);
	for (; hedge_may(&a); n++)
		hedge_spend(&a);
	assert_int_equal(n, HEDGE_SAVED);
}

/* Whatever comes in whatever order. */
static void it_is_a_small_part(void **state)
{
	struct hedge_account a = {0};
	uint64_t n_answers = 0, n_hedged = 0, x = 12345;

	for (int i = 0; i < 200000; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (x >> 62 == 0 && hedge_may(&a)) {
			hedge_spend(&a);
			n_hedged++;
		} else {
			hedge_answered(&a);
			n_answers++;
		}
		assert_true(n_hedged <= HEDGE_FIRST + n_answers / HEDGE_PRICE);
	}
	assert_true(n_hedged > 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_not_known_is_not_hedged),
	    cmocka_unit_test(an_owner_may_read_it_first),
	    cmocka_unit_test(answers_pay_for_it),
	    cmocka_unit_test(little_can_be_saved_up),
	    cmocka_unit_test(it_is_a_small_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
