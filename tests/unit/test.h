/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Includes cmocka and the headers that must come before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* TEST(name) { body } defines a test. Tests of a program run in the order in which they are defined. A
 * program that has no main() gets that of test_main.c. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
/* As TEST(), with functions that are called before and after it. Each may be NULL. */
#define TEST_WITH(name, setup, teardown)                                                                     \
	static void test_##name(void **state);                                                               \
	__attribute__((constructor)) static void add_test_##name(void)                                       \
	{                                                                                                    \
		add_test((struct CMUnitTest){"test_" #name, test_##name, setup, teardown, NULL});            \
	}                                                                                                    \
	static void test_##name(__attribute__((unused)) void **state)

void add_test(struct CMUnitTest test);
/* Runs all tests, with functions that are called before the first and after the last. Each may be NULL.
 * Returns the exit status: 0 if there are tests, and all passed. */
int run_unit_tests(CMFixtureFunction setup, CMFixtureFunction teardown);
