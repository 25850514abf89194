/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/difference.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "analyzer/comparison.h"
#include "reports/words/difference_facts.h"
#include "layout.h"
#include "lib/text.h"
#include "reports/words/words.h"

#define MARGIN 2

static void headline(const struct layout *layout, const struct report_difference *difference)
{
	const struct comparison *made = difference->comparison;
	const char *word = made->faster   ? "B is faster"
			   : made->slower ? "B is slower"
					  : "no clear difference in speed";
	char text[300];
	int length = 0;

	layout_style(layout, made->faster ? STYLE_GREEN : made->slower ? STYLE_RED : STYLE_BOLD);
	fprintf(layout->stream, "%s:", word);
	layout_style(layout, STYLE_PLAIN);
	fputc(' ', layout->stream);
	if (isfinite(made->speed.value)) {
		length = snprintf(text, sizeof(text), "%.2fx the steps/s", made->speed.value);
		if (isfinite(made->speed.low))
			length +=
			    snprintf(text + length, sizeof(text) - (size_t)length,
				     " (99 %% interval %.2f to %.2f)", made->speed.low, made->speed.high);
		length += snprintf(text + length, sizeof(text) - (size_t)length, ", %.3g to %.3g steps/s; ",
				   made->steps_per_s_a, made->steps_per_s_b);
	}
	snprintf(text + length, sizeof(text) - (size_t)length,
		 made->verdict_changed ? "verdict %s to %s" : "verdict stays %s",
		 analysis_verdict_name(difference->a->verdict),
		 analysis_verdict_name(difference->b->verdict));
	layout_wrap(layout, text, (unsigned int)strlen(word) + 2, 0);
}

static void share_row(const struct layout *layout, const char *name, const struct comparison_share *share,
		      bool bad_when_more)
{
	bool worse = bad_when_more == (share->change.value > 0);
	enum layout_style style = !share->significant ? STYLE_DIM : worse ? STYLE_RED : STYLE_GREEN;

	fprintf(layout->stream, "%*s%-12s%7.1f %%%7.1f %%", MARGIN, "", name, 100 * share->a, 100 * share->b);
	layout_style(layout, style);
	fprintf(layout->stream, "%+8.1f", 100 * share->change.value);
	if (isfinite(share->change.low))
		fprintf(layout->stream, "   %+6.1f to %+6.1f", 100 * share->change.low,
			100 * share->change.high);
	else
		fprintf(layout->stream, "   %16s", "");
	fprintf(layout->stream, "   %s",
		share->significant ? share->change.value > 0 ? "more" : "less" : "within noise");
	layout_style(layout, STYLE_PLAIN);
	fputc('\n', layout->stream);
}

/* Prints a row for compiling, which is not part of the compared steps. */
static void compiling_row(const struct layout *layout, const struct comparison_share *share)
{
	char a[16], b[16];

	if (!(share->a > 0) && !(share->b > 0))
		return;
	snprintf(a, sizeof(a), isfinite(share->a) ? "%.1f %%" : "?", 100 * share->a);
	snprintf(b, sizeof(b), isfinite(share->b) ? "%.1f %%" : "?", 100 * share->b);
	fprintf(layout->stream, "%*s%-12s%9s%9s", MARGIN, "", "compiling", a, b);
	if (isfinite(share->change.value))
		fprintf(layout->stream, "%+8.1f", 100 * share->change.value);
	else
		fprintf(layout->stream, "%8s", "");
	layout_style(layout, STYLE_DIM);
	fputs("   of the total time, paid once\n", layout->stream);
	layout_style(layout, STYLE_PLAIN);
}

static void shares(const struct layout *layout, const struct comparison *made)
{
	fputc('\n', layout->stream);
	layout_style(layout, STYLE_DIM);
	fprintf(layout->stream, "%*s%-12s%9s%9s%8s   %16s\n", MARGIN, "", "share", "A", "B", "points",
		"99 % interval");
	layout_style(layout, STYLE_PLAIN);
	share_row(layout, "all stall", &made->stall, true);
	for (size_t i = 0; i < SHARE_COUNT; i++)
		if (share_labels[i].share == SHARE_COMPILING)
			compiling_row(layout, &made->shares[SHARE_COMPILING]);
		else if (made->shares[share_labels[i].share].a > 0 ||
			 made->shares[share_labels[i].share].b > 0)
			share_row(layout, share_labels[i].name, &made->shares[share_labels[i].share],
				  share_labels[i].share != SHARE_DEVICE);
}

static void facts(const struct layout *layout, const struct report_difference *difference)
{
	struct difference_fact items[DIFFERENCE_FACTS_MAX];
	size_t n = difference_facts(difference, items);

	fputc('\n', layout->stream);
	layout_style(layout, STYLE_BOLD);
	fputs(n ? "Other differences\n" : "No other differences\n", layout->stream);
	layout_style(layout, STYLE_PLAIN);
	for (size_t i = 0; i < n; i++) {
		char a[256], b[256];

		text_printable(a, sizeof(a), items[i].a, strlen(items[i].a));
		text_printable(b, sizeof(b), items[i].b, strlen(items[i].b));
		fprintf(layout->stream, "%*s%-18s", MARGIN, "", items[i].name);
		if (MARGIN + 18 + strlen(a) + 4 + strlen(b) <= layout->options.width) {
			fprintf(layout->stream, "%s -> %s\n", a, b);
			continue;
		}
		fputs("A: ", layout->stream);
		layout_wrap(layout, a, MARGIN + 21, MARGIN + 21);
		fprintf(layout->stream, "%*sB: ", MARGIN + 18, "");
		layout_wrap(layout, b, MARGIN + 21, MARGIN + 21);
	}
}

int report_difference_text(FILE *stream, const struct report_difference *difference,
			   const struct report_text_options *options)
{
	struct layout layout = {.stream = stream, .options = *options};

	if (!layout.options.width)
		layout.options.width = 80;
	errno = 0;
	headline(&layout, difference);
	shares(&layout, difference->comparison);
	facts(&layout, difference);
	fputc('\n', stream);
	layout_style(&layout, STYLE_DIM);
	layout_wrap(
	    &layout,
	    "Intervals cover the noise within each recording, without warm-up, validation and compiling. "
	    "They do not cover how the machine's speed drifts between recordings: record each version twice "
	    "to see that.",
	    0, 0);
	layout_style(&layout, STYLE_PLAIN);
	if (fflush(stream) || ferror(stream))
		return errno ? -errno : -EIO;
	return 0;
}
