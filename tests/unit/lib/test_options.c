/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "lib/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct given {
	uint64_t bytes;
	uint32_t number, word;
	bool flag;
	const char *text;
};

#define AT(member) .at = offsetof(struct given, member)

static char long_about[5001];

static const struct option_row rows[] = {
    {"bytes", option_set_bytes, .letter = 'b', AT(bytes), .value = "SIZE", .says = "no size", .help = "h"},
    {"number", option_set_u32, AT(number), .least = 1, .most = 9, .value = "N", .says = "not from 1 to 9",
     .help = "h"},
    {"colour", option_set_choice, AT(word), .words = "red|green", .value = "WORD", .says = "no colour",
     .help = "h", .about = long_about},
    {"color", option_set_choice, AT(word), .words = "red|green", .value = "WORD", .says = "no colour"},
    {"flag", option_set_flag, .letter = 'f', AT(flag), .help = ".starts with a dot"},
};
static const struct option_verb self = {
    .name = "program", .summary = "Does", .arguments = "FILE", OPTION_ROWS(rows)};
static const struct option_program program = {.self = &self};

static int parse(struct given *ret, struct error *err, const char *first, const char *second)
{
	char *argv[] = {(char *)"program", (char *)first, (char *)second, NULL};

	*ret = (struct given){0};
	return option_parse(&self, second ? 3 : 2, argv, ret, err);
}

TEST(values_go_into_the_fields_of_the_rows)
{
	struct given given;

	assert_int_equal(parse(&given, NULL, "-fb4K", "word"), 0);
	assert_true(given.flag);
	assert_int_equal(given.bytes, 4096);
	assert_int_equal(optind, 2);
	assert_int_equal(parse(&given, NULL, "--colour=green", "--number=9"), 0);
	assert_int_equal(given.word, 1);
	assert_int_equal(given.number, 9);
	assert_int_equal(parse(&given, NULL, "--help", NULL), OPTION_HELP);
	assert_int_equal(parse(&given, NULL, "-h", NULL), OPTION_HELP);
}

TEST(a_mistake_is_one_line_that_names_it)
{
	static const struct {
		const char *first, *second, *says;
	} cases[] = {
	    {"--bites", "4K", "there is no option --bites (do you mean --bytes?)"},
	    {"--elephant=4", NULL, "there is no option --elephant=4"},
	    {"-x", NULL, "there is no option -x"},
	    {"--flag=yes", NULL, "--flag takes no value"},
	    {"--bytes", NULL, "--bytes needs an argument"},
	    {"--bytes", "many", "--bytes many: no size"},
	    {"--number", "10", "--number 10: not from 1 to 9"},
	    {"--colour", "re", "--colour re: no colour"},
	};
	struct given given;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error err = ERROR_INIT;

		assert_int_equal(parse(&given, &err, cases[i].first, cases[i].second), -EINVAL);
		assert_string_equal(err.text, cases[i].says);
	}
}

static char *printed(const char *decoded_copy)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	assert_non_null(out);
	if (decoded_copy)
		assert_int_equal(option_print(out, &program, decoded_copy), 0);
	else
		option_print_help(out, &program, &self);
	fclose(out);
	return text;
}

TEST(no_text_is_cut_and_other_spellings_are_not_listed)
{
	static const char *const decoded_cache[] = {NULL, "manual", "bash", "zsh"};
	size_t n = 0;
	char *text;

	for (size_t i = 0; i + 1 < sizeof(long_about); i++)
		long_about[i] = i % 10 == 9 ? ' ' : 'x';
	for (size_t i = 0; i < sizeof(decoded_cache) / sizeof(decoded_cache[0]); i++) {
		text = printed(decoded_cache[i]);
		assert_non_null(strstr(text, "colour"));
		assert_null(strstr(text, "color"));
		free(text);
	}
	text = printed("manual");
	for (const char *at = text; *at; at++)
		n += *at == 'x' || *at == 'X';
	assert_int_equal(n, 4500);
	assert_non_null(strstr(text, "\n\\&.starts")); /* a dot would begin a request */
	free(text);
	assert_int_equal(option_print(stdout, &program, "nonsense"), -ENOENT);
}
