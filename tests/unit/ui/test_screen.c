/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ui/view/bar.h"
#include "ui/view/format.h"
#include "ui/state/history.h"
#include "ui/state/sample.h"
#include "ui/view/screen.h"
#include "lib/cleanup.h"

static const struct charset plain = {false, false}, unicode = {true, false}, full = {true, true};

static void check_line(struct screen *screen, int y, const char *expected)
{
	_cleanup_(freep) char *line = screen_line(screen, y);

	assert_string_equal(line, expected);
}

static void check_text(struct charset charset, int width, const char *text, const char *expected)
{
	struct screen *screen = screen_new(1, 40, charset);

	assert_true(screen_text(screen, 0, 0, width, STYLE_NORMAL, text) <= width);
	check_line(screen, 0, expected);
	screen_free(screen);
}

/* No control sequence of a terminal gets through, wherever the text comes from. */
TEST(hostile_texts_are_harmless)
{
	check_text(unicode, 40, "a\033[2Jb\033]0;title\007c", "a?[2Jb?]0;title?c");
	check_text(unicode, 40, "tab\tline\nbell\a", "tab?line?bell?");
	check_text(unicode, 40, "csi \302\2332J", "csi ?2J");               /* C1: U+009B */
	check_text(unicode, 40, "rtl \342\200\256gpj.exe", "rtl ?gpj.exe"); /* U+202E */
	check_text(unicode, 40, "cut \303", "cut ?");
	check_text(unicode, 40, "over\300\257long", "over??long");
	check_text(unicode, 40, "surrogate \355\240\200", "surrogate ???");
	check_text(unicode, 40, "\377\376", "??");
}

TEST(wide_and_combining_characters)
{
	check_text(unicode, 40, "训练.py", "训练.py");
	check_text(plain, 40, "训练.py", "??.py");
	check_text(unicode, 6, "训练.py", "训练.…"); /* 4 + 1, and the ellipsis */
	check_text(unicode, 4, "训练.py", "训…");    /* half of a wide character is never drawn */
	check_text(unicode, 40, "e\314\201tude", "e\314\201tude");
	check_text(plain, 5, "abcdefgh", "abcd~");
	assert_int_equal(screen_text_width("训练.py", unicode), 7);
}

/* If text overwrites one half of a wide character, the other half is cleared. */
TEST(overwriting_a_half)
{
	struct screen *screen = screen_new(1, 8, unicode);

	screen_text(screen, 0, 0, 8, STYLE_NORMAL, "训练x");
	screen_put(screen, 0, 1, STYLE_NORMAL, L'a');
	check_line(screen, 0, " a练x");
	screen_put(screen, 0, 2, STYLE_NORMAL, L'b');
	check_line(screen, 0, " ab x");
	screen_free(screen);
}

TEST(outside_is_left_out)
{
	struct screen *screen = screen_new(2, 4, unicode);

	screen_text(screen, -1, 0, 10, STYLE_NORMAL, "above");
	screen_text(screen, 2, 0, 10, STYLE_NORMAL, "below");
	screen_text(screen, 0, 2, 10, STYLE_NORMAL, "right");
	screen_text(screen, 1, 3, 10, STYLE_NORMAL, "训");
	screen_text_right(screen, 1, 0, 2, STYLE_NORMAL, "7");
	check_line(screen, 0, "  ri");
	check_line(screen, 1, " 7");
	screen_free(screen);
}

TEST(not_known_is_not_zero)
{
	char text[FORMAT_BYTES];

	assert_string_equal(format_percent(text, NAN), "N/A");
	assert_string_equal(format_percent(text, 0), "0");
	assert_string_equal(format_percent(text, -0.001), "0");
	assert_string_equal(format_percent(text, 0.416), "42");
	assert_string_equal(format_seconds(text, NAN), "N/A");
	assert_string_equal(format_seconds(text, 0), "0s");
	assert_string_equal(format_seconds(text, 0.00031), "310us");
	assert_string_equal(format_seconds(text, 0.0042), "4.2ms");
	assert_string_equal(format_seconds(text, 0.9999), "1.0s");
	assert_string_equal(format_seconds(text, 200), "3m20");
	assert_string_equal(format_seconds(text, 7500), "2h05");
	assert_string_equal(format_seconds(text, 1e300), "9999d17");
	assert_string_equal(format_bytes(text, 999), "999");
	assert_string_equal(format_bytes(text, 1023), "1.0K");
	assert_string_equal(format_bytes(text, 1.5 * (1 << 30)), "1.5G");
	assert_string_equal(format_bytes(text, INFINITY), "N/A");
	assert_string_equal(format_rate(text, 0.31), "0.31");
	assert_string_equal(format_rate(text, 12500), "12k");
	assert_string_equal(format_count(text, SAMPLE_UNKNOWN), "N/A");
	assert_string_equal(format_count(text, 0), "0");
}

/* Each column is full for any shares. Rounding neither leaves a gap nor overflows. */
TEST(shares_fill_the_bar)
{
	const double thirds[SHARE_COUNT] = {1.0 / 3, 1.0 / 3, 1.0 / 3}, none[SHARE_COUNT] = {0},
		     odd[SHARE_COUNT] = {NAN, 0.5, -3, INFINITY, 0.5, 1e300};
	int cells[SHARE_COUNT];

	for (int total = 0; total < 100; total++) {
		int sum = 0;

		bar_deal(thirds, total, cells);
		for (int i = 0; i < SHARE_COUNT; i++)
			sum += cells[i];
		assert_int_equal(sum, total);
		sum = 0;
		bar_deal(odd, total, cells);
		for (int i = 0; i < SHARE_COUNT; i++)
			sum += cells[i];
		assert_int_equal(sum, total);
	}
	bar_deal(none, 10, cells);
	assert_int_equal(cells[0], 0);
}

TEST(bar_without_colour_is_letters)
{
	const double share[SHARE_COUNT] = {0.5, 0.3, 0.2},
		     unknown[SHARE_COUNT] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN},
		     compiling[SHARE_COUNT] = {[SHARE_DEVICE] = 0.5, [SHARE_COMPILING] = 0.5};
	struct screen *screen = screen_new(3, 12, plain);

	bar_draw(screen, 0, 0, 12, share);
	check_line(screen, 0, "[FFFPPddddd]");
	bar_draw(screen, 1, 0, 12, unknown);
	check_line(screen, 1, "[N/A       ]");
	bar_draw(screen, 1, 0, 12, compiling);
	check_line(screen, 1, "[KKKKKddddd]");
	screen->charset = full;
	bar_draw(screen, 2, 0, 12, share);
	check_line(screen, 2, "[██████████]");
	assert_int_equal(screen->cells[2 * 12 + 1].style, STYLE_FETCH);
	assert_int_equal(screen->cells[2 * 12 + 10].style, STYLE_DEVICE);
	screen_free(screen);
}

TEST(history_is_a_ring)
{
	struct top_history history = {0};
	struct top_sample *sample = sample_new();
	struct job_sample *job = sample_add(sample, SAMPLE_JOBS);

	strcpy(job->id, "a");
	for (int i = 0; i < HISTORY_POINTS + 50; i++) {
		job->steps_per_s = i;
		assert_int_equal(history_add(&history, sample), 0);
	}
	const struct history_series *series = history_find(&history, "a");
	assert_float_equal(history_point(series, 0)->steps_per_s, HISTORY_POINTS + 49, 0);
	assert_float_equal(history_point(series, HISTORY_POINTS - 1)->steps_per_s, 50, 0);
	assert_null(history_point(series, HISTORY_POINTS));
	assert_null(history_find(&history, "b"));
	/* A job that is gone for the whole span of the plot is forgotten. */
	sample->n_jobs = 0;
	for (int i = 0; i < HISTORY_POINTS + 1; i++)
		history_add(&history, sample);
	assert_null(history_find(&history, "a"));
	history_clear(&history);
	sample_free(sample);
}

int main(void)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	return run_unit_tests(NULL, NULL);
}
