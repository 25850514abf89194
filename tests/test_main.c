/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

/* Linked where a test program has no main() of its own. */
int main(void)
{
	return run_unit_tests(NULL, NULL);
}
