/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

#define SEEN_ROWS 6

struct self_line {
	const char *name;
	double value;
	char *(*format)(char *buffer, double value);
	const char *unit, *meaning;
};

static char *format_thousandth(char *buffer, double ratio)
{
	if (!isfinite(ratio))
		return format_percent(buffer, ratio);
	snprintf(buffer, FORMAT_BYTES, "%.2f", 100 * ratio);
	return buffer;
}

void view_self(struct model *model, struct screen *screen, int y, int rows)
{
	const struct self_sample *s = &model->sample->self;
	const struct self_line lines[] = {
	    {"CPU", s->cpu_ratio, format_thousandth, "%", "of one core, used by diesel-top in total"},
	    {"  events", s->poll_ratio, format_thousandth, "%", "reading events of BPF or /proc"},
	    {"  analysis", s->analysis_ratio, format_thousandth, "%",
	     "analysing the last seconds of each job"},
	    {"  processes", s->scan_ratio, format_thousandth, "%", "looking for new and ended jobs"},
	    {"  drawing", s->draw_ratio, format_thousandth, "%", "drawing, and writing to the terminal"},
	    {"BPF programs", s->bpf_ratio, format_thousandth, "%",
	     "of one core, taken from the jobs' CPU time"},
	    {"memory", s->memory_bytes, format_bytes, "", "resident"},
	    {"events", s->events_per_s, format_rate, "/s", "recorded events of the jobs"},
	    {"oldest shares", s->oldest_s, format_seconds, "",
	     "age: analysis is delayed to limit its CPU use"},
	    {"cells", s->cells_per_s, format_rate, "/s", "screen cells that changed"},
	};
	char text[FORMAT_BYTES], seen[sizeof(s->source) + 24];

	snprintf(seen, sizeof(seen), "jobs are observed by %s", s->source[0] ? s->source : "N/A");
	y += view_text(screen, y, 0, SEEN_ROWS, screen->cols, STYLE_BOLD, seen) + 1;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && (int)i < rows - 4; i++, y++) {
		screen_text(screen, y, 0, 16, STYLE_NORMAL, lines[i].name);
		lines[i].format(text, lines[i].value);
		screen_text_right(screen, y, 16, 7, STYLE_BOLD, text);
		screen_text(screen, y, 23, 3, STYLE_BOLD, strcmp(text, "N/A") ? lines[i].unit : "");
		screen_text(screen, y, 27, screen->cols - 27, STYLE_DIM, lines[i].meaning);
	}
	screen_print(screen, y++, 0, screen->cols, STYLE_NORMAL, "%-16s%7s", "tasks watched",
		     format_count(text, s->n_tasks));
	screen_print(screen, y, 0, screen->cols,
		     s->n_lost && s->n_lost != SAMPLE_UNKNOWN ? STYLE_BAD : STYLE_NORMAL, "%-16s%7s    %s",
		     "events lost", format_count(text, s->n_lost), "only details are lost, never totals");
}
