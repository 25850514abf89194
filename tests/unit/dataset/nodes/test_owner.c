/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns a chunk: shares by weight, and nothing moves but what has to. */
#include "test.h"

#include "dataset/chunk_id.h"
#include "dataset/owner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CHUNKS 20000

/* Ids of one writer: they differ in few bits. */
static struct chunk_id chunk(uint32_t i)
{
	static struct chunk_id_source source;
	struct chunk_id id;

	if (i == 0)
		chunk_id_source_init(&source, 7, 9, NULL);
	id = chunk_id_next(&source, 1000000 + i / 3);
	return id;
}

static void make_members(struct owner_member *members, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "node%zu", i);
		members[i] = (struct owner_member){.name_hash = owner_hash(name), .weight = 1 << 20};
	}
}

static void count(const struct owner_member *members, size_t n, size_t *ret)
{
	memset(ret, 0, n * sizeof(*ret));
	for (uint32_t i = 0; i < N_CHUNKS; i++) {
		struct chunk_id id = chunk(i);
		size_t owner = owner_of(members, n, &id, NULL);

		assert_true(owner < n);
		ret[owner]++;
	}
}

static void assert_share(size_t n, double share)
{
	double deviation = sqrt(N_CHUNKS * share * (1 - share));

	assert_true(fabs((double)n - N_CHUNKS * share) < 5 * deviation + 1);
}

static void test_shares(void **state)
{
	struct owner_member members[8];
	size_t n[8];

	make_members(members, 8);
	count(members, 8, n);
	for (size_t i = 0; i < 8; i++)
		assert_share(n[i], 1.0 / 8);
	for (size_t i = 0; i < 8; i++)
		members[i].weight = (i + 1) * (UINT64_C(1) << 40);
	count(members, 8, n);
	for (size_t i = 0; i < 8; i++)
		assert_share(n[i], (double)(i + 1) / 36);
}

/* One that goes, is away, gets another weight: of what others have, nothing moves among them. */
static void test_only_its_own_move(void **state)
{
	struct owner_member before[6], after[6];

	make_members(before, 6);
	for (size_t i = 0; i < 6; i++)
		before[i].weight = 100 + 50 * i;
	for (int change = 0; change < 4; change++) {
		size_t n_after = change == 3 ? 5 : 6, n_moved = 0; /* 3: the last one is gone */

		memcpy(after, before, sizeof(after));
		after[5].is_away = change == 0;
		after[5].weight = change == 1 ? 0 : change == 2 ? 70 : after[5].weight;
		for (uint32_t i = 0; i < N_CHUNKS; i++) {
			struct chunk_id id = chunk(i);
			size_t a = owner_of(before, 6, &id, NULL), b = owner_of(after, n_after, &id, NULL);

			if (change != 2)
				assert_int_not_equal(b, 5);
			if (a != 5)
				assert_int_equal(a, b);
			n_moved += a != b;
		}
		assert_true(n_moved > 0);
	}
}

/* Two nodes that list the same members in another order find the same owner. */
static void test_order_does_not_matter(void **state)
{
	struct owner_member one[50], other[50];
	size_t place[50];

	make_members(one, 50);
	srand(3);
	for (size_t i = 0; i < 50; i++) {
		one[i].weight = (uint64_t)rand() * (uint64_t)(rand() % 5);
		one[i].is_away = rand() % 7 == 0;
		place[i] = i;
	}
	for (size_t i = 49; i > 0; i--) {
		size_t k = (size_t)rand() % (i + 1), kept = place[i];

		place[i] = place[k];
		place[k] = kept;
	}
	for (size_t i = 0; i < 50; i++)
		other[i] = one[place[i]];
	for (uint32_t i = 0; i < N_CHUNKS; i++) {
		struct chunk_id id = chunk(i);
		size_t a = owner_of(one, 50, &id, NULL);

		assert_false(one[a].is_away);
		assert_int_not_equal(one[a].weight, 0);
		assert_true(one[a].name_hash == other[owner_of(other, 50, &id, NULL)].name_hash);
	}
}

static void test_edges(void **state)
{
	struct owner_member members[3];
	struct chunk_id id = chunk(0);
	size_t n[3];

	assert_true(owner_of(NULL, 0, &id, NULL) == SIZE_MAX);
	make_members(members, 3);
	for (size_t i = 0; i < 3; i++)
		members[i].weight = 0;
	count(members, 3, n);
	for (size_t i = 0; i < 3; i++)
		assert_share(n[i], 1.0 / 3);
	members[1].weight = 5;
	members[1].is_away = true; /* the others have none, so it does not count */
	count(members, 3, n);
	assert_share(n[0], 0.5);
	members[1].is_away = false;
	count(members, 3, n);
	assert_int_equal(n[1], N_CHUNKS);
	for (size_t i = 0; i < 3; i++)
		members[i].is_away = true;
	assert_true(owner_of(members, 3, &id, NULL) == SIZE_MAX);
	members[2] = (struct owner_member){.name_hash = 1, .weight = UINT64_MAX};
	assert_int_equal(owner_of(members, 3, &id, NULL), 2);
	members[0] = members[1] = members[2]; /* one name thrice: the first */
	assert_int_equal(owner_of(members, 3, &id, NULL), 0);
}

/* What nodes of other builds and machines find, too: it may never change. */
static void test_known_owners(void **state)
{
	struct owner_member members[5];
	char owners[41] = "";

	make_members(members, 5);
	for (size_t i = 0; i < 5; i++)
		members[i].weight = (i + 1) << 30;
	for (size_t i = 0; i < 40; i++) {
		struct chunk_id id = {.bytes = {(uint8_t)i, 1, 2, 3}};

		owners[i] = (char)('0' + owner_of(members, 5, &id, NULL));
	}
	assert_string_equal(owners, "3442213311442420433243341111444443332122");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_shares),
	    cmocka_unit_test(test_only_its_own_move),
	    cmocka_unit_test(test_order_does_not_matter),
	    cmocka_unit_test(test_edges),
	    cmocka_unit_test(test_known_owners),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
