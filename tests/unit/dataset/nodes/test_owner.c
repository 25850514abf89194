/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of chunks: shares by weight, and no change of owner without need. */
#include "tests/unit/test.h"

#include "dataset/chunk_id.h"
#include "dataset/owner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CHUNKS 20000

/* Returns ids of one writer, which differ in few bits. */
static struct chunk_id chunk(uint32_t i)
{
	static struct chunk_id_source source;

	if (i == 0)
		chunk_id_source_init(&source, 7, 9, NULL);
	struct chunk_id id = chunk_id_next(&source, 1000000 + i / 3);
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

TEST(members_own_by_weight)
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

/* If a member leaves, is unreachable, or changes its weight, the other members' chunks do not move among
 * them. */
TEST(only_its_own_move)
{
	struct owner_member before[6], after[6];

	make_members(before, 6);
	for (size_t i = 0; i < 6; i++)
		before[i].weight = 100 + 50 * i;
	for (int change = 0; change < 4; change++) {
		size_t n_after = change == 3 ? 5 : 6, n_moved = 0; /* 3: the last member left */

		memcpy(after, before, sizeof(after));
		after[5].is_unreachable = change == 0;
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
TEST(order_does_not_matter)
{
	struct owner_member one[50], other[50];
	size_t place[50];

	make_members(one, 50);
	srand(3);
	for (size_t i = 0; i < 50; i++) {
		one[i].weight = (uint64_t)rand() * (uint64_t)(rand() % 5);
		one[i].is_unreachable = rand() % 7 == 0;
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

		assert_false(one[a].is_unreachable);
		assert_int_not_equal(one[a].weight, 0);
		assert_true(one[a].name_hash == other[owner_of(other, 50, &id, NULL)].name_hash);
	}
}

TEST(no_members_and_no_weights_have_an_answer)
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
	/* the others have no weight, and this weight does not count */
	members[1].is_unreachable = true;
	count(members, 3, n);
	assert_share(n[0], 0.5);
	members[1].is_unreachable = false;
	count(members, 3, n);
	assert_int_equal(n[1], N_CHUNKS);
	for (size_t i = 0; i < 3; i++)
		members[i].is_unreachable = true;
	assert_true(owner_of(members, 3, &id, NULL) == SIZE_MAX);
	members[2] = (struct owner_member){.name_hash = 1, .weight = UINT64_MAX};
	assert_int_equal(owner_of(members, 3, &id, NULL), 2);
	members[0] = members[1] = members[2]; /* the same name three times: the first one is the owner */
	assert_int_equal(owner_of(members, 3, &id, NULL), 0);
}

/* Nodes of other builds and machines must find the same owners, so the function may never change. */
TEST(owners_never_change)
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

/* Returns whether a lane is served, by a search through all lanes that were added. */
TEST(lanes_are_added)
{
	srand(5);
	for (int round = 0; round < 500; round++) {
		struct owner_lanes lanes = {.lanes = 100, .drift = 2};
		bool served[100] = {false};
		int n = rand() % 12;

		for (int i = 0; i < n; i++) {
			uint32_t first = (uint32_t)rand() % 100,
				 end = first + 1 + (uint32_t)rand() % (100 - first);

			end = rand() % 2 ? first + 1 : end;
			owner_lanes_add(&lanes, first, end);
			assert_true(owner_lanes_ok(&lanes));
			for (uint32_t l = first; l < end; l++)
				served[l] = true;
		}
		for (uint32_t l = 0; l < 100; l++) {
			struct owner_place place = {100, 2, l, l + 1};

			assert_int_equal(owner_lanes_have(&lanes, &place), served[l]);
			place.drift = 3;
			assert_false(owner_lanes_have(&lanes, &place));
		}
	}
}

/* If there are more runs than the table holds, lanes between the nearest two runs count as served. */
TEST(too_many_runs_of_lanes)
{
	struct owner_lanes lanes = {.lanes = 1000};

	for (uint32_t i = 0; i < 100; i++) {
		owner_lanes_add(&lanes, (37 * i) % 100 * 10, (37 * i) % 100 * 10 + 1);
		assert_true(owner_lanes_ok(&lanes));
	}
	for (uint32_t l = 0; l < 1000; l += 10) {
		struct owner_place place = {1000, 0, l, l + 1};

		assert_true(owner_lanes_have(&lanes, &place));
	}
}

/* A chunk is owned by a member that serves its lane. If no reachable member does, the owner is found as
 * without lanes. */
TEST(a_lane_has_an_owner)
{
	struct owner_member members[4];

	make_members(members, 4);
	for (uint32_t i = 0; i < 4; i++) {
		members[i].lanes = (struct owner_lanes){.lanes = 8};
		owner_lanes_add(&members[i].lanes, i < 2 ? 2 * i : 4, i < 2 ? 2 * i + 2 : 7);
	}
	for (size_t i = 0; i < 200; i++) {
		struct chunk_id id = {.bytes = {(uint8_t)i, 9}};
		size_t any = owner_of(members, 4, &id, NULL);

		for (uint32_t lane = 0; lane < 8; lane++) {
			struct owner_place place = {8, 0, lane, lane + 1};
			size_t owner = owner_of(members, 4, &id, &place);

			assert_true(lane < 4 ? owner == lane / 2 : lane < 7 ? owner >= 2 : owner == any);
			members[0].is_unreachable = true;
			assert_int_equal(owner_of(members, 4, &id, &(struct owner_place){8, 0, 0, 1}),
					 owner_of(members, 4, &id, NULL));
			members[0].is_unreachable = false;
			place.lanes = 9;
			assert_int_equal(owner_of(members, 4, &id, &place), any);
		}
		/* Across a border, the owner is either of the two. */
		assert_true(owner_of(members, 4, &id, &(struct owner_place){8, 0, 1, 3}) < 2);
	}
}
