/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/tuner/state.h"

#define MAX 6

static const struct {
	const char *what;
	double total;
	size_t n;
	struct claim claims[MAX];
	double given[MAX];
} table[] = {
    {"alone: what it wants", 100, 1, {{.want = 60}}, {60}},
    {"alone: what there is", 100, 1, {{.want = 300}}, {100}},
    {"enough for all", 100, 2, {{.want = 30}, {.want = 70}}, {30, 70}},
    {"equally, where nobody gains", 100, 2, {{.want = 90}, {.want = 90}}, {50, 50}},
    {"what one does not want, the other gets",
     100,
     2,
     {{.want = 10, .gain = 0}, {.want = 200, .gain = 1}},
     {10, 90}},
    {"the rest goes to who gains more per unit",
     90,
     3,
     {{.want = 10}, {.want = 60, .gain = 0.1}, {.want = 60, .gain = 0.5}},
     {10, 30, 50}},
    {"a floor above an equal share", 100, 2, {{.floor = 80, .want = 80}, {.want = 90, .gain = 1}}, {80, 20}},
    {"floors do not fit: in proportion",
     100,
     2,
     {{.floor = 150, .want = 150}, {.floor = 50, .want = 90}},
     {75, 25}},
    {"nothing to share", 0, 2, {{.want = 5, .gain = 1}, {.want = 5}}, {0, 0}},
};

TEST(claims_are_shared_as_in_the_table)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct claim claims[MAX];

		for (size_t k = 0; k < table[i].n; k++)
			claims[k] = table[i].claims[k];
		share_out(claims, table[i].n, table[i].total);
		for (size_t k = 0; k < table[i].n; k++)
			if (fabs(claims[k].given - table[i].given[k]) > 1e-6)
				fail_msg("%s: claim %zu got %g, not %g", table[i].what, k, claims[k].given,
					 table[i].given[k]);
	}
}

static double random_to(unsigned int *seed, double max)
{
	return max * rand_r(seed) / RAND_MAX;
}

/* For any claims, the sum never exceeds the space, and no job gets more than it wants. No job gets less than
 * the smaller of its want and an equal share (as long as floors leave one). */
TEST(any_claims_are_shared_fairly)
{
	unsigned int seed = 1;

	for (int round = 0; round < 20000; round++) {
		struct claim claims[MAX];
		size_t n = 1 + (size_t)rand_r(&seed) % MAX;
		double total = random_to(&seed, 1000), sum = 0;
		bool floors = rand_r(&seed) % 2;

		for (size_t k = 0; k < n; k++)
			claims[k] = (struct claim){.floor = floors ? random_to(&seed, 200) : 0,
						   .want = random_to(&seed, 800),
						   .gain = rand_r(&seed) % 2 ? random_to(&seed, 3) : 0};
		share_out(claims, n, total);
		for (size_t k = 0; k < n; k++) {
			sum += claims[k].given;
			assert_true(claims[k].given >= 0 && claims[k].given <= claims[k].want + 1e-6);
			if (!floors)
				assert_true(claims[k].given >=
					    fmin(claims[k].want, total / (double)n) - 1e-6);
		}
		assert_true(sum <= total * (1 + 1e-9));
	}
}
