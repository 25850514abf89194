/* SPDX-License-Identifier: Apache-2.0 */
/* Answers with decoded forms: what is one, what is none, and that no bit of one can be another without
 * notice. */
#include "support.h"

#include <errno.h>
#include <string.h>

#include "codec.h"
#include "peers/form_answer.h"

#define N 3u

static const struct checksum_128 key = {.low = 1, .high = 2};
static const struct net_range runs[] = {{2, 3}, {10, 1}, {20, 5}};

struct answer {
	uint8_t data[4096];
	struct form_answer_entry entries[N];
	uint64_t bytes;
};

/* With the head that it should have. */
static void seal(struct answer *a, uint32_t n)
{
	struct form_answer_head head;

	form_answer_head_fill(&head, &key, a->entries, n);
	memcpy(a->data, &head, sizeof(head));
	memcpy(a->data + sizeof(head), a->entries, n * sizeof(a->entries[0]));
}

static void make(struct answer *a)
{
	static const uint32_t samples[N] = {3, 10, 24}, bytes[N] = {100, 64, 1000};
	uint64_t at = form_answer_first(N);

	memset(a, 0, sizeof(*a));
	for (uint32_t i = 0; i < N; i++) {
		memset(a->data + at, (int)i + 1, bytes[i]);
		a->entries[i] = (struct form_answer_entry){.sample = samples[i],
							   .bytes = bytes[i],
							   .offset = at,
							   .xxh3 = checksum_xxh3(a->data + at, bytes[i])};
		a->bytes = at + bytes[i];
		at = form_answer_next(at, bytes[i]);
	}
	seal(a, N);
}

static int check(const struct answer *a)
{
	return form_answer_check(a->data, a->bytes, &key, runs, 3);
}

static void one_that_is(void **state)
{
	struct answer a;

	(void)state;
	make(&a);
	assert_int_equal(check(&a), N);
	for (uint32_t i = 0; i < N; i++) {
		struct form_answer_entry e = form_answer_entry(a.data, i);

		assert_int_equal(e.sample, a.entries[i].sample);
		assert_int_equal(e.offset % CODEC_FORM_ALIGN, 0);
		assert_true(form_answer_is_whole(a.data, &e));
	}
}

/* Each bit once: either the table is refused, or the form is. What lies between forms matters to nobody. */
static void every_bit_counts(void **state)
{
	struct answer a;

	(void)state;
	make(&a);
	for (uint64_t bit = 0; bit < 8 * a.bytes; bit++) {
		uint64_t at = bit / 8;
		bool is_table = at < sizeof(struct form_answer_head) + sizeof(a.entries), is_form = false;
		uint32_t n_spoilt = 0;
		int n;

		a.data[at] ^= (uint8_t)(1 << bit % 8);
		n = check(&a);
		for (uint32_t i = 0; i < N; i++)
			is_form = is_form || (at >= a.entries[i].offset &&
					      at < a.entries[i].offset + a.entries[i].bytes);
		for (uint32_t i = 0; n > 0 && i < N; i++) {
			struct form_answer_entry e = form_answer_entry(a.data, i);

			n_spoilt += !form_answer_is_whole(a.data, &e);
		}
		assert_int_equal(n, is_table ? -EBADMSG : (int)N);
		assert_int_equal(n_spoilt, is_form);
		a.data[at] ^= (uint8_t)(1 << bit % 8);
	}
}

/* Sealed as it should be, by someone who lies. */
static void lies(void **state)
{
	static const struct {
		uint32_t sample;
		uint64_t offset;
		uint32_t bytes;
	} wrong[] = {
	    {5, 0, 64},          /* was not asked for */
	    {1, 0, 64},          /* the same, before all others */
	    {24, 0, 64},         /* not in order with the last one */
	    {3, 0, 64},          /* there already */
	    {10, 0, 0},          /* empty */
	    {10, 0, UINT32_MAX}, /* ends behind the answer */
	    {10, 4096, 64},      /* lies there */
	    {10, UINT64_MAX - 63, 64},
	    {10, 0, 128}, /* overlaps the next one */
	    {10, 64, 64}, /* lies among the entries */
	    {10, 8, 8},   /* not aligned */
	};
	struct answer a;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		make(&a);
		a.entries[1].sample = wrong[i].sample;
		a.entries[1].bytes = wrong[i].bytes;
		if (wrong[i].offset)
			a.entries[1].offset = wrong[i].offset;
		seal(&a, N);
		assert_int_equal(check(&a), -EBADMSG);
	}
	make(&a);
	seal(&a, 0);
	assert_int_equal(check(&a), -EBADMSG);
}

static void cut_or_of_another_key(void **state)
{
	const struct checksum_128 others[] = {{.low = 1, .high = 3}, {.low = 2, .high = 2}};
	struct answer a;

	(void)state;
	make(&a);
	for (int i = 0; i < 2; i++)
		assert_int_equal(form_answer_check(a.data, a.bytes, &others[i], runs, 3), -EBADMSG);
	while (a.bytes > 0) {
		a.bytes--;
		assert_int_equal(check(&a), -EBADMSG);
	}
}

/* Recipes of another key, and none else, have other forms. */
static void keys(void **state)
{
	const struct recipe one = {.kind = RECIPE_IMAGE, .width = 10},
			    other = {.kind = RECIPE_IMAGE, .width = 11};
	struct checksum_128 a = form_key(&one), b = form_key(&one), c = form_key(&other);

	(void)state;
	assert_memory_equal(&a, &b, sizeof(a));
	assert_true(a.low != c.low && a.high != c.high);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_that_is), cmocka_unit_test(every_bit_counts),
	    cmocka_unit_test(lies),        cmocka_unit_test(cut_or_of_another_key),
	    cmocka_unit_test(keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
