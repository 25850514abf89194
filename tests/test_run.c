/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct CMUnitTest tests[100];
static size_t n_tests;

void add_test(struct CMUnitTest test)
{
	if (n_tests == sizeof(tests) / sizeof(tests[0]))
		abort();
	tests[n_tests++] = test;
}

int run_unit_tests(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	if (n_tests == 0)
		return 1; /* a program that tests nothing has not passed */
	return _cmocka_run_group_tests("tests", tests, n_tests, setup, teardown);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *argument);

/* Is called instead of pthread_create() in programs that ThreadSanitizer does not run. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *argument)
{
	fputs("this test starts a thread: add it to with_threads in tests/CMakeLists.txt\n", stderr);
	abort();
}
