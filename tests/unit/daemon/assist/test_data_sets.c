/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/assist/data_sets.h"

#define N 4

/* Reports that a batch of N indices from `first` on opened files of folder `of`. Returns the set to which the
 * batch belongs, and teaches the files to that set. */
static int opened(struct data_sets *s, uint64_t pass, uint32_t first, const char *of, uint32_t *n_wrong)
{
	uint32_t indices[N];
	char names[256];
	const char *at = names;
	size_t n = 0;
	struct data_batch b = {.indices = indices, .n = N, .per_sample = 1, .names = names};

	for (uint32_t i = 0; i < N; i++) {
		indices[i] = first + i;
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s/%u", of, first + i) + 1;
	}
	int set = data_sets_settle(s, &pass, &b, n_wrong);
	for (uint32_t i = 0; set >= 0 && i < N; i++)
		(void)data_sets_learn(s, set, indices[i], &at);
	return set;
}

TEST(a_pass_begins_with_batch_0_and_has_all_its_workers)
{
	struct data_sets s = {0};
	uint64_t one = data_sets_written(&s, 0, -1, 0), other;
	uint32_t wrong;

	assert_int_equal(data_sets_written(&s, 0, -1, 1), one); /* for the second worker */
	assert_int_equal(data_sets_written(&s, one, 0, 2), one);
	other = data_sets_written(&s, 0, -1, 0); /* another loader at the same time */
	assert_int_not_equal(other, one);
	assert_int_equal(data_sets_written(&s, 0, -1, 1), other);
	assert_int_equal(data_sets_written(&s, one, 1, 3), one);
	assert_int_equal(data_sets_written(&s, other, 1, 3), other);
	/* the same workers get batches again, the second one first */
	one = data_sets_written(&s, one, 3, 1);
	assert_int_not_equal(one, other);
	assert_int_equal(data_sets_written(&s, 1, 2, 0), one);
	/* A pass one of whose batches is done has all its workers. */
	(void)opened(&s, one, 0, "train", &wrong);
	other = data_sets_written(&s, 0, -1, 2);
	assert_int_not_equal(other, one);
	/* a second pass also begins where there is only one worker */
	assert_int_not_equal(data_sets_written(&s, other, 2, 2), other);
	data_sets_free(&s);
}

TEST(files_tell_one_set_from_another)
{
	struct data_sets s = {0};
	uint64_t pass = data_sets_written(&s, 0, -1, 0);
	uint32_t wrong;
	int train, test;

	assert_int_equal(data_sets_guess(&s, pass), -1);
	train = opened(&s, pass, 0, "train", &wrong);
	assert_int_equal(data_sets_guess(&s, pass), train);
	assert_int_equal(opened(&s, pass, 8, "train", &wrong), train);

	pass = data_sets_written(&s, 0, -1, 0);
	assert_int_equal(data_sets_guess(&s, pass), train); /* the only known set */
	test = opened(&s, pass, 0, "test", &wrong);
	assert_int_not_equal(test, train);
	assert_int_equal(wrong, N);
	assert_string_equal(data_sets_find(&s, train, 1), "train/1");
	assert_string_equal(data_sets_find(&s, test, 1), "test/1");

	for (int i = 0; i < 20; i++) {
		pass = data_sets_written(&s, 0, -1, 0);
		assert_int_equal(data_sets_guess(&s, pass), -1);
		assert_int_equal(opened(&s, pass, 0, i % 2 ? "test" : "train", &wrong), i % 2 ? test : train);
		assert_int_equal(wrong, 0);
		assert_int_equal(data_sets_guess(&s, pass), i % 2 ? test : train);
	}
	assert_int_equal(s.n_known, 3 * N);
	data_sets_free(&s);
}

/* A pass whose files match no known set is learnt as a set of its own, until a batch matches. */
TEST(parts_of_one_set_come_together)
{
	struct data_sets s = {0};
	uint32_t wrong;
	int first = opened(&s, data_sets_written(&s, 0, -1, 0), 0, "train", &wrong);
	uint64_t pass = data_sets_written(&s, 0, -1, 0);
	int own = opened(&s, pass, 100, "train", &wrong);

	assert_int_not_equal(own, first);
	assert_int_equal(opened(&s, pass, 2, "train", &wrong), first);
	assert_int_equal(wrong, 0);
	assert_string_equal(data_sets_find(&s, first, 101), "train/101");
	assert_null(data_sets_find(&s, own, 101));
	assert_int_equal(data_sets_guess(&s, pass), first);
	/* Two sets also become one when a batch shows that they are the same. */
	pass = data_sets_written(&s, 0, -1, 0);
	own = opened(&s, pass, 96, "train", &wrong);
	assert_int_not_equal(own, first);
	pass = data_sets_written(&s, 0, -1, 0);
	first = opened(&s, pass, 98, "train", &wrong);
	assert_string_equal(data_sets_find(&s, first, 96), "train/96");
	assert_string_equal(data_sets_find(&s, first, 0), "train/0");
	/* There are many short passes without common samples. */
	for (uint32_t i = 2; i < 20; i++)
		assert_true(opened(&s, data_sets_written(&s, 0, -1, 0), i * 100, "train", &wrong) >= 0);
	assert_int_equal(s.n_known, 4 * N - 2 + 18 * N);
	data_sets_free(&s);
}

TEST(there_are_only_so_many)
{
	struct data_sets s = {0};
	uint32_t wrong;
	char name[16];

	for (uint32_t i = 0; i <= DATA_SETS; i++) {
		snprintf(name, sizeof(name), "made-%u", i);
		assert_int_equal(opened(&s, data_sets_written(&s, 0, -1, 0), 0, name, &wrong) < 0,
				 i == DATA_SETS);
	}
	data_sets_free(&s);
}

static int learn(struct data_sets *s, int set, uint32_t index, const char *name)
{
	const char *end = name;
	int r = data_sets_learn(s, set, index, &end);

	assert_ptr_equal(end, name + strlen(name) + 1);
	return r;
}

TEST(the_table_is_bounded)
{
	struct data_sets s = {.sets = {{.per_sample = 1}, {.per_sample = 1}}};

	assert_int_equal(learn(&s, 0, DATA_INDICES, "a"), -ERANGE);
	assert_int_equal(learn(&s, 0, 5, "a"), DATA_NEW);
	assert_int_equal(learn(&s, 0, 5, "a"), DATA_SAME);
	assert_int_equal(learn(&s, 0, 5, "b"), DATA_OTHER);
	assert_int_equal(learn(&s, 0, 5, "a much longer one"), DATA_OTHER);
	assert_string_equal(data_sets_find(&s, 0, 5), "a");
	assert_null(data_sets_find(&s, 0, 6));
	assert_null(data_sets_find(&s, 1, 5));
	assert_int_equal(s.n_known, 1);
	assert_int_equal(learn(&s, 0, DATA_INDICES - 1, "a"), DATA_NEW);
	assert_int_equal(learn(&s, 1, DATA_INDICES - 1, "a"), -ERANGE);
	assert_int_equal(learn(&s, 1, 5, "a"), DATA_NEW);
	data_sets_free(&s);
}
