/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Includes cmocka and the headers that must come before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Defines main() of a test program that runs these tests, each of which is a cmocka_unit_test*(). */
#define UNIT_TESTS(...) UNIT_TESTS_BETWEEN(NULL, NULL, __VA_ARGS__)
/* Defines main() likewise, with a setup and a teardown of all tests together. */
#define UNIT_TESTS_BETWEEN(setup, teardown, ...)                                                             \
	int main(void)                                                                                       \
	{                                                                                                    \
		static const struct CMUnitTest tests[] = {__VA_ARGS__};                                      \
                                                                                                             \
		return cmocka_run_group_tests(tests, setup, teardown);                                       \
	}
